// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/shader_profile.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/gpu_ceilings.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/profile/roofline/roofline_plot.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/stream.h"
#include "cgp/spec/report/report.h"

namespace cgp::profile {
namespace {

using Clock = std::chrono::steady_clock;

measure::Timing timing(std::string name, std::vector<double> ms) {
  auto summary = measure::summarise(ms);
  return {std::move(name), std::move(ms), summary};
}

measure::Timing by_clock(std::string name, int repeat, const std::function<void()>& work) {
  std::vector<double> ms;
  for (int i = -1; i < repeat; ++i) {  // the first one warms up
    const auto begin = Clock::now();
    work();
    if (i >= 0) ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return timing(std::move(name), std::move(ms));
}

bool has_timestamps(const runtime::Device& d) {
  runtime::Stream s(d);
  runtime::Event start(d), stop(d);
  s.record(start).record(stop).wait();
  try {
    (void)stop.milliseconds_since(start);
    return true;
  } catch (const Unsupported&) {
    return false;
  }
}

measure::Timing timed(std::string name, const runtime::Device& d, bool timestamps, int repeat,
                      const std::function<void(runtime::Stream&)>& work) {
  runtime::Stream s(d);
  if (!timestamps) return by_clock(std::move(name), repeat, [&] { work(s), s.wait(); });
  runtime::Event start(d), stop(d);
  std::vector<double> ms;
  for (int i = -1; i < repeat; ++i) {
    s.record(start);
    work(s);
    s.record(stop).wait();
    if (i >= 0) ms.push_back(stop.milliseconds_since(start));
  }
  return timing(std::move(name), std::move(ms));
}

/// 16 MiB where that takes a millisecond, else 256 MiB, which no cache holds.
void measure_copy(const runtime::Device& d, int repeat, ShaderProfile& p) {
  for (const std::uint64_t bytes : {std::uint64_t(16) << 20, std::uint64_t(256) << 20}) {
    auto from = d.alloc<std::byte>(bytes), to = d.alloc<std::byte>(bytes);
    from.fill_bytes(1);
    p.copy_bytes = bytes;
    p.copy = timed("copy", d, p.timestamps, repeat, [&](runtime::Stream& s) { s.copy(to, from); });
    if (p.copy.summary.min >= 1) return;
  }
}

/// As many rounds as take a millisecond.
void measure_ladder(const runtime::Device& d, int repeat, ShaderProfile& p) {
  auto out = d.alloc<float>(std::size_t(d.info().sm_count) * 8 * 256);
  for (std::uint32_t rounds = 16; rounds <= 1u << 14; rounds *= 4) {
    p.ladder = timed("fp32 FMA", d, p.timestamps, repeat,
                     [&](runtime::Stream& s) { p.ladder_flops = fma_ladder(s, d, out, rounds); });
    if (p.ladder.summary.min >= 1) return;
  }
}

std::string rate(const char* what, const measure::Timing& t, double bytes, const char* how) {
  const auto& ms = t.summary;
  return fmt::format("{:<16}{:.2f} GB/s ({} in {:.3f} ms, ±{:.0f}%, {})\n", what, bytes / ms.median * 1e-6,
                     text::bytes(std::uint64_t(bytes)), ms.median, ms.spread() * 100, how);
}

nlohmann::ordered_json json_of(const measure::Timing& t) {
  const auto& s = t.summary;
  return {{"median_ms", s.median}, {"min_ms", s.min}, {"max_ms", s.max}, {"samples", s.count}};
}

Roofline roofline(const ShaderProfile& p) {
  Roofline r;
  r.title = text::cat(p.device.spec, ", ", p.device.name);
  r.lines = {{"copy", true, p.copy_gbps()}, {"fp32 FMA", false, p.peak_gflops()}};
  if (p.kernel && p.kernel->flops > 0)
    r.points = {{p.kernel->name, p.kernel->flops / p.kernel->bytes, p.kernel->gflops()}};
  return r;
}

}  // namespace

ShaderProfile profile_shaders(const ShaderProfileOptions& o) {
  const auto device = runtime::Device::open(o.device);
  ShaderProfile p;
  p.device = device.info();
  if (p.device.kind != runtime::DeviceKind::wgpu && p.device.kind != runtime::DeviceKind::vulkan)
    throw ArgumentError({"cgp profile wgpu is for devices of Vulkan and WebGPU",
                         {},
                         text::cat("the device is ", p.device.spec),
                         "--device wgpu:0 or vulkan:0; cgp profile kernel for the others"});
  p.timestamps = has_timestamps(device);
  p.bytes = o.bytes;
  {
    std::vector<std::byte> host(o.bytes, std::byte(1));
    auto a = device.upload<std::byte>(host);
    p.upload = by_clock("upload", o.repeat, [&] { a.all().upload(host); });
    p.download = by_clock("download", o.repeat, [&] { a.all().download(host); });
  }
  measure_copy(device, o.repeat, p);
  measure_ladder(device, o.repeat, p);
  if (o.kernel.empty()) return p;
  const auto& kernel = kernels::find_kernel(o.kernel);
  const auto problem = kernel.prepare(device, parse_settings(kernel, o.settings), {}, 1);
  ShaderProfile::Kernel k;
  k.name = kernel.name, k.variant = problem->variant;
  k.flops = problem->flops, k.bytes = problem->bytes;
  k.time = timed(o.kernel, device, p.timestamps, o.repeat, [&](runtime::Stream& s) { problem->launch(s); });
  k.check = problem->verify();
  p.kernel = std::move(k);
  return p;
}

double ShaderProfile::of_roofline() const {
  if (!kernel) return 0;
  const double at_least = std::max(kernel->bytes / copy_gbps(), kernel->flops / peak_gflops()) * 1e-6;
  return at_least / kernel->time.summary.median;
}

std::string to_text(const ShaderProfile& p) {
  const char* how = p.timestamps ? "timestamps" : "host's clock: the device has no timestamps";
  std::string out = fmt::format("{:<16}{}, {}\n", "device", p.device.spec, p.device.name);
  out += rate("upload", p.upload, double(p.bytes), "host's clock");
  out += rate("download", p.download, double(p.bytes), "host's clock");
  out += rate("copy", p.copy, 2.0 * double(p.copy_bytes), how);
  out += fmt::format("{:<16}{:.2f} GFLOP/s ({:.3g} multiply-adds in {:.3f} ms, ±{:.0f}%, {})\n", "fp32 FMA",
                     p.peak_gflops(), p.ladder_flops / 2, p.ladder.summary.min,
                     p.ladder.summary.spread() * 100, how);
  if (!p.kernel) return out;
  const auto& k = *p.kernel;
  const auto& ms = k.time.summary;
  out += fmt::format("{:<16}{}: {:.4f} ms (median of {}, min {:.4f}, ±{:.0f}%, {})\n", k.name, k.variant,
                     ms.median, ms.count, ms.min, ms.spread() * 100, how);
  out += fmt::format("{:<16}{:.2f} GB/s, {:.3g} GFLOP/s; {:.0f}% of what the roofline allows\n", "", k.gbps(),
                     k.gflops(), 100 * p.of_roofline());
  out += fmt::format("{:<16}{}\n", "oracle", k.check.describe());
  return k.flops > 0 ? out + "\n" + roofline_text(roofline(p)) : out;
}

nlohmann::ordered_json to_json(const ShaderProfile& p) {
  nlohmann::ordered_json j = {{"schema", "cgp.wgpu/1"},       {"device", spec::to_json(p.device)},
                              {"timestamps", p.timestamps},   {"transfer_bytes", p.bytes},
                              {"upload", json_of(p.upload)},  {"download", json_of(p.download)},
                              {"copy_bytes", p.copy_bytes},   {"copy", json_of(p.copy)},
                              {"copy_gbps", p.copy_gbps()},   {"peak_gflops", p.peak_gflops()},
                              {"ridge", roofline(p).ridge()}, {"kernel", nullptr}};
  if (p.kernel)
    j["kernel"] = {{"name", p.kernel->name},
                   {"variant", p.kernel->variant},
                   {"time", json_of(p.kernel->time)},
                   {"flops", p.kernel->flops},
                   {"bytes", p.kernel->bytes},
                   {"gbps", p.kernel->gbps()},
                   {"gflops", p.kernel->gflops()},
                   {"of_roofline", p.of_roofline()},
                   {"check", {{"pass", p.kernel->check.pass}, {"compared", p.kernel->check.compared}}}};
  return j;
}

Document to_document(const ShaderProfile& p, std::vector<std::string> command) {
  using measure::Metric;
  using measure::Source;
  Document d = new_document("wgpu", p.kernel ? p.kernel->name : "transfers", std::move(command));
  d.machine["device"] = {{"spec", p.device.spec}, {"name", p.device.name}, {"arch", p.device.arch}};
  d.machine_key += ", " + p.device.name;
  const auto add = [&](const measure::Timing& t, const char* from) {
    std::vector<double> us;
    for (const double ms : t.milliseconds) us.push_back(ms * 1e3);
    if (p.kernel && &t == &p.kernel->time)
      add_times(d, t.name, std::move(us), from);
    else
      d.samples.push_back({t.name, "us", std::move(us)});
  };
  const char* how = p.timestamps ? "timestamps of the device" : "the host's clock";
  if (p.kernel) add(p.kernel->time, how);
  for (const auto* t : {&p.upload, &p.download, &p.copy, &p.ladder}) add(*t, how);
  const auto transfer = [&](Metric m, const measure::Timing& t) {
    d.metrics.set(m, double(p.bytes) / t.summary.median * 1e-6, Source::measured, "the host's clock");
  };
  transfer(Metric::h2d_bandwidth_gbps, p.upload);
  transfer(Metric::d2h_bandwidth_gbps, p.download);
  d.metrics.set(Metric::peak_bandwidth_gbps, p.copy_gbps(), Source::measured, "a copy on the device");
  d.metrics.set(Metric::peak_compute_tflops, p.peak_gflops() * 1e-3, Source::measured,
                "fp32 multiply-adds in registers");
  if (p.kernel) {
    d.more["check"] = {{"pass", p.kernel->check.pass}, {"text", p.kernel->check.describe()}};
    if (!p.kernel->check.pass) d.notes.push_back("WRONG RESULT: " + p.kernel->check.describe());
    if (p.kernel->bytes > 0)
      d.metrics.set(Metric::arithmetic_intensity, p.kernel->flops / p.kernel->bytes, Source::derived,
                    "operations over compulsory bytes");
    d.metrics.derive(p.kernel->flops, p.kernel->bytes);
  }
  d.more["wgpu"] = to_json(p);
  return d;
}

}  // namespace cgp::profile
