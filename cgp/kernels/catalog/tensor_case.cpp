// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/catalog/tensor_case.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::kernels::row {

View TensorCase::input(std::string name, HostArray a) {
  auto buffer = device_.alloc<std::byte>(a.bytes.size(), name);
  buffer.upload(a.bytes);
  bytes += double(a.bytes.size());
  View v(buffer.address(), a.size(), a.dtype, false, device_.backend().get());
  tensors_.push_back({std::move(name), std::move(a), std::move(buffer), false});
  return v;
}
View TensorCase::output(std::string name, DType t, std::vector<std::uint64_t> shape) {
  HostArray a(t, std::move(shape));
  auto buffer = device_.alloc<std::byte>(a.bytes.size(), name);
  bytes += double(a.bytes.size());
  View v(buffer.address(), a.size(), t, true, device_.backend().get());
  tensors_.push_back({std::move(name), std::move(a), std::move(buffer), true});
  return v;
}
View TensorCase::workspace(DType t, std::uint64_t elements) {
  auto buffer = device_.alloc<std::byte>(elements * std::uint64_t(cgp::bytes(t)), "workspace");
  View v(buffer.address(), elements, t, true, device_.backend().get());
  tensors_.push_back({"", HostArray(), std::move(buffer), false});
  return v;
}
const HostArray& TensorCase::host(std::string_view name) const {
  for (const auto& t : tensors_)
    if (t.name == name) return t.host;
  throw ArgumentError(text::cat("this case has no array ", name));
}
void TensorCase::runs(const std::vector<Variant>& variants, std::string reason) {
  variant.clear(), images.clear();
  for (const auto& v : variants) {
    if (variant.empty()) variant = v.name;
    images.push_back(image(v, device_.info().arch));
  }
  why = std::move(reason);
}
std::vector<NamedArray> TensorCase::outputs() {
  std::vector<NamedArray> all;
  for (auto& t : tensors_) {
    if (!t.output) continue;
    HostArray a(t.host.dtype, t.host.shape);
    t.device.download(a.bytes);
    all.push_back({t.name, std::move(a)});
  }
  return all;
}
Check TensorCase::verify() {
  const auto got = outputs();
  Check worst;
  worst.pass = true;
  std::uint64_t compared = 0;
  for (const auto& e : oracle(*this)) {
    const NamedArray* array = nullptr;
    for (const auto& a : got)
      if (a.name == e.name) array = &a;
    if (!array) throw ArgumentError(text::cat("the oracle names an output that is not there: ", e.name));
    auto c = compare(array->array, e.want, [&](std::uint64_t i) { return e.tolerance[i]; });
    compared += c.compared;
    if (!c.pass) {
      c.pattern = text::cat("output ", e.name, c.pattern.empty() ? "" : ", ", c.pattern);
      return c;
    }
    if (c.worst_ratio >= worst.worst_ratio) worst = std::move(c);
  }
  worst.compared = compared;
  return worst;
}

DType float_option(const Options& o, std::string_view name) {
  const DType legal[] = {DType::f32, DType::f16, DType::bf16};
  return o.dtype(name, legal);
}

RowShape row_shape(const Options& o, const std::vector<NamedArray>& given, std::string_view array,
                   std::string_view rows) {
  RowShape s{float_option(o, "dtype"), o.size(rows), o.size("cols")};
  if (const HostArray* a = find_input(given, array)) {
    s.type = a->dtype;
    s.cols = a->shape.empty() ? 1 : a->shape.back();
    s.rows = s.cols ? a->size() / s.cols : 0;
    o.agree(array, *a, {{std::string(rows), s.rows}, {"cols", s.cols}});
  }
  return s;
}

void expect_indices(std::string_view kernel, std::string_view name, const HostArray& a, std::uint64_t count,
                    std::optional<std::int64_t> ignored) {
  for (std::uint64_t i = 0; i < a.size(); ++i) {
    const double v = a.at(i);
    if ((v >= 0 && v < double(count)) || (ignored && v == double(*ignored))) continue;
    throw ArgumentError(
        {text::cat(kernel, ": ", name, " must be from 0 to ", count, " - 1",
                   ignored ? text::cat(", or ", *ignored, " for a row to ignore") : std::string()),
         {},
         text::cat(name, "[", i, "] is ", std::int64_t(v)),
         {}});
  }
}

}  // namespace cgp::kernels::row
