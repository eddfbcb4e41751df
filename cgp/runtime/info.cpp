// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/info.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/ptx/target.h"
#include "cgp/runtime/backend_impl.h"
#include "cgp/runtime/shader/shader_backend_impl.h"

namespace cgp::runtime {
std::string_view name(DeviceKind k) {
  constexpr std::string_view names[] = {"emulator", "cuda", "vulkan", "wgpu"};
  return names[int(k)];
}
std::string reject_target(std::string_view target, std::string_view arch) {
  const auto t = ptx::parse_target(target), a = ptx::parse_target(arch);
  if (!t) return text::cat("\"", target, "\" is not a PTX target like sm_90a");
  if (!a) return text::cat("\"", arch, "\" is not an architecture like sm_90a");
  if (ptx::runs_on(*t, *a)) return {};
  const char* where = t->suffix == 'a'   ? " runs on exactly that architecture"
                      : t->suffix == 'f' ? " runs on its own family from there on"
                                         : " needs that architecture or a later one";
  return text::cat("code for ", target, where, ", this device is ", arch);
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out = cuda_devices();
  for (std::string_view arch : emulator_archs()) out.push_back(open_emulator(arch)->info());
  return out;
}

std::vector<DeviceInfo> shader_devices() {
  std::vector<DeviceInfo> out = vulkan_devices();
  for (DeviceInfo& d : wgpu_devices()) out.push_back(std::move(d));
  return out;
}

}  // namespace cgp::runtime
