// SPDX-License-Identifier: Apache-2.0
// What findings look like, word for word; the views; SARIF against the rules of its schema.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "cgp/emu/finding_class.h"
#include "cgp/spec/captured_stdout.h"
#include "cgp/spec/policies.h"
#include "cgp/spec/report/annotate.h"
#include "cgp/spec/report/findings.h"
#include "cgp/spec/report/heatmap.h"
#include "cgp/spec/report/report.h"
#include "cgp/spec/report/sarif.h"

namespace cgp::spec {
namespace {

using nlohmann::json;

constexpr const char* kCu =
    "__global__ void turn(float* out, const float* in) {\n"
    "  __shared__ float tile[64];\n"
    "  tile[threadIdx.x] = in[threadIdx.x];\n"
    "  out[threadIdx.x] = tile[63 - threadIdx.x];\n"
    "}\n";
constexpr const char* kPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    "\tst.shared.f32 \t[%r4], %f1;\n"
    "\tld.shared.f32 \t%f2, [%r5];\n";

LocatedFinding race() {
  LocatedFinding f;
  f.kernel = "turn";
  f.module = "turn.ptx";
  emu::Finding& x = f.finding;
  x.cls = "race.shared";
  x.message = "reads 4 bytes of '_ZZ4turnPfPKfE4tile' that another thread writes, and nothing orders the two";
  x.access = "reads 4 bytes";
  x.instruction = "ld.shared.f32 %f2, [%r5];";
  x.ptx_line = 5;
  x.file = "turn.cu";
  x.line = 4;
  x.column = 22;
  x.thread = {0, 0, 0};
  x.address = 0xfc;
  x.buffer = "_ZZ4turnPfPKfE4tile";
  x.byte_offset = 252;
  x.count = 64;
  x.missing_edge = "no barrier between the two";
  x.other = emu::OtherParty{};
  x.other->access = "writes 4 bytes";
  x.other->instruction = "st.shared.f32 [%r4], %f1;";
  x.other->ptx_line = 4;
  x.other->file = "turn.cu";
  x.other->line = 3;
  x.other->column = 3;
  x.other->block = {0, 0, 0};
  x.other->thread = {63, 0, 0};
  return f;
}

Sources sources() {
  Sources s;
  s.add("turn.cu", kCu);
  s.add("turn.ptx", kPtx);
  return s;
}

TEST(FindingText, shows_both_accesses_in_both_languages) {
  Sources s = sources();
  EXPECT_EQ(finding_text(race(), s, {false, 80}),
            R"(error[race.shared]: reads 4 bytes of 'turn::tile' that another thread writes,
    and nothing orders the two
 --> turn.cu:4:22
4 |   out[threadIdx.x] = tile[63 - threadIdx.x];
  |                      ^^^^ thread (0,0,0) of block (0,0,0) reads 4 bytes
 ::: turn.ptx:5
5 |     ld.shared.f32   %f2, [%r5];
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^
 --> turn.cu:3:3
3 |   tile[threadIdx.x] = in[threadIdx.x];
  |   ^^^^ thread (63,0,0) of block (0,0,0) writes 4 bytes
 ::: turn.ptx:4
4 |     st.shared.f32   [%r4], %f1;
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  = where: turn::tile + 252 bytes (0xfc), met 64 times
  = missing: no barrier between the two
  = hint: put a barrier (bar.sync, or __syncwarp within a warp) between the two
          accesses
)");
}

TEST(FindingText, without_sources_names_the_places) {
  LocatedFinding f = race();
  Sources s;
  f.finding.other.reset();
  EXPECT_EQ(finding_text(f, s, {false, 60}), R"(error[race.shared]: reads 4 bytes of 'turn::tile' that
    another thread writes, and nothing orders the two
 --> turn.cu:4:22
 ::: turn.ptx:5  thread (0,0,0) of block (0,0,0) reads 4 bytes
  = where: turn::tile + 252 bytes (0xfc), met 64 times
  = missing: no barrier between the two
  = hint: put a barrier (bar.sync, or __syncwarp within a
          warp) between the two accesses
)");
}

TEST(FindingText, a_note_is_no_error) {
  LocatedFinding f = race();
  Sources s = sources();
  f.finding.cls = "race.same_value";
  f.finding.severity = emu::Severity::note;
  f.finding.file.clear();
  f.finding.other.reset();
  f.finding.missing_edge.clear();
  f.policies = {"--async late --schedule fair", "--async eager --schedule adversarial"};
  f.policies_run = 8;
  EXPECT_EQ(
      finding_text(f, s, {false, 100}),
      R"(note[race.same_value]: reads 4 bytes of 'turn::tile' that another thread writes, and nothing orders
    the two
 --> turn.ptx:5
5 |     ld.shared.f32   %f2, [%r5];
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^ thread (0,0,0) of block (0,0,0) reads 4 bytes
  = where: turn::tile + 252 bytes (0xfc), met 64 times
  = under: --async late --schedule fair and 1 more
  = hint: let one thread store, if the value is really the same for all
)");
  EXPECT_FALSE(any_fails({f}));
  EXPECT_EQ(count_text({f, race(), race()}), "2 errors, 1 note");
}

TEST(FindingText, waits_of_a_deadlock_stand_line_by_line) {
  LocatedFinding f;
  f.module = "turn.ptx";
  f.finding.cls = "deadlock";
  f.finding.message =
      "nothing can run any more:\n    block (0,0,0) warp 0: wait for barrier 1\n    block (0,0,0) warp 1: "
      "can run";
  f.finding.ptx_line = 4;
  f.finding.hint = "mend it";
  Sources s = sources();
  EXPECT_EQ(finding_text(f, s, {false, 80}), R"(error[deadlock]: nothing can run any more:
 --> turn.ptx:4
4 |     st.shared.f32   [%r4], %f1;
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^ thread (0,0,0) of block (0,0,0)
  = who waits: block (0,0,0) warp 0: wait for barrier 1
               block (0,0,0) warp 1: can run
  = hint: mend it
)");
}

TEST(FindingText, long_lines_are_cropped_around_the_caret) {
  Sources s;
  s.add("long.cu", std::string(300, 'a') + " mark " + std::string(300, 'b') + "\n");
  LocatedFinding f;
  f.finding.cls = "trap";
  f.finding.message = "m";
  f.finding.file = "long.cu";
  f.finding.line = 1;
  f.finding.column = 302;
  f.finding.ptx_line = 1;
  f.finding.hint = "h";
  const std::string text = finding_text(f, s, {false, 60});
  std::size_t start = 0;
  for (std::size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    EXPECT_LE(end - start, 60u) << text;
  EXPECT_NE(text.find("mark"), std::string::npos);
  const auto code = text.find("...aaa"), caret = text.find("^^^^");
  ASSERT_NE(code, std::string::npos) << text;
  // the caret stands under the word
  EXPECT_EQ(text.find("mark") - (text.rfind('\n', text.find("mark")) + 1),
            caret - (text.rfind('\n', caret) + 1));
}

TEST(FindingText, many_findings_are_folded_and_colour_is_only_added) {
  Sources s = sources();
  std::vector<LocatedFinding> all(5, race());
  const std::string plain = findings_text(all, s, {false, 100}, 2);
  EXPECT_NE(plain.find("error[race.shared]: turn.cu:4 turn.ptx:5, thread (0,0,0) of block (0,0,0)\n"),
            std::string::npos)
      << plain;
  EXPECT_NE(plain.find("more about it: cgp explain race.shared\n"), std::string::npos);
  const std::string coloured = findings_text(all, s, {true, 100}, 2);
  EXPECT_NE(coloured, plain);
  EXPECT_EQ(std::regex_replace(coloured, std::regex("\x1b\\[[0-9;]*m"), ""), plain);
}

TEST(CountersText, sectors_of_bulk_copies_belong_to_no_request) {
  emu::Counters c;
  c.global_load_requests = 10, c.global_load_sectors = 1040, c.global_bulk_load_sectors = 1000;
  const std::string text = counters_text(c);
  EXPECT_TRUE(std::regex_search(text, std::regex("sectors per global load +4\\.00\n"))) << text;
}

TEST(Wrapped, breaks_at_spaces_and_keeps_long_words) {
  EXPECT_EQ(wrapped("aaa bbb ccc ddd eee fff ggg", 20, 0), "aaa bbb ccc ddd eee\nfff ggg");
  EXPECT_EQ(wrapped("a " + std::string(30, 'x') + " b", 20, 2), "a\n  " + std::string(30, 'x') + "\n  b");
  EXPECT_EQ(wrapped("one\ntwo", 80, 2), "one\n  two");
  EXPECT_EQ(wrapped("", 80, 2), "");
}

TEST(CapturedStdout, takes_what_is_printed_and_gives_standard_output_back) {
  testing::internal::CaptureStdout();
  std::printf("before\n");
  CapturedStdout c;
  std::printf("a kernel says 7\n");
  EXPECT_EQ(c.finish(), "a kernel says 7\n");
  EXPECT_EQ(c.finish(), "");
  std::printf("after\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "before\nafter\n");
}

// ---------------------------------------------------------------- policies
PolicyBuffer floats(std::vector<float> v, Compare how = {}) {
  HostArray a{DType::f32, {v.size()}, std::vector<std::uint8_t>(v.size() * 4)};
  std::memcpy(a.bytes.data(), v.data(), a.bytes.size());
  return {"y", how, std::move(a)};
}

TEST(PolicyRuns, name_the_buffer_and_the_first_element_that_differs) {
  PolicyRuns runs;
  runs.add({"eager", "fair"}, {}, {floats({1, 2, 3, 4})}, "");
  runs.add({"late", "fair"}, {}, {floats({1, 2, 3, 4})}, "");
  EXPECT_TRUE(runs.findings.empty());
  runs.add({"late", "adversarial"}, {race()}, {floats({1, 7, 3, 5})}, "");
  runs.add({"random:1", "random:1"}, {race()}, {floats({1, 8, 3, 5})}, "");
  ASSERT_EQ(runs.findings.size(), 2u);
  EXPECT_EQ(runs.findings[0].finding.cls, "race.shared");
  EXPECT_EQ(runs.findings[0].policies.size(), 2u);
  EXPECT_EQ(runs.findings[0].policies_run, 4u);
  LocatedFinding elsewhere = race();  // the same read races with another write: a finding of its own
  elsewhere.finding.other->ptx_line = 3;
  std::vector<LocatedFinding> both{race()};
  merge(both, {elsewhere}, "p");
  EXPECT_EQ(both.size(), 2u);
  const emu::Finding& f = runs.findings[1].finding;
  EXPECT_EQ(f.cls, "policy.result");
  EXPECT_EQ(f.severity, emu::Severity::error);
  EXPECT_EQ(f.buffer, "y");
  EXPECT_EQ(f.byte_offset, 4);
  EXPECT_EQ(f.message,
            "'y' differs in 2 of 4 elements: element 1 is 7 (0x40e00000) under --async late --schedule "
            "adversarial, 2 (0x40000000) under --async eager --schedule fair");
  EXPECT_TRUE(runs.outcomes[1].agrees);
  EXPECT_FALSE(runs.outcomes[2].agrees);
}

TEST(PolicyRuns, a_difference_within_the_declared_tolerance_is_a_note) {
  PolicyRuns runs;
  const Compare loose{Compare::Mode::abs_rel, 1e-3, 0};
  runs.add({"eager", "fair"}, {}, {floats({1, 2}, loose)}, "");
  runs.add({"late", "fair"}, {}, {floats({1, 2.0001f}, loose)}, "");
  ASSERT_EQ(runs.findings.size(), 1u);
  EXPECT_EQ(runs.findings[0].finding.severity, emu::Severity::note);
  runs.add({"late", "adversarial"}, {}, {floats({2, 1}, loose)}, "");
  EXPECT_TRUE(any_fails(runs.findings));
  PolicyRuns sets;
  sets.add({"eager", "fair"}, {}, {floats({1, 2}, {Compare::Mode::multiset, 0, 0})}, "");
  sets.add({"late", "fair"}, {}, {floats({2, 1}, {Compare::Mode::multiset, 0, 0})}, "");
  EXPECT_TRUE(sets.findings.empty());
}

TEST(Policies, are_read_from_text) {
  EXPECT_EQ(parse_policies("all", 1).size(), 8u);
  EXPECT_EQ(parse_policies("all", 1)[0].arguments(), "--async eager --schedule fair");
  const auto some = parse_policies("late+diverge,random,adversarial", 5);
  ASSERT_EQ(some.size(), 4u);
  EXPECT_EQ(some[1].arguments(), "--async late --schedule diverge");
  EXPECT_EQ(some[2].arguments(), "--async random:5 --schedule random:5");
  EXPECT_EQ(some[3].arguments(), "--async eager --schedule adversarial");
  EXPECT_ANY_THROW(parse_policies("lat", 1));
  EXPECT_ANY_THROW(parse_policies("late+fare", 1));
}

// ---------------------------------------------------------------- views
constexpr const char* kModule = R"(.version 8.0
.target sm_80
.address_size 64
.file 1 "turn.cu"
.visible .entry turn(.param .u64 x)
{
  .reg .pred %p1;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  .loc 1 2 3
  ld.param.u64 %rd1, [x];
  mov.u32 %r1, %tid.x;
  .loc 1 3 3
  mul.wide.u32 %rd2, %r1, 64;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  .loc 1 4 3
  setp.lt.u32 %p1, %r1, 8;
  @%p1 bra DONE;
  st.global.u32 [%rd3], %r2;
DONE:
  ret;
}
.visible .entry idle() { ret; }
)";

LaunchView launched() {
  emu::Machine machine("sm_80");
  const auto instance = machine.load(emu::Program::load(kModule));
  const auto x = machine.alloc(64 * 64, "x");
  machine.fill(x, 0, 64 * 64);
  emu::Launch l;
  l.entry = "turn";
  l.block = {64, 1, 1};
  l.params = std::as_bytes(std::span(&x, 1));
  emu::Options o;
  o.access_map = true;
  return {"turn", "turn.ptx", std::make_shared<const emu::Result>(machine.launch(instance, l, o))};
}

TEST(Annotate, sums_by_line_of_both_languages) {
  const LaunchView l = launched();
  const Annotation a = annotate({l, l}, {{"turn.ptx", kModule}});
  ASSERT_EQ(a.cpp.size(), 1u);
  ASSERT_EQ(a.ptx.size(), 1u);
  EXPECT_EQ(a.ptx[0].issues, 2 * l.result->counters.warp_instructions);
  EXPECT_EQ(a.cpp[0].issues, a.ptx[0].issues);
  const LineCounters& load = a.cpp[0].lines.at(3);
  EXPECT_EQ(load.instructions, 3u);
  EXPECT_EQ(load.issues, 2u * 2 * 3);
  EXPECT_EQ(load.lanes, load.issues * 32);
  EXPECT_EQ(load.global_requests, 4u);
  EXPECT_EQ(load.global_sectors, 4u * 32);
  const LineCounters& branch = a.cpp[0].lines.at(4);
  EXPECT_EQ(branch.branches, 4u);
  EXPECT_EQ(branch.divergent, 2u);
  EXPECT_EQ(a.ptx[0].lines.count(24), 0u);  // an entry that did not run
  Sources s = sources();
  const std::string text = annotation_text(a, "cpp", s, {false, 100});
  EXPECT_NE(text.find("turn.cu  36 warp instructions, 100.0%"), std::string::npos) << text;
  EXPECT_NE(text.find("32.0 32.0               3 |   tile[threadIdx.x] = in[threadIdx.x];"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" 50%"), std::string::npos) << text;
  Sources none;
  EXPECT_NE(annotation_text(a, "cpp", none, {false, 100}).find("turn.cu cannot be read"), std::string::npos);
  const json j = to_json(a, s);
  EXPECT_EQ(j["cpp"][0]["lines"][1]["global_sectors"], 128);
  EXPECT_EQ(j["cpp"][0]["lines"][1]["text"], "tile[threadIdx.x] = in[threadIdx.x];");
}

TEST(Heatmap, shows_where_memory_was_touched) {
  const LaunchView l = launched();
  const auto maps = access_maps({l, l});
  ASSERT_EQ(maps.size(), 1u);
  EXPECT_EQ(maps[0].cells[0].reads, 2u);
  EXPECT_EQ(maps[0].cells[1].reads, 0u);
  EXPECT_EQ(maps[0].cells[16].writes, 2u);
  const std::string text = heatmap_text(maps, {false, 100});
  EXPECT_NE(text.find("x            4 KiB    50.0%         128         112         0        240"),
            std::string::npos)
      << text;
  const std::string svg = heatmap_svg(maps, "a <b> & c");
  EXPECT_EQ(svg.rfind("<svg xmlns=", 0), 0u);
  EXPECT_NE(svg.find("a &lt;b&gt; &amp; c"), std::string::npos);
  const auto count = [&](const std::string& what) {
    std::size_t n = 0;
    for (auto at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<rect"), count("</rect>") + 1);  // the background closes itself
  EXPECT_EQ(count("<text"), count("</text>"));
  EXPECT_NE(svg.find("<title>bytes 0 to 31: 2 reads</title>"), std::string::npos);
}

// ---------------------------------------------------------------- SARIF
/// The parts of the SARIF 2.1.0 schema that these files use: which properties an object may have and must
/// have, enumerations, smallest numbers, unique rules, indices that fit.
class SarifChecker {
 public:
  std::vector<std::string> check(const json& log) {
    object(log, "log", {"$schema", "version", "runs", "inlineExternalProperties", "properties"},
           {"version", "runs"});
    want(log["version"] == "2.1.0", "version");
    for (const auto& run : log["runs"]) check_run(run);
    return problems_;
  }

 private:
  using Names = std::set<std::string>;
  void want(bool fine, const std::string& what) {
    if (!fine) problems_.push_back(what);
  }
  void object(const json& j, const std::string& what, const Names& allowed, const Names& required) {
    want(j.is_object(), what + " is no object");
    if (!j.is_object()) return;
    for (const auto& [key, value] : j.items())
      want(allowed.count(key) != 0, what + " has no property " + key);
    for (const auto& key : required) want(j.contains(key), what + " needs " + key);
  }
  void text(const json& j, const std::string& what) {
    object(j, what, {"text", "markdown", "id", "arguments", "properties"}, {"text"});
    if (j.contains("text"))
      want(j["text"].is_string() && !j["text"].get<std::string>().empty(), what + " is empty");
  }
  void level(const json& j, const std::string& what) {
    want(Names{"none", "note", "warning", "error"}.count(j.get<std::string>()) != 0, what + ": level");
  }
  void check_run(const json& run) {
    object(run, "run",
           {"tool", "invocations", "artifacts", "logicalLocations", "results", "columnKind",
            "originalUriBaseIds", "automationDetails", "properties", "language", "defaultEncoding"},
           {"tool"});
    object(run["tool"], "tool", {"driver", "extensions", "properties"}, {"driver"});
    const json& driver = run["tool"]["driver"];
    object(driver, "driver",
           {"name", "fullName", "version", "semanticVersion", "informationUri", "organization", "rules",
            "properties"},
           {"name"});
    want(std::regex_match(driver["semanticVersion"].get<std::string>(), std::regex("\\d+\\.\\d+\\.\\d+.*")),
         "semanticVersion");
    Names ids;
    for (const auto& r : driver["rules"]) {
      object(r, "rule",
             {"id", "name", "shortDescription", "fullDescription", "help", "helpUri", "defaultConfiguration",
              "messageStrings", "properties"},
             {"id"});
      want(ids.insert(r["id"].get<std::string>()).second, "rule ids must differ");
      text(r["shortDescription"], "shortDescription");
      text(r["fullDescription"], "fullDescription");
      text(r["help"], "help");
      object(r["defaultConfiguration"], "defaultConfiguration",
             {"enabled", "level", "rank", "parameters", "properties"}, {});
      level(r["defaultConfiguration"]["level"], "rule");
      Names tags;
      for (const auto& tag : r["properties"]["tags"])
        want(tags.insert(tag.get<std::string>()).second, "tags differ");
    }
    for (const auto& i : run["invocations"]) {
      object(i, "invocation",
             {"commandLine", "arguments", "exitCode", "executionSuccessful", "toolExecutionNotifications",
              "properties"},
             {"executionSuccessful"});
      want(i["executionSuccessful"].is_boolean() && i["exitCode"].is_number_integer(), "invocation types");
      if (i.contains("toolExecutionNotifications"))
        for (const auto& n : i["toolExecutionNotifications"]) {
          object(n, "notification", {"message", "level", "locations", "descriptor", "properties"},
                 {"message"});
          text(n["message"], "notification");
          level(n["level"], "notification");
        }
    }
    want(Names{"utf16CodeUnits", "unicodeCodePoints"}.count(run["columnKind"].get<std::string>()) != 0,
         "columnKind");
    std::set<std::string> artifacts;
    for (const auto& a : run["artifacts"]) {
      object(a, "artifact", {"location", "roles", "properties", "sourceLanguage"}, {});
      artifact_location(a["location"]);
      want(artifacts.insert(a["location"]["uri"].get<std::string>()).second, "artifacts must differ");
    }
    for (const auto& r : run["results"]) result(r, driver["rules"]);
  }
  void result(const json& r, const json& rules) {
    object(r, "result",
           {"ruleId", "ruleIndex", "rule", "kind", "level", "message", "locations", "relatedLocations",
            "occurrenceCount", "partialFingerprints", "fingerprints", "properties"},
           {"message"});
    if (r.contains("message")) text(r["message"], "result message");
    level(r["level"], "result");
    if (r.contains("ruleIndex"))
      want(r["ruleIndex"] < rules.size() && rules[r["ruleIndex"].get<std::size_t>()]["id"] == r["ruleId"],
           "ruleIndex");
    if (r.contains("occurrenceCount")) want(r["occurrenceCount"] >= 1, "occurrenceCount");
    for (const auto& [key, value] : r["partialFingerprints"].items())
      want(value.is_string(), "fingerprint " + key);
    if (r.contains("locations"))
      for (const auto& l : r["locations"]) location(l);
    std::set<int> ids;
    if (r.contains("relatedLocations"))
      for (const auto& l : r["relatedLocations"]) {
        location(l);
        want(l["id"].is_number_integer() && l["id"] >= 0 && ids.insert(l["id"].get<int>()).second,
             "related ids");
        text(l["message"], "related message");
      }
  }
  void location(const json& l) {
    object(l, "location",
           {"id", "physicalLocation", "logicalLocations", "message", "annotations", "properties"}, {});
    const json& p = l["physicalLocation"];
    object(p, "physicalLocation", {"address", "artifactLocation", "region", "contextRegion", "properties"},
           {"artifactLocation"});
    artifact_location(p["artifactLocation"]);
    object(p["region"], "region",
           {"startLine", "startColumn", "endLine", "endColumn", "snippet", "message", "properties"}, {});
    want(p["region"]["startLine"] >= 1, "startLine");
    if (p["region"].contains("startColumn")) want(p["region"]["startColumn"] >= 1, "startColumn");
    if (p["region"].contains("snippet"))
      object(p["region"]["snippet"], "snippet", {"text", "binary", "rendered", "properties"}, {});
    if (l.contains("logicalLocations"))
      for (const auto& x : l["logicalLocations"])
        object(x, "logicalLocation",
               {"name", "index", "fullyQualifiedName", "decoratedName", "kind", "properties"}, {});
  }
  void artifact_location(const json& a) {
    object(a, "artifactLocation", {"uri", "uriBaseId", "index", "description", "properties"}, {});
    const std::string uri = a["uri"];
    want(std::regex_match(uri, std::regex("[A-Za-z0-9._~/!$&'()*+,;=:@%-]+")), "not a URI: " + uri);
  }
  std::vector<std::string> problems_;
};

TEST(Sarif, satisfies_the_schema) {
  Sources s = sources();
  LocatedFinding plain = race();
  plain.finding.file.clear();
  plain.finding.other.reset();
  plain.module = "a folder/ümlaut.ptx";
  LocatedFinding nowhere;
  nowhere.finding.cls = "policy.result";
  nowhere.finding.message = "differs";
  LocatedFinding unknown = race();
  unknown.finding.cls = "not.in.the.table";
  const json log =
      sarif({race(), plain, nowhere, unknown}, s, {"1.2.3", {"cgp", "run", "x"}, 1, {"a fault"}});
  for (const auto& problem : SarifChecker().check(log)) ADD_FAILURE() << problem;
  const json& run = log["runs"][0];
  EXPECT_EQ(run["tool"]["driver"]["rules"].size(), emu::finding_classes().size());
  const json& r = run["results"][0];
  EXPECT_EQ(r["ruleId"], "race.shared");
  EXPECT_EQ(r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"], "turn.cu");
  EXPECT_EQ(r["locations"][0]["physicalLocation"]["region"]["startLine"], 4);
  EXPECT_EQ(r["locations"][0]["physicalLocation"]["region"]["startColumn"], 22);
  ASSERT_EQ(r["relatedLocations"].size(), 3u);  // its PTX, the other party's line and PTX
  EXPECT_EQ(r["relatedLocations"][1]["physicalLocation"]["region"]["startLine"], 3);
  EXPECT_EQ(run["results"][1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            "a%20folder/%C3%BCmlaut.ptx");
  EXPECT_FALSE(run["results"][2].contains("locations"));
  EXPECT_EQ(run["invocations"][0]["toolExecutionNotifications"].size(), 1u);
}

TEST(Sarif, the_checker_can_fail) {
  Sources s = sources();
  const json good = sarif({race()}, s, {"1.2.3", {"cgp"}, 1, {}});
  const auto broken = [&](const std::function<void(json&)>& change) {
    json j = good;
    change(j);
    return SarifChecker().check(j).size();
  };
  EXPECT_EQ(broken([](json&) {}), 0u);
  EXPECT_GT(broken([](json& j) { j["version"] = "2.0.0"; }), 0u);
  EXPECT_GT(broken([](json& j) { j["runs"][0]["results"][0].erase("message"); }), 0u);
  EXPECT_GT(broken([](json& j) { j["runs"][0]["results"][0]["ruleIndex"] = 0; }), 0u);
  EXPECT_GT(broken([](json& j) { j["runs"][0]["results"][0]["extra"] = 0; }), 0u);
  EXPECT_GT(broken([](json& j) {
              j["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"]["startLine"] = 0;
            }),
            0u);
}

}  // namespace
}  // namespace cgp::spec
