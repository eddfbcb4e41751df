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

}  // namespace cgp::runtime
