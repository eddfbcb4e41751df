// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/kernel/shader_profile.h"

#include <fmt/core.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/stream.h"
#include "cgp/spec/report/report.h"

namespace cgp::profile {
namespace {

using Clock = std::chrono::steady_clock;

measure::Summary by_clock(int repeat, const std::function<void()>& work) {
  std::vector<double> ms;
  for (int i = -1; i < repeat; ++i) {  // the first one warms up
    const auto begin = Clock::now();
    work();
    if (i >= 0) ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return measure::summarise(ms);
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

measure::Summary timed(const runtime::Device& d, bool timestamps, int repeat,
                       const std::function<void(runtime::Stream&)>& work) {
  runtime::Stream s(d);
  if (!timestamps) return by_clock(repeat, [&] { work(s), s.wait(); });
  runtime::Event start(d), stop(d);
  std::vector<double> ms;
  for (int i = -1; i < repeat; ++i) {
    s.record(start);
    work(s);
    s.record(stop).wait();
    if (i >= 0) ms.push_back(stop.milliseconds_since(start));
  }
  return measure::summarise(ms);
}

std::string rate(const char* what, const measure::Summary& ms, double bytes, const char* how) {
  return fmt::format("{:<16}{:.2f} GB/s ({} in {:.3f} ms, ±{:.0f}%, {})\n", what, bytes / ms.median * 1e-6,
                     text::bytes(std::uint64_t(bytes)), ms.median, ms.spread() * 100, how);
}

nlohmann::ordered_json json_of(const measure::Summary& s) {
  return {{"median_ms", s.median}, {"min_ms", s.min}, {"max_ms", s.max}, {"samples", s.count}};
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
  std::vector<std::byte> host(o.bytes, std::byte(1));
  auto a = device.upload<std::byte>(host), b = device.alloc<std::byte>(o.bytes);
  p.upload = by_clock(o.repeat, [&] { a.all().upload(host); });
  p.download = by_clock(o.repeat, [&] { a.all().download(host); });
  p.copy = timed(device, p.timestamps, o.repeat, [&](runtime::Stream& s) { s.copy(b, a); });
  if (o.kernel.empty()) return p;
  const auto& kernel = kernels::find_kernel(o.kernel);
  const auto problem = kernel.prepare(device, parse_settings(kernel, o.settings), {}, 1);
  ShaderProfile::Kernel k;
  k.name = kernel.name, k.variant = problem->variant;
  k.flops = problem->flops, k.bytes = problem->bytes;
  k.time = timed(device, p.timestamps, o.repeat, [&](runtime::Stream& s) { problem->launch(s); });
  k.check = problem->verify();
  p.kernel = std::move(k);
  return p;
}

std::string to_text(const ShaderProfile& p) {
  const char* how = p.timestamps ? "timestamps" : "host's clock: the device has no timestamps";
  std::string out = fmt::format("{:<16}{}, {}\n", "device", p.device.spec, p.device.name);
  out += rate("upload", p.upload, double(p.bytes), "host's clock");
  out += rate("download", p.download, double(p.bytes), "host's clock");
  out += rate("copy", p.copy, 2.0 * double(p.bytes), how);
  if (!p.kernel) return out;
  const auto& k = *p.kernel;
  out += fmt::format("{:<16}{}: {:.4f} ms (median of {}, min {:.4f}, ±{:.0f}%, {})\n", k.name, k.variant,
                     k.time.median, k.time.count, k.time.min, k.time.spread() * 100, how);
  out += fmt::format("{:<16}{:.2f} GB/s, {:.0f}% of the copy's rate; {:.3g} GFLOP/s\n", "", k.gbps(),
                     100 * k.gbps() / p.copy_gbps(), k.flops / k.time.median * 1e-6);
  return out + fmt::format("{:<16}{}\n", "oracle", k.check.describe());
}

nlohmann::ordered_json to_json(const ShaderProfile& p) {
  nlohmann::ordered_json j = {
      {"schema", "cgp.wgpu/1"},    {"device", spec::to_json(p.device)}, {"timestamps", p.timestamps},
      {"transfer_bytes", p.bytes}, {"upload", json_of(p.upload)},       {"download", json_of(p.download)},
      {"copy", json_of(p.copy)},   {"copy_gbps", p.copy_gbps()},        {"kernel", nullptr}};
  if (p.kernel)
    j["kernel"] = {{"name", p.kernel->name},
                   {"variant", p.kernel->variant},
                   {"time", json_of(p.kernel->time)},
                   {"flops", p.kernel->flops},
                   {"bytes", p.kernel->bytes},
                   {"gbps", p.kernel->gbps()},
                   {"of_copy", p.kernel->gbps() / p.copy_gbps()},
                   {"check", {{"pass", p.kernel->check.pass}, {"compared", p.kernel->check.compared}}}};
  return j;
}

}  // namespace cgp::profile
