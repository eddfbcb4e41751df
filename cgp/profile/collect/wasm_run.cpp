// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/wasm_run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/wasm_module.h"
#include "cgp/profile/measure/process.h"

namespace cgp::profile {
namespace {

namespace fs = std::filesystem;
using fmt::format;
using measure::Metric;
using measure::Source;
using text::cat;

/// node FILE JSON: what it measures as JSON. Calls shorter than a millisecond are timed together.
constexpr const char* kScript = R"(
const fs = require('fs'), o = JSON.parse(process.argv[2]);
const read = f => new WebAssembly.Module(fs.readFileSync(f));
const instance = m => {
  if (!o.wasi) return [new WebAssembly.Instance(m, {})];
  const {WASI} = require('wasi'), w = new WASI({version: 'preview1', args: ['wasm'], env: {}, stdout: 2});
  return [new WebAssembly.Instance(m, w.getImportObject()), w];
};
const start = o.name === '_start';
const arguments_ = o.args.map((a, i) => o.types[i] === 'i64' ? BigInt(a) : Number(a));
const begun = m => {
  const [i, w] = instance(m);
  if (w && !start && w.initialize && i.exports._initialize) w.initialize(i);
  return [i, start && w ? () => w.start(i) : () => i.exports[o.name](...arguments_)];
};
const [counted, count] = begun(read(o.counted));
const before = o.counters.map(c => counted.exports[c].value);
const result = count();
const out = {engine: 'V8 ' + process.versions.v8 + ' (node ' + process.versions.node + ')', us: [],
             counts: o.counters.map((c, k) => Number(counted.exports[c].value - before[k])), result: String(result)};
const m = read(o.file), ns = () => process.hrtime.bigint();
let [, call] = begun(m), many = 1;
const sample = () => {
  let spent = 0n;
  for (let k = 0; k < many; ++k) {
    if (start) [, call] = begun(m);
    const a = ns(); call(); spent += ns() - a;
  }
  return Number(spent) / many / 1000;
};
const end = ns() + BigInt(Math.round(o.seconds * 1e9)), warm = ns() + BigInt(Math.round(o.seconds * 3e8));
let last = sample();
while (ns() < warm) last = sample();
if (!start) many = Math.max(1, Math.min(100000, Math.ceil(1000 / Math.max(last, 0.01))));
do out.us.push(sample()); while (ns() < end && out.us.length < 1000);
out.calls = many;
process.stdout.write('\n' + JSON.stringify(out));
)";

/// At the end, whatever happens.
struct Removed {
  std::string folder;
  ~Removed() {
    std::error_code ec;
    fs::remove_all(folder, ec);
  }
};

std::string node() {
  if (const char* given = std::getenv("CGP_NODE"); given && *given) return given;
  const char* path = std::getenv("PATH");
  for (const auto folder : text::split(path ? path : "", ':')) {
    const std::string file = cat(folder, "/node");
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  throw Unsupported(ErrorText{"profiling WebAssembly needs an engine: Node.js", "node",
                              "no such program along PATH", "apt install nodejs, or name it with CGP_NODE"});
}

const WasmFunction& function_of(const WasmModule& m, const WasmRequest& r) {
  std::vector<std::string> names;
  for (const auto& f : m.exported) {
    if (f.name == r.function || (r.function.empty() && (f.name == "_start" || m.exported.size() == 1)))
      return f;
    names.push_back(f.name);
  }
  throw ArgumentError(ErrorText{"--function is a function that the module exports",
                                r.function,
                                {},
                                names.empty() ? "it exports none" : "it exports " + text::join(names, ", ")});
}

void require_arguments(const WasmFunction& f, const std::vector<std::string>& arguments) {
  if (f.parameters.size() != arguments.size())
    throw ArgumentError(ErrorText{cat(f.name, " takes ", f.parameters.size(), " numbers"),
                                  text::join(arguments, ","),
                                  cat("parameters: ", text::join(f.parameters, ", ")), "--args 1000,2.5"});
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string &type = f.parameters[i], &a = arguments[i];
    double real = 0;
    std::int64_t whole = 0;
    const char* end = a.data() + a.size();
    const bool ok = type[0] == 'f'   ? std::from_chars(a.data(), end, real).ptr == end
                    : type[0] == 'i' ? std::from_chars(a.data(), end, whole).ptr == end
                                     : false;
    if (!ok || a.empty())
      throw ArgumentError(
          ErrorText{cat("argument ", i + 1, " of ", f.name, " is a number of type ", type), a, {}, {}});
  }
}

}  // namespace

Document profile_wasm(const WasmRequest& r) {
  const WasmModule m = read_wasm(read_file(r.file), r.file);
  const WasmFunction& f = function_of(m, r);
  require_arguments(f, r.arguments);
  for (const auto& i : m.imports)
    if (i.rfind("wasi_snapshot_preview1.", 0) != 0)
      throw Unsupported(
          ErrorText{"a module may import WASI (preview 1) and nothing else", r.file, "it imports " + i, {}});
  const std::string engine = node();
  std::string folder = (fs::temp_directory_path() / "cgp-wasm-XXXXXX").string();
  if (!mkdtemp(folder.data())) throw Error(ErrorText{"the counting module needs a folder", folder, {}, {}});
  const Removed removed{folder};
  write_file(folder + "/counted.wasm", m.counted);
  write_file(folder + "/run.cjs", kScript);
  nlohmann::ordered_json o = {{"file", r.file},
                              {"counted", folder + "/counted.wasm"},
                              {"name", f.name},
                              {"types", f.parameters},
                              {"args", r.arguments},
                              {"wasi", !m.imports.empty()},
                              {"counters", kWasmCounters},
                              {"seconds", r.seconds}};
  measure::ProcessOptions p;
  p.timeout_seconds = 60 + 20 * r.seconds;
  p.keep_bytes = 16 << 20;
  const auto run = measure::run_process({engine, "--no-warnings", folder + "/run.cjs", o.dump()}, p);
  const auto line = run.out.rfind('\n');
  if (!run.ok() || line == std::string::npos)
    throw Error(ErrorText{cat("the function must run to its end"),
                          cat(r.file, ": ", f.name),
                          run.err.empty() ? run.describe() : run.err.substr(0, 2000),
                          {}});
  const auto j = parsed(run.out.substr(line + 1), "node");
  Document d = new_document("wasm", cat(fs::path(r.file).filename().string(), ": ", f.name, "(",
                                        text::join(r.arguments, ", "), ")"));
  add_times(d, "function", j.at("us").get<std::vector<double>>(), "clock of node, around the call");
  const char* counted = "counted by the module itself, one call";
  d.metrics.set(Metric::instruction_count, j.at("counts").at(0).get<double>(), Source::counted, counted);
  d.metrics.set(Metric::fuel_consumed, j.at("counts").at(1).get<double>(), Source::counted, counted);
  d.metrics.set(Metric::simd128_detected, m.simd_instructions > 0, Source::counted, "the module's code");
  if (m.simd_instructions == 0) d.notes.push_back("No SIMD128 instructions detected — scalar fallback");
  d.more["wasm"] = {{"engine", j.at("engine")},
                    {"function", f.name},
                    {"arguments", r.arguments},
                    {"result", j.at("result")},
                    {"simd_executed", j.at("counts").at(2)},
                    {"functions", m.functions},
                    {"instructions_in_file", m.instructions},
                    {"simd_in_file", m.simd_instructions},
                    {"calls_a_sample", j.at("calls")}};
  return d;
}

}  // namespace cgp::profile
