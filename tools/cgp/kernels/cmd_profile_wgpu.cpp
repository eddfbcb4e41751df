// SPDX-License-Identifier: Apache-2.0
// cgp profile wgpu: transfers of a WebGPU or Vulkan device, and a kernel of the catalogue on it.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/kernel/shader_profile.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int profile_wgpu(const Context& context, const ProfileOptions& o) {
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
