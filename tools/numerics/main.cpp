// SPDX-License-Identifier: Apache-2.0
// cgp_numerics: the corpus of instruction forms on the emulator, on a GPU, or against a fixture that a GPU
// made. Prints one line per form that differs and a summary; exits with 1 when an exact form differs or an
// approximate one exceeds its documented error.
#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>

#include "cgp/base/text.h"
#include "cgp/emu/emu.h"
#include "compare.h"

namespace cgp::numerics {
namespace {

using text::cat;

struct Settings {
  std::string expected = "cuda:0", got = "emu:sm_90a", family, only, json, fixture, write_fixture, keep, kept,
              dump, known;
  std::size_t per_module = 48;
  bool quiet = false;
};

struct Totals {
  std::uint64_t forms = 0, values = 0, exact = 0, differing = 0, approximate = 0, beyond = 0, failed = 0,
                known = 0;
};

runtime::Device open(const std::string& name) {
  auto d = runtime::Device::open(name);
  if (d.is_emulator()) {
    emu::Options o = d.emulator_options();
    o.checks = emu::CheckSet::none();
    o.counters = false;
    d.set_emulator_options(o);
    d.set_findings(runtime::Device::Findings::collect);
  }
  return d;
}

struct Report {
  const Settings& s;
  Totals totals;
  nlohmann::json forms = nlohmann::json::array();
  std::map<std::string, std::string> lines;  // of the fixture to write
  std::ofstream kept;
  std::map<ptx::Op, int> kept_forms{};

  std::vector<std::pair<std::regex, std::string>> known{};

  // Forms that --known lists are reported apart and are no failure.
  bool expected(const Case& c) {
    for (const auto& [expression, why] : known)
      if (std::regex_search(c.key, expression)) {
        ++totals.known;
        forms.push_back({{"form", c.key}, {"family", c.family}, {"known", why}});
        return true;
      }
    return false;
  }
  void failed(const Case& c, const std::string& who, const std::string& why) {
    ++totals.failed;
    std::cout << "FAILED  " << c.key << " on " << who << ": " << why.substr(0, 600) << "\n";
    forms.push_back({{"form", c.key}, {"family", c.family}, {"failed_on", who}, {"why", why}});
  }
  void compared(const Case& c, const Answer& want, const Answer& have) {
    const Comparison r = compare(c, want, have);
    ++totals.forms;
    totals.values += r.values;
    ++(c.approximate ? totals.approximate : totals.exact);
    nlohmann::json j{{"form", c.key}, {"family", c.family}, {"values", r.values}, {"different", r.different}};
    if (c.approximate) {
      j["ulps_0_1_2_4_16_more"] = r.ulps;
      j["worst_share_of_bound"] = r.worst;
      if (!s.quiet) {
        std::cout << "approx  " << c.key << ": " << r.values << " values, 0/1/2/4/16/more ulps";
        for (auto u : r.ulps) std::cout << " " << u;
        std::cout << ", worst " << r.worst << " of the bound\n";
      }
    }
    if (r.different && expected(c)) {
      keep(c, want);
    } else if (r.different) {
      ++(c.approximate ? totals.beyond : totals.differing);
      std::cout << "DIFFERS " << c.key << ": " << r.different << " of " << r.values << "\n";
      for (const Difference& d : r.first) {
        const std::string in = inputs_of(c, d.thread);
        j["first"].push_back({{"thread", d.thread},
                              {"output", d.output},
                              {"element", d.element},
                              {"inputs", in},
                              {"expected", text::hex(d.expected)},
                              {"got", text::hex(d.got)}});
        if (&d - r.first.data() < 4)
          std::cout << "    thread " << d.thread << " output " << d.output << "[" << d.element << "] of "
                    << in << ": expected " << text::hex(d.expected) << ", got " << text::hex(d.got) << "\n";
      }
      keep(c, want);
    }
    forms.push_back(std::move(j));
  }
  // Answers of differing forms, whole, to study without the device: a line of text, then little-endian words.
  void keep(const Case& c, const Answer& a) {
    if (!kept.is_open() || kept_forms[c.op]++ >= 32) return;
    std::uint64_t words = 0;
    for (const auto& o : a.outputs) words += o.size();
    kept << c.key << "\t" << words << "\n";
    for (const auto& o : a.outputs)
      kept.write(reinterpret_cast<const char*>(o.data()), std::streamsize(o.size() * 4));
  }
};

void check_fixture(const Settings& s, const Corpus& corpus, Report& report) {
  const auto lines = read_fixture(s.fixture);
  const auto device = open(s.got);
  for (const auto& group : groups(corpus, s.per_module)) {
    std::vector<const Case*> known;
    for (const Case* c : group)
      if (lines.count(c->key)) known.push_back(c);
    if (known.empty()) continue;
    const auto answers = run(device, known);
    for (std::size_t k = 0; k < known.size(); ++k) {
      const Case& c = *known[k];
      if (!answers[k].error.empty()) {
        if (!report.expected(c)) report.failed(c, s.got, answers[k].error);
        continue;
      }
      ++report.totals.forms;
      ++(c.approximate ? report.totals.approximate : report.totals.exact);
      const std::string why = disagrees(c, lines.at(c.key), answers[k]);
      if (why.empty() || report.expected(c)) continue;
      ++(c.approximate ? report.totals.beyond : report.totals.differing);
      std::cout << "DIFFERS " << c.key << ": " << why << "\n";
      report.forms.push_back({{"form", c.key}, {"family", c.family}, {"why", why}});
    }
  }
  std::size_t missing = 0;
  for (const Case& c : corpus.cases) missing += !lines.count(c.key);
  if (missing) std::cout << missing << " forms of the corpus are not in the fixture\n";
}

void compare_devices(const Settings& s, const Corpus& corpus, Report& report) {
  const auto expected = open(s.expected);
  const bool alone = s.expected == s.got;
  const auto got = alone ? expected : open(s.got);
  for (const auto& group : groups(corpus, s.per_module)) {
    const auto want = run(expected, group);
    const auto have = alone ? want : run(got, group);
    for (std::size_t k = 0; k < group.size(); ++k) {
      const Case& c = *group[k];
      if (!want[k].error.empty()) {
        report.failed(c, s.expected, want[k].error);
        continue;
      }
      report.lines[c.key] = fixture_line(c, want[k]);
      if (!have[k].error.empty()) {
        if (!report.expected(c)) report.failed(c, s.got, have[k].error);
        report.keep(c, want[k]);
      } else
        report.compared(c, want[k], have[k]);
    }
  }
}

// Answers that --keep wrote, as the expected ones.
void compare_kept(const Settings& s, const Corpus& corpus, Report& report) {
  std::ifstream f(s.kept, std::ios::binary);
  if (!f) throw Error(cat("cannot read ", s.kept));
  std::map<std::string, const Case*> by_key;
  for (const Case& c : corpus.cases) by_key[c.key] = &c;
  const auto device = open(s.got);
  for (std::string line; std::getline(f, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == line.npos) throw Error(cat(s.kept, " is no file of --keep"));
    std::vector<std::uint32_t> words(std::stoull(line.substr(tab + 1)));
    f.read(reinterpret_cast<char*>(words.data()), std::streamsize(words.size() * 4));
    const auto it = by_key.find(line.substr(0, tab));
    if (it == by_key.end()) continue;
    const Case* c = it->second;
    Answer want;
    std::size_t at = 0;
    for (const Output& o : c->outputs) {
      const std::size_t n = std::size_t(c->cases) * cell_bytes(o.bits, o.count) / 4;
      if (at + n > words.size()) throw Error(cat(s.kept, ": ", c->key, " was made by another corpus"));
      want.outputs.emplace_back(words.begin() + std::ptrdiff_t(at), words.begin() + std::ptrdiff_t(at + n));
      at += n;
    }
    const auto have = run(device, std::span(&c, 1));
    if (have[0].error.empty())
      report.compared(*c, want, have[0]);
    else
      report.failed(*c, s.got, have[0].error);
  }
}

void dump(const Settings& s, const Corpus& corpus) {
  std::filesystem::create_directories(s.dump);
  int n = 0;
  for (const auto& group : groups(corpus, s.per_module))
    std::ofstream(cat(s.dump, "/", group[0]->family, "_", n++, ".ptx")) << build_module(group).ptx;
}

int execute(const Settings& s) {
  const auto start = std::chrono::steady_clock::now();
  Corpus corpus = build_corpus(s.family);
  if (!s.only.empty()) {
    const std::regex wanted(s.only);
    std::erase_if(corpus.cases, [&](const Case& c) { return !std::regex_search(c.key, wanted); });
  }
  if (!s.dump.empty()) {
    dump(s, corpus);
    return 0;
  }
  Report report{s, {}, nlohmann::json::array(), {}, {}, {}};
  if (!s.known.empty()) {
    std::ifstream f(s.known);
    if (!f) throw Error(cat("cannot read ", s.known));
    for (std::string line; std::getline(f, line);) {
      const std::size_t tab = line.find('\t');
      if (!line.empty() && line[0] != '#' && tab != line.npos)
        report.known.emplace_back(std::regex(line.substr(0, tab)), line.substr(tab + 1));
    }
  }
  if (!s.keep.empty()) report.kept.open(s.keep, std::ios::binary);
  if (!s.kept.empty())
    compare_kept(s, corpus, report);
  else if (!s.fixture.empty())
    check_fixture(s, corpus, report);
  else
    compare_devices(s, corpus, report);
  if (!s.write_fixture.empty()) {
    std::ofstream f(s.write_fixture);
    f << "# Answers of " << open(s.expected).info().name
      << " to the corpus of cgp_numerics: form, hash of all results\n"
      << "# (or, after ~, every so many-th result of an approximate form).\n";
    for (const auto& [key, line] : report.lines) f << key << "\t" << line << "\n";
  }
  const Totals& t = report.totals;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::cout << t.forms << " forms, " << t.values << " values, " << int(seconds * 10) / 10.0 << " s: of "
            << t.exact << " exact forms " << t.differing << " differ; of " << t.approximate
            << " approximate forms " << t.beyond << " exceed their documented error; " << t.known
            << " differ as is known; " << t.failed << " did not run; " << corpus.not_measured.size()
            << " forms of other architectures not measured\n";
  if (!s.json.empty()) {
    nlohmann::json j{{"forms", report.forms},
                     {"not_measured", corpus.not_measured},
                     {"seconds", seconds},
                     {"expected", s.fixture.empty() ? s.expected : s.fixture},
                     {"got", s.got},
                     {"totals",
                      {{"forms", t.forms},
                       {"values", t.values},
                       {"exact", t.exact},
                       {"exact_differing", t.differing},
                       {"approximate", t.approximate},
                       {"approximate_beyond_bound", t.beyond},
                       {"known", t.known},
                       {"failed", t.failed}}}};
    std::ofstream(s.json) << j.dump(1) << "\n";
  }
  return t.differing || t.beyond || t.failed ? 1 : 0;
}

}  // namespace
}  // namespace cgp::numerics

int main(int argc, char** argv) {
  cgp::numerics::Settings s;
  CLI::App app{
      "Runs a corpus of PTX instruction forms on two devices, or on one against a fixture, and compares"};
  app.add_option("--expected", s.expected, "device whose answers count");
  app.add_option("--got", s.got, "device that is judged");
  app.add_option("--family", s.family, "scalar, warp, atomic, matrix or wgmma; all when left out")
      ->check(CLI::IsMember(cgp::numerics::family_names()));
  app.add_option("--only", s.only, "forms whose text matches this expression");
  app.add_option("--json", s.json, "write all results to this file");
  app.add_option("--fixture", s.fixture, "judge against this file instead of a device");
  app.add_option("--write-fixture", s.write_fixture, "write the expected answers to this file");
  app.add_option("--keep", s.keep, "write the expected answers of differing forms, whole, to this file");
  app.add_option("--known", s.known, "forms that may differ: a file of expressions, tabs and reasons");
  app.add_option("--kept", s.kept, "judge against a file of --keep");
  app.add_option("--dump", s.dump, "only write the PTX modules to this folder");
  app.add_option("--per-module", s.per_module, "forms in one module");
  app.add_flag("--quiet", s.quiet, "no line for approximate forms within their error");
  CLI11_PARSE(app, argc, argv);
  try {
    return cgp::numerics::execute(s);
  } catch (const std::exception& e) {
    std::cerr << "cgp_numerics: " << e.what() << "\n";
    return 2;
  }
}
