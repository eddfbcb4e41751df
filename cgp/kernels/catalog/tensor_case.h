// SPDX-License-Identifier: Apache-2.0
#pragma once
// A catalogue Case from parts: named inputs and outputs, a closure that launches, an oracle.
#include <deque>
#include <optional>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels::row {

/// What an output must be.
struct Expected {
  std::string name;
  std::vector<double> want, tolerance;
};

class TensorCase : public Case {
 public:
  explicit TensorCase(const runtime::Device& d) : device_(d) {}
  /// Uploads; the view stays valid as long as the case.
  View input(std::string name, HostArray a);
  View output(std::string name, DType t, std::vector<std::uint64_t> shape);
  View workspace(DType t, std::uint64_t elements);
  const HostArray& host(std::string_view name) const;
  /// What a launch runs.
  void runs(const std::vector<Variant>& variants, std::string reason);
  std::function<void(runtime::Stream&)> run;
  std::function<std::vector<Expected>(const TensorCase&)> oracle;

  void launch(runtime::Stream& s) override { run(s); }
  std::vector<NamedArray> outputs() override;
  /// The comparison of all outputs: the first that is wrong, else the one closest to its tolerance.
  Check verify() override;

 private:
  struct Tensor {
    std::string name;
    HostArray host;
    runtime::Buffer<std::byte> device;
    bool output;
  };
  runtime::Device device_;
  std::deque<Tensor> tensors_;
};

/// The option's types; 16-bit ones and f32.
DType float_option(const Options& o, std::string_view name);

struct RowShape {
  DType type = DType::f32;
  std::uint64_t rows = 0, cols = 0;
};
/// Type and shape of the input `array`: those of the array where it is given (the last dimension is a row),
/// else the options dtype, `rows` and cols. Throws where both are given and differ.
RowShape row_shape(const Options& o, const std::vector<NamedArray>& given, std::string_view array,
                   std::string_view rows = "rows");
/// ArgumentError naming the first element of the integer array `a` that is not in [0, count) and is not
/// `ignored`.
void expect_indices(std::string_view kernel, std::string_view name, const HostArray& a, std::uint64_t count,
                    std::optional<std::int64_t> ignored = {});

}  // namespace cgp::kernels::row
