// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/info.h"

#include <charconv>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {
namespace {

struct Target {
  int number = 0;   // 90, 100
  char suffix = 0;  // 'a', 'f' or none
};
std::optional<Target> parse_target(std::string_view s) {
  if (!s.starts_with("sm_")) return std::nullopt;
  s.remove_prefix(3);
  Target t;
  auto r = std::from_chars(s.data(), s.data() + s.size(), t.number);
  if (r.ec != std::errc()) return std::nullopt;
  std::string_view rest(r.ptr, std::size_t(s.data() + s.size() - r.ptr));
  if (rest.size() > 1 || (rest.size() == 1 && rest != "a" && rest != "f")) return std::nullopt;
  if (!rest.empty()) t.suffix = rest[0];
  return t;
}

}  // namespace

std::string reject_target(std::string_view target, std::string_view arch) {
  const auto t = parse_target(target), a = parse_target(arch);
  if (!t) return text::cat("\"", target, "\" is not a PTX target like sm_90a");
  if (!a) return text::cat("\"", arch, "\" is not an architecture like sm_90a");
  if (t->suffix == 'a' && (t->number != a->number || a->suffix != 'a'))
    return text::cat("code for ", target, " runs on exactly ", target, ", this device is ", arch);
  if (t->suffix == 'f' && (t->number / 10 != a->number / 10 || t->number > a->number))
    return text::cat("code for ", target, " runs on its own family from ", target, " on, this device is ",
                     arch);
  if (t->number > a->number)
    return text::cat("code for ", target, " needs ", target, " or later, this device is ", arch);
  return {};
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out = cuda_devices();
  for (std::string_view arch : emulator_archs()) out.push_back(open_emulator(arch)->info());
  return out;
}

}  // namespace cgp::runtime
