// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/spec_run.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/ptx/module.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/shared_module.h"
#include "cgp/ptx/verify/verify.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/device.h"
#include "cgp/runtime/launcher.h"
#include "cgp/runtime/stream.h"
#include "cgp/spec/captured_stdout.h"
#include "cgp/spec/npy.h"

namespace cgp::spec {
namespace {

using runtime::Arg;
using text::cat;
using Bytes = std::vector<std::uint8_t>;

constexpr std::uint8_t kOutPattern = 0xa5;

std::span<const std::byte> as_span(const Bytes& b) {
  return {reinterpret_cast<const std::byte*>(b.data()), b.size()};
}

/// "compute_90a" and "sm_90a" -> "sm_90a".
std::string arch_of_target(std::string target) {
  if (const auto at = target.find('_'); at != std::string::npos) return "sm" + target.substr(at);
  return target;
}

/// Plain "emu" means the architecture the kernel was compiled for, if that one is modelled.
runtime::Device open_device(const std::string& wanted, const Spec& spec, const ptx::Module& module) {
  if (wanted != "emu") {
    const auto device = runtime::Device::open(wanted);
    if (wanted != "auto" || !device.is_emulator()) return device;
  }
  for (const std::string& target : {spec.target, module.target}) {
    if (target.empty()) continue;
    try {
      return runtime::Device::open("emu:" + arch_of_target(target));
    } catch (const Unsupported&) {
      // an older or newer architecture: the default one says below whether it can run it
    }
  }
  return runtime::Device::open("emu");
}

struct LiveBuffer {
  const BufferSpec* spec = nullptr;
  runtime::Buffer<std::byte> memory;
  Bytes before;  ///< what was uploaded
};

class Runner {
 public:
  Runner(const Spec& spec, const RunOptions& options) : spec_(spec), options_(options) {}

  SpecResult run() {
    result_.spec_path = spec_.path;
    result_.ptx_path = spec_.ptx_path;
    result_.expect = spec_.expect;
    result_.warnings = spec_.warnings;
    result_.ptx = spec_.ptx.empty() ? read_file(spec_.ptx_path) : spec_.ptx;
    step("reading the PTX");
    const auto shared = ptx::share_module(result_.ptx);  // the device loads the same text
    const ptx::Module& module = *shared;
    if (options_.transform)
      result_.ptx = options_.transform(result_.ptx);
    else
      check_opcodes(module);
    device_ = open_device(options_.device, spec_, module);
    result_.device = device_.info();
    if (device_.is_emulator()) {
      prepare_emulator();
      // What ptxas would refuse is no program, whatever the emulator makes of it. A GPU's driver says so
      // itself.
      if (device_.emulator_options().checks.has(emu::Check::program)) ptx::verify(module, {.foreign = true});
    }
    loaded_ = device_.load_module(result_.ptx);
    step("filling buffers");
    make_buffers();
    write_symbols();
    for (std::size_t i = 0; i < spec_.launches.size(); ++i)
      if (!launch(i)) break;
    step("comparing");
    collect();
    if (!options_.transform) check_counters();
    return std::move(result_);
  }

 private:
  void step(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  void prepare_emulator() {
    emu::Options o = device_.emulator_options();
    const CheckPlan plan = plan_checks(options_.checks);
    o.checks = plan.set;
    result_.checks = plan.performed;
    if (!plan.warning.empty()) result_.warnings.push_back(plan.warning);
    if (options_.tune) options_.tune(o);
    device_.set_emulator_options(o);
    device_.set_findings(runtime::Device::Findings::collect);
    device_.keep_results(0);
  }

  /// Spellings differ in the order of modifiers (atom.add.acquire, atom.acquire.add), so words are compared.
  static std::string sorted_words(std::string_view opcode) {
    auto words = text::split(opcode, '.');
    std::sort(words.begin() + 1, words.end());
    std::string out;
    for (auto word : words) text::append(out, cat(word, "."));
    return out;
  }

  void check_opcodes(const ptx::Module& module) {
    if (spec_.opcodes.empty()) return;
    std::map<std::string, std::uint64_t> there;
    for (const auto& f : module.functions)
      for (const auto& inst : f.body) {
        std::string full(name(inst.op));
        for (ptx::Mod m : inst.mods) text::append(full, cat(".", name(m)));
        ++there[sorted_words(full)];
      }
    std::map<std::string, std::uint64_t> wanted;
    for (const auto& [opcode, count] : spec_.opcodes) wanted[sorted_words(opcode)] += count;
    for (const auto& [opcode, count] : spec_.opcodes)
      if (const std::string words = sorted_words(opcode); there[words] != wanted[words])
        result_.warnings.push_back(
            cat("the spec counts ", wanted[words], " of ", opcode, ", the PTX has ", there[words]));
  }

  Bytes initial_bytes(const BufferSpec& b, std::vector<std::pair<std::uint64_t, std::uint64_t>>& unwritten) {
    const std::string what = cat("buffer \"", b.name, "\"");
    const bool pattern =
        b.role == Role::out && (!b.init || (b.init->kind == Init::Kind::uninit && !spec_.expect));
    if (pattern) return Bytes(b.bytes(), kOutPattern);
    if (!b.init) {
      unwritten.emplace_back(0, b.bytes());
      return Bytes(b.bytes());
    }
    Generated g = generate(*b.init, b.dtype, b.count, spec_.folder, what);
    unwritten = std::move(g.unwritten);
    return std::move(g.bytes);
  }

  /// The checksum guards against a generator that differs from the one that made the expected data.
  void check_crc(const BufferSpec& b, const Bytes& bytes, bool partly_unwritten) {
    if (!b.crc32 || partly_unwritten) return;
    const std::uint32_t there = crc32(bytes.data(), bytes.size());
    if (there == *b.crc32) return;
    const std::string why =
        cat("its initial bytes have CRC-32 ", text::hex(there), ", the spec says ", text::hex(*b.crc32));
    if (b.role == Role::out || b.role == Role::scratch)
      result_.warnings.push_back(cat("buffer \"", b.name, "\": ", why));
    else
      throw ArgumentError(ErrorText{"a buffer must start as its spec's checksum says",
                                    cat(spec_.path, ": buffer \"", b.name, "\""), why,
                                    "the file or generator is not the one that the expected data came from"});
  }

  void make_buffers() {
    for (const BufferSpec& b : spec_.buffers) {
      LiveBuffer live;
      live.spec = &b;
      live.memory = device_.alloc<std::byte>(b.bytes(), b.name);
      std::vector<std::pair<std::uint64_t, std::uint64_t>> unwritten;
      live.before = initial_bytes(b, unwritten);
      check_crc(b, live.before, !unwritten.empty());
      if (!device_.is_emulator() && !unwritten.empty()) {
        SplitMix64 junk(0x6a756e6b);  // hardware cannot tell unwritten memory; make relying on it visible
        for (const auto& [first, last] : unwritten)
          for (std::uint64_t i = first; i < last; ++i) live.before[i] = std::uint8_t(junk.next());
        unwritten.clear();
      }
      std::uint64_t at = 0;
      unwritten.emplace_back(b.bytes(), b.bytes());
      for (const auto& [first, last] : unwritten) {
        if (first > at) live.memory.upload(as_span(live.before).subspan(at, first - at), at);
        at = last;
      }
      buffers_.push_back(std::move(live));
    }
  }

  void write_symbols() {
    for (const SymbolSpec& s : spec_.symbols) {
      const std::string what = cat("symbol \"", s.name, "\"");
      const Generated g = generate(s.init, s.dtype, s.count, spec_.folder, what);
      const auto variable = loaded_.variable(s.name);
      if (g.bytes.size() > variable.size())
        throw ArgumentError(ErrorText{"a symbol's data must fit its variable",
                                      cat(spec_.path, ": ", what),
                                      cat(g.bytes.size(), " bytes for a variable of ", variable.size()),
                                      {}});
      variable.slice(0, g.bytes.size()).upload(as_span(g.bytes));
    }
  }

  std::uint64_t resolve(const AddressOf& a) const { return buffers_[a.buffer].memory.address() + a.offset; }

  /// A parameter's bytes, with the buffers' addresses and the tensor map filled in.
  Bytes param_bytes(const ParamSpec& p) const {
    switch (p.kind) {
      case ParamSpec::Kind::address: {
        const std::uint64_t address = resolve(p.addresses[0]);
        Bytes out(8);
        std::memcpy(out.data(), &address, 8);
        return out;
      }
      case ParamSpec::Kind::tensor_map: {
        const runtime::TensorMap map = device_.tensor_map(p.map, resolve(p.addresses[0]));
        Bytes out(sizeof map);
        std::memcpy(out.data(), &map, sizeof map);
        return out;
      }
      default: {
        Bytes out = p.bytes;
        for (const AddressOf& a : p.addresses) {
          const std::uint64_t address = resolve(a);
          std::memcpy(out.data() + a.at, &address, 8);
        }
        return out;
      }
    }
  }

  static Arg argument(const runtime::Param& param, const Bytes& bytes, runtime::TensorMap& map) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), std::min<std::size_t>(bytes.size(), 8));
    switch (param.kind) {
      case runtime::ParamKind::scalar:
        return Arg::scalar(param.dtype.value_or(DType::u64), bytes.data());
      case runtime::ParamKind::word:
        return Arg::scalar(DType::u64, bytes.data());
      case runtime::ParamKind::pointer:
        return Arg::address(word);
      case runtime::ParamKind::tensor_map:
        std::memcpy(map.words, bytes.data(), sizeof map.words);
        return Arg::tensor_map(map);
      case runtime::ParamKind::bytes:
        break;
    }
    return Arg::raw(bytes.data(), std::uint32_t(bytes.size()));
  }

  void check_params(const LaunchSpec& l, const runtime::KernelImage& image, const std::vector<Bytes>& given) {
    const std::string where = cat(spec_.path, ": launch of ", l.entry);
    if (given.size() != image.params.size())
      throw ArgumentError(ErrorText{
          "a launch needs one argument per parameter",
          where,
          cat(given.size(), " arguments for ", image.params.size(), " parameters: ", signature(image)),
          {}});
    for (std::size_t i = 0; i < given.size(); ++i)
      if (given[i].size() != image.params[i].bytes)
        throw ArgumentError(ErrorText{"an argument must have its parameter's size", where,
                                      cat("argument ", i, " has ", given[i].size(), " bytes, parameter ",
                                          image.params[i].name, " has ", image.params[i].bytes),
                                      cat("the kernel takes ", signature(image))});
  }
  static std::string signature(const runtime::KernelImage& image) {
    std::vector<std::string> parts;
    for (const auto& p : image.params)
      parts.push_back(
          cat(p.name, " (", p.dtype ? name(*p.dtype) : runtime::name(p.kind), ", ", p.bytes, " bytes)"));
    return text::join(parts, ", ");
  }

  /// False when the program gave up and later launches make no sense.
  bool launch(std::size_t index) {
    const LaunchSpec& l = spec_.launches[index];
    step(cat("launch ", index + 1, " of ", spec_.launches.size(), ": ", l.entry));
    const runtime::LoadedKernel kernel = loaded_.kernel(l.entry);
    const auto& image = kernel.image();
    std::vector<Bytes> bytes;
    for (const ParamSpec& p : l.params) bytes.push_back(param_bytes(p));
    check_params(l, image, bytes);
    std::vector<runtime::TensorMap> maps(bytes.size());
    std::vector<Arg> args;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      args.push_back(argument(image.params[i], bytes[i], maps[i]));
    runtime::Launch shape{
        .grid = l.grid, .block = l.block, .cluster = l.cluster, .dynamic_smem = l.dynamic_smem};
    shape.cooperative = l.cooperative;
    LaunchOutcome outcome;
    outcome.spec = l;
    const std::size_t seen = device_.is_emulator() ? device_.results().size() : 0;
    const bool fine = execute(kernel, shape, args, outcome);
    if (device_.is_emulator() && device_.results().size() > seen) {
      outcome.emulated = device_.results().back().result;
      for (const emu::Finding& f : outcome.emulated->findings)
        result_.findings.push_back({index, f, l.entry, spec_.ptx_path, {}, 0});
    }
    result_.launches.push_back(std::move(outcome));
    return fine;
  }

  bool execute(const runtime::LoadedKernel& kernel, const runtime::Launch& shape,
               const std::vector<Arg>& args, LaunchOutcome& outcome) {
    runtime::Stream& stream = device_.stream();
    try {
      if (device_.is_emulator()) {
        kernel.launch(stream, shape, args);
        stream.wait();
        return true;
      }
      runtime::Event start(device_), stop(device_);
      CapturedStdout printed;
      stream.record(start);
      kernel.launch(stream, shape, args);
      stream.record(stop);
      stream.wait();
      outcome.printed = printed.finish();
      outcome.milliseconds = stop.milliseconds_since(start);
      return true;
    } catch (const EmuFault& e) {
      result_.fault = e.what();
    } catch (const DriverError& e) {
      result_.fault = e.what();
    }
    return false;
  }

  void collect() {
    for (LiveBuffer& b : buffers_) {
      BufferOutcome o;
      o.name = b.spec->name;
      o.dtype = b.spec->dtype;
      o.role = b.spec->role;
      o.count = b.spec->count;
      o.address = b.memory.address();
      if (result_.fault.empty() || device_.is_emulator()) finish_buffer(b, o);
      result_.buffers.push_back(std::move(o));
    }
  }

  void finish_buffer(LiveBuffer& b, BufferOutcome& o) {
    const bool saves = options_.write_outputs && !b.spec->output_path.empty();
    const bool compares = !spec_.expect && b.spec->expected.has_value();
    const bool guards = !spec_.expect && b.spec->role == Role::in;
    if (!saves && !compares && !guards && !options_.keep_outputs) return;
    Bytes after(b.spec->bytes());
    b.memory.download({reinterpret_cast<std::byte*>(after.data()), after.size()});
    if (compares) {
      const std::string what = cat("expected data of buffer \"", b.spec->name, "\"");
      const Generated want = generate(*b.spec->expected, b.spec->dtype, b.spec->count, spec_.folder, what);
      o.compared = true;
      o.how = b.spec->compare;
      o.comparison = compare(o.how, o.dtype, after, want.bytes);
    } else if (guards && after != b.before) {
      o.compared = true;
      o.comparison = compare(o.how, o.dtype, after, b.before);
      o.comparison.equal = false;  // also when only NaN payloads changed
    }
    HostArray array{b.spec->dtype, b.spec->shape, std::move(after)};
    if (array.shape.empty()) array.shape = {b.spec->count};
    if (saves && result_.fault.empty()) {
      write_array(b.spec->output_path, array);
      o.saved = b.spec->output_path;
    }
    if (options_.keep_outputs) o.data = std::move(array);
  }

  void check_counters() {
    if (!device_.is_emulator()) return;
    for (const CounterSpec& c : spec_.counters) {
      if (c.launch >= result_.launches.size() || !result_.launches[c.launch].emulated) continue;
      std::map<std::string, std::uint64_t> there;
      for (const auto& [key, value] : emu::flatten(result_.launches[c.launch].emulated->counters))
        there[key] = value;
      for (const auto& [key, want] : c.values) {
        const auto it = there.find(key);
        if (it == there.end())
          result_.counter_mismatches.push_back({c.launch, key, want, std::nullopt});
        else if (it->second != want)
          result_.counter_mismatches.push_back({c.launch, key, want, it->second});
      }
    }
  }

  const Spec& spec_;
  const RunOptions& options_;
  SpecResult result_;
  runtime::Device device_;
  runtime::LoadedModule loaded_;
  std::vector<LiveBuffer> buffers_;
};

}  // namespace

bool SpecResult::clean() const {
  if (any_fails(findings) || !fault.empty() || !counter_mismatches.empty()) return false;
  return std::all_of(buffers.begin(), buffers.end(),
                     [](const BufferOutcome& b) { return !b.compared || b.comparison.equal; });
}

bool SpecResult::expectation_met() const {
  if (!expect) return true;
  return std::any_of(findings.begin(), findings.end(),
                     [&](const LocatedFinding& f) { return expect->accepts(f.finding.cls); });
}

CheckPlan plan_checks(const std::string& checks) {
  CheckPlan plan;
  plan.set = emu::parse_checks(checks);
  const auto performed = emu::CheckSet::from_bits(plan.set.bits() & emu::kPerformedChecks);
  const auto missing = plan.set - performed;
  plan.performed = emu::name(performed);
  if (!missing.empty() && plan.set != emu::CheckSet::all())
    plan.warning = cat("this version does not perform the checks: ", emu::name(missing));
  return plan;
}

std::string short_checks(const std::string& performed) {
  const emu::CheckSet asked = emu::parse_checks(performed.empty() ? "none" : performed);
  const emu::CheckSet there = asked - emu::Check::strict;
  const std::string_view strict = asked.has(emu::Check::strict) ? ", warnings are errors" : "";
  if (there == emu::CheckSet::all()) return cat("all checks", strict);
  const emu::CheckSet missing = emu::CheckSet::all() - there;
  if (std::popcount(missing.bits()) < std::popcount(there.bits()))
    return cat("checks: all but ", emu::name(missing), strict);
  return cat("checks: ", emu::name(there), strict);
}

SpecResult run_spec(const Spec& spec, const RunOptions& options) { return Runner(spec, options).run(); }

SpecResult run_spec(const std::string& path, const RunOptions& options) {
  const Spec spec = load_spec(path);
  return run_spec(spec, options);
}

}  // namespace cgp::spec
