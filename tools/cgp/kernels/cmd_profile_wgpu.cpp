// SPDX-License-Identifier: Apache-2.0
// cgp profile wgpu: transfers of a WebGPU or Vulkan device, and a kernel of the catalogue on it.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/profile/kernel/shader_profile.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/wgpu/wgsl_file.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

std::array<std::uint32_t, 3> workgroups(const std::string& text) {
  std::array<std::uint32_t, 3> out{1, 1, 1};
  const auto parts = text::split(text, ',');
  bool good = parts.size() <= 3;
  for (std::size_t i = 0; good && i < parts.size(); ++i) {
    const auto [end, error] = std::from_chars(parts[i].data(), parts[i].data() + parts[i].size(), out[i]);
    good = error == std::errc() && end == parts[i].data() + parts[i].size() && out[i] > 0;
  }
  if (!good)
    throw ArgumentError(
        {"--dispatch is one to three numbers of workgroups", "--dispatch " + text, {}, "--dispatch 64,1,1"});
  return out;
}

/// What each binding holds: as --buffer says, else zeros.
std::vector<std::vector<std::byte>> contents(const wgpu::WgslInterface& shader,
                                             const std::vector<std::string>& given) {
  std::vector<std::vector<std::byte>> out;
  for (const auto& b : shader.bindings) out.emplace_back(b.uniform ? 256 : 16u << 20);
  for (const std::string& g : given) {
    const auto [name, value] = profile::split_setting(g, "--buffer");
    const auto at = std::find_if(shader.bindings.begin(), shader.bindings.end(), [&](const auto& b) {
      return b.group == 0 && std::to_string(b.binding) == name;
    });
    if (at == shader.bindings.end())
      throw ArgumentError({"--buffer names a binding of the shader's group 0",
                           "--buffer " + g,
                           text::cat("the shader has no binding ", name),
                           {}});
    auto& bytes = out[std::size_t(at - shader.bindings.begin())];
    std::uint64_t n = 0;
    const auto r = std::from_chars(value.data(), value.data() + value.size(), n);
    if (r.ec == std::errc() && r.ptr == value.data() + value.size()) {
      bytes.assign(n, std::byte(0));
    } else {
      const std::string file = read_file(value);
      bytes.resize(file.size());
      std::memcpy(bytes.data(), file.data(), file.size());
    }
    bytes.resize(std::max<std::size_t>(4, (bytes.size() + 3) / 4 * 4));
  }
  return out;
}

int profile_shader(const Context& context, const ProfileOptions& o) {
  if (o.device != "auto" && !o.device.starts_with("wgpu"))
    throw Unsupported(
        {"WGSL files run on WebGPU devices", {}, "the device is " + o.device, "--device wgpu:0"});
  const auto grid = workgroups(o.dispatch);
  const std::string text = read_file(o.shader);
  const auto shader = wgpu::read_wgsl(text, o.shader);
  const auto entry = std::find_if(shader.entries.begin(), shader.entries.end(),
                                  [&](const auto& e) { return o.entry.empty() || e.name == o.entry; });
  if (entry == shader.entries.end() || (o.entry.empty() && shader.entries.size() > 1)) {
    std::vector<std::string> names;
    for (const auto& e : shader.entries) names.push_back(e.name);
    throw ArgumentError(
        {"a shader's entry point must be known", o.shader,
         text::cat("it has ", names.empty() ? "no compute entry point" : text::join(names, ", ")),
         names.empty() ? "" : "--entry NAME"});
  }
  const std::size_t ordinal =
      o.device.starts_with("wgpu:") ? std::size_t(std::atoi(o.device.c_str() + 5)) : 0;
  const wgpu::Device device(wgpu::Api::get(), ordinal);
  const auto data = contents(shader, o.buffers);
  const auto ms = wgpu::time_wgsl(device, text, *entry, shader.bindings, data, grid, o.repeat);
  const auto s = measure::summarise(ms);
  const auto& w = entry->workgroup;
  const std::uint64_t threads = std::uint64_t(w[0]) * w[1] * w[2] * grid[0] * grid[1] * grid[2];
  if (context.json) {
    nlohmann::ordered_json bindings = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < data.size(); ++i)
      bindings.push_back({{"name", shader.bindings[i].name},
                          {"group", shader.bindings[i].group},
                          {"binding", shader.bindings[i].binding},
                          {"bytes", data[i].size()}});
    write_out(spec::dumped(nlohmann::ordered_json{{"schema", "cgp.wgsl/1"},
                                                  {"shader", o.shader},
                                                  {"device", device.adapter.name},
                                                  {"entry", entry->name},
                                                  {"workgroup", w},
                                                  {"dispatch", grid},
                                                  {"threads", threads},
                                                  {"bindings", bindings},
                                                  {"timestamps", device.adapter.timestamps},
                                                  {"ms", ms},
                                                  {"median_ms", s.median}},
                           2) +
              "\n");
    return kClean;
  }
  write_out(text::cat(
      "device     ", device.adapter.name, "\nshader     ", o.shader, ", ", entry->name, ": workgroups of ",
      w[0], " x ", w[1], " x ", w[2], ", ", grid[0], " x ", grid[1], " x ", grid[2], " of them, ", threads,
      " threads\ntime       ", float(s.median), " ms (median of ", s.count, ", min ", float(s.min), ", ",
      device.adapter.timestamps ? "timestamps" : "host's clock: the device has no timestamps", ")\n"));
  return kClean;
}

}  // namespace

int profile_wgpu(const Context& context, const ProfileOptions& o) {
  if (!o.shader.empty()) return profile_shader(context, o);
  profile::ShaderProfileOptions w;
  if (o.device != "auto") w.device = o.device;
  w.repeat = o.repeat;
  if (!o.command.empty()) {
    w.kernel = o.command[0];
    w.settings.assign(o.command.begin() + 1, o.command.end());
  }
  const bool native = o.target == "native" || o.device != "auto" || !w.kernel.empty();
  const char* fallback = "No browser found — falling back to wgpu native (Vulkan/Metal)";
  if (o.device == "auto") try {
      (void)runtime::Device::open(w.device);
    } catch (const Unsupported& e) {
      throw Unsupported(
          {native ? "profiling WebGPU natively needs the wgpu native library (Vulkan or Metal)" : fallback,
           {},
           text::cat(e.rule(), e.why().empty() ? "" : ": ", e.why()),
           "--device vulkan:0 measures through the Vulkan loader"});
    }
  if (!native) std::fprintf(stderr, "cgp: %s\n", fallback);
  profile::ShaderProfile p;
  {
    Progress progress;
    progress.step(text::cat("measuring on ", w.device));
    p = profile::profile_shaders(w);
  }
  if (!o.save.empty()) profile::save(profile::to_document(p, o.command), o.save);
  write_out(context.json ? spec::dumped(profile::to_json(p), 2) + "\n" : profile::to_text(p));
  return !p.kernel || p.kernel->check.pass ? kClean : kCheckFailed;
}

}  // namespace cgp::cli
