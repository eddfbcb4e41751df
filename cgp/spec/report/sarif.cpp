// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/report/sarif.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>

#include "cgp/base/text.h"
#include "cgp/emu/finding_class.h"

namespace cgp::spec {
namespace {

using fmt::format;
using nlohmann::ordered_json;

/// "race.same_value" -> "RaceSameValue".
std::string pascal(std::string_view name) {
  std::string out;
  bool start = true;
  for (char c : name) {
    if (c == '.' || c == '_') {
      start = true;
      continue;
    }
    out += start ? char(std::toupper(static_cast<unsigned char>(c))) : c;
    start = false;
  }
  return out;
}

/// A file name as a URI reference: what RFC 3986 does not allow in a path is escaped.
std::string uri(std::string_view path) {
  std::string out = !path.empty() && path[0] == '/' ? "file://" : "";
  for (unsigned char c : path)
    out += std::isalnum(c) || std::string_view("-._~/!$&'()*+,;=@").find(char(c)) != std::string_view::npos
               ? std::string(1, char(c))
               : format("%{:02X}", c);
  return out;
}

ordered_json rule(const emu::FindingClass& c) {
  const std::string full = std::string(c.explanation);
  return {
      {"id", c.name},
      {"name", pascal(c.name)},
      {"shortDescription", {{"text", std::string(c.title) + "."}}},
      {"fullDescription", {{"text", full}}},
      {"help",
       {{"text", format("{} To mend it: {}.", full, c.hint)},
        {"markdown",
         format("{}\n\n```\n{}\n```\n\n**To mend it:** {}.\n\n```\n{}\n```", full, c.bad, c.hint, c.good)}}},
      {"defaultConfiguration", {{"level", emu::name(c.severity)}}},
      {"properties", {{"tags", {"gpu", "correctness", std::string(c.check.empty() ? "policy" : c.check)}}}}};
}

/// `Place` is a Finding or an OtherParty.
template <class Place>
ordered_json cpp_location(const Place& p, Sources& sources) {
  ordered_json region = {{"startLine", p.line}};
  if (p.column > 0) region["startColumn"] = p.column;
  if (const auto line = sources.line(p.file, p.line)) region["snippet"] = {{"text", *line}};
  return {
      {"physicalLocation", {{"artifactLocation", {{"uri", uri(sources.path(p.file))}}}, {"region", region}}}};
}
template <class Place>
ordered_json ptx_location(const Place& p, const std::string& module, Sources& sources) {
  ordered_json region = {{"startLine", p.ptx_line}};
  const auto line = sources.line(module, p.ptx_line);
  region["snippet"] = {{"text", line ? *line : p.instruction}};
  return {{"physicalLocation", {{"artifactLocation", {{"uri", uri(module)}}}, {"region", region}}}};
}

template <class Place>
std::string what(const Place& p) {
  return format("thread {} of block {}{}{}", dim_text(p.thread), dim_text(p.block),
                p.access.empty() ? "" : " ", p.access);
}

void add_related(ordered_json& related, ordered_json location, std::string message) {
  location["id"] = related.size() + 1;
  location["message"] = {{"text", std::move(message)}};
  related.push_back(std::move(location));
}

ordered_json result(const LocatedFinding& f, Sources& sources) {
  const emu::Finding& x = f.finding;
  const auto classes = emu::finding_classes();
  ordered_json j = {{"ruleId", x.cls}};
  if (const auto* c = emu::find_class(x.cls)) j["ruleIndex"] = c - classes.data();
  j["level"] = emu::name(x.severity);
  const auto* cls = emu::find_class(x.cls);
  const std::string hint = !x.hint.empty() ? x.hint : cls ? std::string(cls->hint) : "";
  std::string message = x.message;
  if (!x.missing_edge.empty()) message += "\nMissing: " + x.missing_edge;
  if (!hint.empty()) message += "\nHint: " + hint;
  j["message"] = {{"text", message}};
  const bool cpp = !x.file.empty() && x.line > 0, ptx = x.ptx_line > 0 && !f.module.empty();
  ordered_json related = ordered_json::array();
  if (cpp || ptx) {
    ordered_json location = cpp ? cpp_location(x, sources) : ptx_location(x, f.module, sources);
    if (!f.kernel.empty())
      location["logicalLocations"] = {
          {{"name", f.kernel}, {"fullyQualifiedName", f.kernel}, {"kind", "function"}}};
    j["locations"] = ordered_json::array({location});
    if (cpp && ptx)
      add_related(related, ptx_location(x, f.module, sources), "the PTX instruction: " + what(x));
  }
  if (x.other) {
    if (!x.other->file.empty() && x.other->line > 0)
      add_related(related, cpp_location(*x.other, sources), "the other party: " + what(*x.other));
    if (x.other->ptx_line > 0 && !f.module.empty())
      add_related(related, ptx_location(*x.other, f.module, sources),
                  "the other party's PTX instruction: " + what(*x.other));
  }
  if (!related.empty()) j["relatedLocations"] = std::move(related);
  j["occurrenceCount"] = std::max<std::uint64_t>(x.count, 1);
  // The same defect in the next build: what and where, but no line, which moves.
  j["partialFingerprints"] = {
      {"cgpFinding/v1", format("{}|{}|{}|{}", x.cls, f.kernel, x.instruction, x.buffer)}};
  j["properties"] = {{"block", {x.block.x, x.block.y, x.block.z}},
                     {"thread", {x.thread.x, x.thread.y, x.thread.z}},
                     {"address", text::hex(x.address)},
                     {"buffer", x.buffer},
                     {"byteOffset", x.byte_offset}};
  if (!f.policies.empty()) j["properties"]["policies"] = f.policies;
  return j;
}

}  // namespace

ordered_json sarif(const std::vector<LocatedFinding>& findings, Sources& sources, const SarifRun& run) {
  ordered_json rules = ordered_json::array();
  for (const auto& c : emu::finding_classes()) rules.push_back(rule(c));
  ordered_json results = ordered_json::array();
  std::set<std::string> files;
  for (const auto& f : findings) {
    results.push_back(result(f, sources));
    if (!f.module.empty()) files.insert(uri(f.module));
    if (!f.finding.file.empty()) files.insert(uri(sources.path(f.finding.file)));
  }
  ordered_json artifacts = ordered_json::array();
  for (const auto& file : files) artifacts.push_back({{"location", {{"uri", file}}}});
  ordered_json invocation = {
      {"executionSuccessful", true},
      {"exitCode", run.exit_code},
      {"commandLine", text::join(run.command_line, " ")},
      {"arguments", std::vector<std::string>(run.command_line.begin() + (run.command_line.empty() ? 0 : 1),
                                             run.command_line.end())}};
  ordered_json notifications = ordered_json::array();
  for (const auto& f : run.failures)
    notifications.push_back({{"level", "error"}, {"message", {{"text", f}}}});
  if (!notifications.empty()) invocation["toolExecutionNotifications"] = std::move(notifications);
  return {{"$schema", "https://json.schemastore.org/sarif-2.1.0.json"},
          {"version", "2.1.0"},
          {"runs", ordered_json::array({{{"tool",
                                          {{"driver",
                                            {{"name", "cgp"},
                                             {"fullName", "cgp, the PTX emulator's checks"},
                                             {"semanticVersion", run.version},
                                             {"rules", std::move(rules)}}}}},
                                         {"invocations", ordered_json::array({std::move(invocation)})},
                                         {"artifacts", std::move(artifacts)},
                                         {"columnKind", "unicodeCodePoints"},
                                         {"results", std::move(results)}}})}};
}

}  // namespace cgp::spec
