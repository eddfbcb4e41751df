// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/contract/contract.h"

#include <fmt/core.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/markup.h"
#include "cgp/base/text.h"
#include "cgp/profile/contract/expression.h"
#include "cgp/profile/timeline/timeline_export.h"
#include "cgp/profile/view/table.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::profile {
namespace {

using fmt::format;
using measure::Metric;
using text::cat;

[[noreturn]] void fail(const std::string& file, const YAML::Mark& at, const std::string& rule,
                       const std::string& why = {}, const std::string& hint = {}) {
  throw ParseError(ErrorText{rule, format("{}:{}:{}", file, at.line + 1, at.column + 1), why, hint});
}

std::string text_of(const YAML::Node& n, const std::string& file, const std::string& what) {
  if (!n.IsScalar()) fail(file, n.Mark(), cat(what, " is one text"));
  return n.Scalar();
}

std::vector<std::string> texts_of(const YAML::Node& n, const std::string& file, const std::string& what) {
  std::vector<std::string> out;
  if (n.IsScalar()) return {n.Scalar()};
  if (!n.IsSequence()) fail(file, n.Mark(), cat(what, " is a list of texts"));
  for (const auto& item : n) out.push_back(text_of(item, file, what));
  return out;
}

double number_of(const YAML::Node& n, const std::string& file, const std::string& what) {
  try {
    if (const auto v = n.as<double>(); std::isfinite(v)) return v;
    fail(file, n.Mark(), cat(what, " is a finite number"), cat("\"", n.Scalar(), "\""));
  } catch (const YAML::Exception&) {
    fail(file, n.Mark(), cat(what, " is a number"), n.IsScalar() ? cat("\"", n.Scalar(), "\"") : "");
  }
}

bool is_counter(const std::string& name) {
  return name.find("__") != std::string::npos || name.rfind("counter.", 0) == 0;
}

Promise promise(const std::string& name, const std::string& check, const YAML::Node& at,
                const std::string& file) {
  try {
    const Expression e(check);
    for (const auto& n : e.names())
      if (!is_counter(n)) measure::metric_named(n);
  } catch (const ParseError& error) {
    fail(file, at.Mark(), error.rule(), error.where(), error.hint());
  } catch (const ArgumentError& error) {
    fail(file, at.Mark(), error.rule(), error.why(), error.hint());
  }
  return {name, check, at.Mark().line + 1};
}

void read_metrics(const YAML::Node& all, Contract& c) {
  if (!all.IsMap()) fail(c.file, all.Mark(), "metrics maps names to {min: ..., max: ...}");
  for (const auto& item : all) {
    const std::string metric = item.first.Scalar();
    if (!item.second.IsMap())
      fail(c.file, item.second.Mark(), cat("the limits of ", metric, " are {min: ..., max: ...}"));
    for (const auto& limit : item.second) {
      const std::string kind = limit.first.Scalar();
      if (kind != "min" && kind != "max" && kind != "equals")
        fail(c.file, limit.first.Mark(), "a limit is min, max or equals", cat("\"", kind, "\""));
      const std::string op = kind == "min" ? ">=" : kind == "max" ? "<=" : "==";
      const std::string check = format("{} {} {}", metric, op, number_of(limit.second, c.file, metric));
      c.promises.push_back(promise(check, check, item.first, c.file));
    }
  }
}

void read_bounds(const YAML::Node& n, Contract& c) {
  if (n.IsSequence()) {
    for (const auto& one : n) read_bounds(one, c);
    return;
  }
  if (!n.IsMap()) fail(c.file, n.Mark(), "bounds is a map, or a list of maps");
  struct Bound {
    const char *key, *metric, *op;
  };
  constexpr Bound bounds[] = {{"max_time_us", "wall_clock_time_us", "<="},
                              {"min_tflops", "tflops", ">="},
                              {"min_bandwidth_gbps", "bandwidth_gbps", ">="},
                              {"max_regression_pct", "regression_pct", "<="}};
  const YAML::Node given = n["size"];
  const std::string size = !given               ? ""
                           : given.IsSequence() ? text::join(texts_of(given, c.file, "size"), "x")
                                                : text_of(given, c.file, "size");
  for (const auto& item : n) {
    const std::string key = item.first.Scalar();
    if (key == "size") continue;
    const auto at =
        std::find_if(std::begin(bounds), std::end(bounds), [&](const Bound& b) { return key == b.key; });
    if (at == std::end(bounds)) {
      c.warnings.push_back(format("{}:{}: unknown bound \"{}\"", c.file, item.first.Mark().line + 1, key));
      continue;
    }
    const std::string check = format("{} {} {}", at->metric, at->op, number_of(item.second, c.file, key));
    c.promises.push_back(promise(check, check, item.first, c.file));
    c.promises.back().size = size;
  }
}

void read_checks(const YAML::Node& all, Contract& c) {
  if (!all.IsSequence()) fail(c.file, all.Mark(), "checks is a list of {name: ..., check: ...}");
  for (const auto& one : all) {
    if (!one.IsMap() || !one["check"]) fail(c.file, one.Mark(), "each check has a name and a check");
    const std::string check = text_of(one["check"], c.file, "check");
    c.promises.push_back(
        promise(one["name"] ? text_of(one["name"], c.file, "name") : check, check, one["check"], c.file));
  }
}

void read_hardware(const YAML::Node& n, Contract& c) {
  if (!n.IsMap()) fail(c.file, n.Mark(), "hardware is a map of gpu, cpu, arch");
  for (const auto& item : n) {
    const std::string key = item.first.Scalar();
    if (key == "gpu")
      c.gpu = text_of(item.second, c.file, key);
    else if (key == "cpu")
      c.cpu = text_of(item.second, c.file, key);
    else if (key == "arch" || key == "compute_capability")
      c.arch = text_of(item.second, c.file, key);
    else
      c.warnings.push_back(format("{}:{}: unknown key \"{}\"", c.file, item.first.Mark().line + 1, key));
  }
}

Known lookup(const Document& d, const std::string& name) {
  if (is_counter(name)) {
    const std::string counter = name.rfind("counter.", 0) == 0 ? name.substr(8) : name;
    double sum = 0;
    bool any = false;
    for (const auto& k : d.kernels)
      if (const auto at = k.counters.find(counter); at != k.counters.end()) sum += at->second, any = true;
    return any ? Known{sum, {}} : Known{std::monostate{}, cat("no kernel has the counter ", counter)};
  }
  const auto& info = measure::metric_named(name);
  const measure::Reading& r = d.metrics[info.id];
  if (!r.present()) return {std::monostate{}, cat(name, " is absent: ", r.why_absent)};
  if (const auto* s = std::get_if<std::string>(&*r.held)) return {*s, {}};
  if (const auto* b = std::get_if<bool>(&*r.held)) return {*b, {}};
  if (const auto* v = std::get_if<double>(&*r.held)) return {*v, {}};
  return {std::monostate{}, cat(name, " is no single number")};
}

/// m, n and k, rows and cols, or n: "4096x1024"; empty: there are none.
std::string extents_of(const std::map<std::string, std::string>& settings) {
  for (const auto& names : {std::vector<std::string>{"m", "n", "k"}, {"rows", "cols"}, {"n"}}) {
    std::vector<std::string> extents;
    for (const auto& n : names)
      if (settings.count(n)) extents.push_back(settings.at(n));
    if (extents.size() == names.size()) return text::join(extents, "x");
  }
  return {};
}

/// The problem's size of a profile; empty: it does not say.
std::string size_of(const Document& d) {
  std::map<std::string, std::string> settings;
  if (d.more.contains("settings")) {  // with the defaults
    for (const auto& [name, value] : d.more["settings"].items()) settings[name] = value.get<std::string>();
    return extents_of(settings);
  }
  for (const auto& s : d.command)
    if (const auto at = s.find('='); at != s.npos) settings[s.substr(0, at)] = s.substr(at + 1);
  return extents_of(settings);
}

/// Why a promise is about another problem; empty: it is about this one.
std::string other_size(const Promise& p, const Document& d) {
  if (p.size.empty()) return {};
  const std::string size = size_of(d);
  if (size.empty()) return cat("it is about size ", p.size, ", and the profile does not say its size");
  const auto extents = text::split(size, 'x');
  const bool cube = std::all_of(extents.begin(), extents.end(), [&](auto e) { return e == p.size; });
  return cube || size == p.size ? "" : cat("it is about size ", p.size, ", this is ", size);
}

std::string shown(const Known& k) {
  if (const auto* v = std::get_if<double>(&k.value)) return number_text(*v);
  if (const auto* b = std::get_if<bool>(&k.value)) return *b ? "true" : "false";
  return std::holds_alternative<std::string>(k.value) ? std::get<std::string>(k.value) : "unknown";
}

}  // namespace

std::string_view name(Outcome o) {
  return o == Outcome::pass ? "PASS" : o == Outcome::fail ? "FAIL" : "SKIP";
}

Contract parse_contract(const std::string& yaml, const std::string& file) {
  Contract c;
  c.file = file;
  YAML::Node root;
  try {
    root = YAML::Load(yaml);
  } catch (const YAML::ParserException& e) {
    fail(file, e.mark, "the file must be YAML", e.msg);
  }
  if (!root.IsMap())
    fail(file, root.IsDefined() && !root.IsNull() ? root.Mark() : YAML::Mark{},
         "a contract is a map of name, kernel, metrics, checks, ...");
  for (const auto& item : root) {
    const std::string key = item.first.Scalar();
    const YAML::Node& v = item.second;
    if (key == "name")
      c.name = text_of(v, file, key);
    else if (key == "description")
      c.description = text_of(v, file, key);
    else if (key == "kernel")
      c.kernel = text_of(v, file, key);
    else if (key == "command")
      c.command = texts_of(v, file, key);
    else if (key == "settings")
      c.settings = texts_of(v, file, key);
    else if (key == "device")
      c.device = text_of(v, file, key);
    else if (key == "hardware")
      read_hardware(v, c);
    else if (key == "metrics")
      read_metrics(v, c);
    else if (key == "bounds")
      read_bounds(v, c);
    else if (key == "checks" || key == "falsification")
      read_checks(v, c);
    else if (key != "kind" && key != "version")
      c.warnings.push_back(format("{}:{}: unknown key \"{}\"", file, item.first.Mark().line + 1, key));
  }
  if (c.name.empty()) fail(file, root.Mark(), "a contract has a name");
  if (c.promises.empty())
    fail(file, root.Mark(), "a contract promises something", "it has no metrics, bounds or checks");
  if (!c.kernel.empty() && !c.command.empty())
    fail(file, root.Mark(), "a contract is about a kernel or about a command", "it names both");
  return c;
}

std::string other_hardware(const Contract& c, const Document& d) {
  std::string device, arch;
  if (d.machine.contains("device")) {
    device = d.machine["device"].value("name", "");
    arch = d.machine["device"].value("arch", "");
  }
  const std::string cpu = d.machine.value("cpu", "");
  if (!c.gpu.empty() && device.find(c.gpu) == std::string::npos)
    return format("it is about the GPU {}, this is {}", c.gpu,
                  device.empty() ? "a machine without one" : device);
  if (!c.arch.empty() && arch.find(c.arch) == std::string::npos)
    return format("it is about {}, this is {}", c.arch, arch);
  if (!c.cpu.empty() && cpu.find(c.cpu) == std::string::npos)
    return format("it is about the processor {}, this is {}", c.cpu, cpu);
  return {};
}

std::vector<Checked> skip_all(const Contract& c, const std::string& why) {
  std::vector<Checked> out;
  for (const auto& p : c.promises) out.push_back({p, Outcome::skip, why});
  return out;
}

std::string other_subject(const Contract& c, const Document& d) {
  if (c.kernel.empty() || d.machine.contains("imported")) return {};  // that one is called as its file is
  auto promised = c.settings, measured = d.command;
  if (d.name != c.kernel) return format("it is about the kernel {}, this is {}", c.kernel, d.name);
  std::sort(promised.begin(), promised.end()), std::sort(measured.begin(), measured.end());
  if (promised.empty() || promised == measured) return {};
  return format("it is about {} {}, this is {} {}", c.kernel, text::join(promised, " "), d.name,
                text::join(measured, " "));
}

std::vector<Checked> check(const Contract& c, const Document& d) {
  for (const auto& why : {other_hardware(c, d), other_subject(c, d)})
    if (!why.empty()) return skip_all(c, why);
  std::vector<Checked> out;
  for (const auto& p : c.promises) {
    Checked one{p, Outcome::skip, other_size(p, d)};
    if (!one.why.empty()) {
      out.push_back(std::move(one));
      continue;
    }
    const Expression e(p.check);
    const Known k = e.evaluate([&](const std::string& n) -> std::optional<Known> { return lookup(d, n); });
    if (!k.known()) {
      one.why = k.why;
    } else if (const bool* holds = std::get_if<bool>(&k.value)) {
      one.outcome = *holds ? Outcome::pass : Outcome::fail;
      for (const auto& n : e.names())
        one.why += format("{}{} is {}", one.why.empty() ? "" : ", ", n, shown(lookup(d, n)));
    } else {
      one.outcome = Outcome::fail;
      one.why = "the check is no comparison";
    }
    out.push_back(std::move(one));
  }
  return out;
}

std::string generate_contract(const Document& d, const std::string& wanted, double tolerance) {
  std::string limits;
  for (const auto& info : measure::metrics()) {
    const bool number = info.type == measure::MetricType::real || info.type == measure::MetricType::count;
    const auto& r = d.metrics[info.id];
    if (!number || info.better == measure::Better::none || !r.present()) continue;
    const bool stable = r.source == measure::Source::counted || info.category == measure::Category::timing ||
                        info.category == measure::Category::throughput;
    if (!stable || info.id == Metric::stddev_us || info.category == measure::Category::vram ||
        info.category == measure::Category::numa || info.category == measure::Category::disk ||
        info.category == measure::Category::swap || info.id == Metric::page_faults_major)
      continue;
    const bool exact = r.source == measure::Source::counted && d.machine.contains("device") &&
                       d.machine["device"].value("spec", "").rfind("emu", 0) == 0;
    const double v = r.number(), room = exact ? 0 : tolerance;
    if (info.better == measure::Better::lower)
      limits += format("  {}: {{max: {:.6g}}}  # {} {}\n", info.name, v * (1 + room), measure::name(r.source),
                       number_text(v));
    else
      limits += format("  {}: {{min: {:.6g}}}  # {} {}\n", info.name, std::floor(v * (1 - room) * 1e4) / 1e4,
                       measure::name(r.source), number_text(v));
  }
  if (limits.empty())
    throw Unsupported(
        ErrorText{"a contract holds measured or counted numbers, and this profile has none", {}, d.name, {}});
  std::string out = format("# From a profile of {} ({}).\nkind: cgp-contract\nversion: 1\nname: {}\n", d.time,
                           d.machine_key, wanted);
  const auto quoted = [](const std::vector<std::string>& all) {
    std::vector<std::string> out;
    for (const auto& s : all) out.push_back(spec::dumped(nlohmann::json(s)));
    return "[" + text::join(out, ", ") + "]";
  };
  if (d.machine.contains("imported")) {
    out += "# verify it with --profile: what was recorded elsewhere is not measured again here\n";
    if (d.machine.contains("device"))
      out += format("hardware: {{gpu: {}}}\n",
                    spec::dumped(nlohmann::json(d.machine["device"].value("name", ""))));
  } else if (d.kind == "kernel" || d.machine.contains("device")) {
    out += format("kernel: {}\n", d.name);
    if (!d.command.empty()) out += format("settings: {}\n", quoted(d.command));
    const std::string spec = d.machine["device"].value("spec", "");
    const bool emulated = spec.rfind("emu", 0) == 0;
    out += format("device: {}\n", emulated ? spec : "cuda");
    if (!emulated)
      out += format("hardware: {{gpu: {}}}\n",
                    spec::dumped(nlohmann::json(d.machine["device"].value("name", ""))));
  } else if (!d.command.empty()) {
    out += format("command: {}\n", quoted(d.command));
  }
  return out + "metrics:\n" + limits;
}

std::string junit_xml(const std::vector<ContractResult>& all) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n";
  for (const auto& r : all) {
    int failures = 0, skipped = 0;
    for (const auto& c : r.checks)
      failures += c.outcome == Outcome::fail, skipped += c.outcome == Outcome::skip;
    out += format("  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
                  text::escape_markup(r.contract.name), r.checks.size(), failures, skipped);
    for (const auto& c : r.checks) {
      out += format("    <testcase classname=\"{}\" name=\"{}\">", text::escape_markup(r.contract.name),
                    text::escape_markup(c.promise.name));
      if (c.outcome == Outcome::fail)
        out += format("<failure message=\"{}\">{}:{}</failure>", text::escape_markup(c.why),
                      text::escape_markup(r.contract.file), c.promise.line);
      if (c.outcome == Outcome::skip) out += format("<skipped message=\"{}\"/>", text::escape_markup(c.why));
      out += "</testcase>\n";
    }
    out += "  </testsuite>\n";
  }
  return out + "</testsuites>\n";
}

std::string github_lines(const std::vector<ContractResult>& all) {
  std::string out;
  // a line is one annotation
  const auto escaped = [](const std::string& s) {
    std::string one;
    for (char c : s) c == '%' ? one += "%25" : c == '\n' ? one += "%0A" : c == '\r' ? one += "%0D" : one += c;
    return one;
  };
  for (const auto& r : all)
    for (const auto& c : r.checks) {
      if (c.outcome == Outcome::pass) continue;
      out += format("::{} file={},line={},title={}::{}: {}\n",
                    c.outcome == Outcome::fail ? "error" : "warning", r.contract.file, c.promise.line,
                    escaped(r.contract.name), escaped(c.promise.name), escaped(c.why));
    }
  return out;
}

}  // namespace cgp::profile
