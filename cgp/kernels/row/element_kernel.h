// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels that work element by element: any number of inputs and outputs of one shape, f32 inside. A launch
// takes rows with any pitches; rows without gaps are one long row. 16-byte accesses where everything is
// aligned for them (a ragged end goes by a second launch), else single elements.
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"
#include "cgp/kernels/row/elements.h"

namespace cgp::kernels::row {

inline constexpr int kMostTensors = 3;  ///< inputs, and outputs

/// What is done to elements. Build-time members decide code; run-time ones are parameters p0 to p3.
class ElementOp {
 public:
  virtual ~ElementOp() = default;
  /// `in[i]` has the same number of elements for each input; `column` is empty without one; `index` is the
  /// number of the first element, counted row by row without gaps.
  virtual std::vector<Floats> apply(Kernel& k, const std::vector<Floats>& in, const Floats& column,
                                    const Val<u64>& index, const std::vector<Val<u64>>& parameters) const = 0;
};

struct ElementProblem {
  std::string_view name;  ///< of the operation, for errors and the kernel's name
  std::shared_ptr<const ElementOp> op;
  std::string form;  ///< build-time choices of `op`, as a part of the kernel's name
  std::vector<std::pair<const char*, View>> inputs, outputs;
  std::vector<Layout> input_layouts, output_layouts;  ///< as many, or none
  View column;                                        ///< one value per column, optional
  const char* column_name = "bias";
  std::uint64_t rows = 0, cols = 0;
  std::vector<std::uint64_t> parameters;
  bool expensive = false;  ///< 20 instructions an element or more
};

/// Checks the arguments and queues one or two launches.
void run_elements(runtime::Stream& s, const ElementProblem& p);
/// What would run.
std::vector<Variant> element_variants(const ElementProblem& p);

}  // namespace cgp::kernels::row
