// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/kernel_image.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::runtime {

std::string_view name(ParamKind k) {
  constexpr std::string_view names[] = {"scalar", "pointer", "tensor map", "struct", "scalar or pointer"};
  return names[int(k)];
}

Param Param::scalar(std::string name, DType t) {
  return {std::move(name),
          ParamKind::scalar,
          t,
          std::uint32_t(cgp::bytes(t)),
          std::uint32_t(cgp::bytes(t)),
          false};
}
Param Param::input(std::string name, std::optional<DType> t) {
  return {std::move(name), ParamKind::pointer, t, 8, 8, false};
}
Param Param::output(std::string name, std::optional<DType> t) {
  return {std::move(name), ParamKind::pointer, t, 8, 8, true};
}
Param Param::tensor_map(std::string name) {
  return {std::move(name), ParamKind::tensor_map, std::nullopt, 128, 64, false};
}
Param Param::raw(std::string name, std::uint32_t bytes, std::uint32_t align) {
  return {std::move(name), ParamKind::bytes, std::nullopt, bytes, align, false};
}

std::string target_of_ptx(std::string_view ptx) {
  for (std::string_view line : text::split(ptx, '\n')) {
    line = text::trim(line);
    if (!line.starts_with(".target")) continue;
    line = text::trim(line.substr(7));
    return std::string(text::trim(line.substr(0, line.find_first_of(", \t/"))));
  }
  return {};
}

const Cubin* choose_cubin(const std::vector<Cubin>& cubins, std::string_view arch) {
  // Machine code runs on later minors of its major only; "sm_90" code runs on a device called sm_90a.
  const auto number = [](std::string_view a) {
    int n = 0;
    for (char c : a.substr(a.starts_with("sm_") ? 3 : 0))
      if (c >= '0' && c <= '9') n = n * 10 + (c - '0');
    return n;
  };
  const auto plain = [](std::string_view a) { return !a.empty() && a.back() >= '0' && a.back() <= '9'; };
  const Cubin* best = nullptr;
  for (const Cubin& c : cubins) {
    if (c.arch == arch) return &c;
    const bool fits =
        plain(c.arch) && number(c.arch) / 10 == number(arch) / 10 && number(c.arch) <= number(arch);
    if (fits && (!best || number(best->arch) < number(c.arch))) best = &c;
  }
  return best;
}

}  // namespace cgp::runtime
