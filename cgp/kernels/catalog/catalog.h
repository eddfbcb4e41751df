// SPDX-License-Identifier: Apache-2.0
#pragma once
// Every kernel by name, in a form that tools can drive: options as text, arrays with run-time types, and a
// Case that can be launched, timed and checked. Programs that know what they want include the kernel's own
// header.
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/kernels/common/array.h"
#include "cgp/runtime/device.h"
#include "cgp/runtime/kernel_image.h"
#include "cgp/runtime/stream.h"

namespace cgp::kernels {

struct OptionInfo {
  std::string name, value, help;  ///< `value` is the default
};

/// Options as given, over the kernel's defaults. Getters throw ArgumentError naming option, text and what is
/// legal.
class Options {
 public:
  Options(std::string kernel, std::vector<OptionInfo> defaults);
  void set(std::string_view name,
           std::string_view value);  ///< throws on an unknown name, with the closest ones
  const std::string& text(std::string_view name) const;
  std::uint64_t size(std::string_view name) const;  ///< an integer >= 0
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  bool flag(std::string_view name) const;  ///< 0/1/true/false
  DType dtype(std::string_view name, std::span<const DType> legal) const;
  std::string choice(std::string_view name, std::span<const std::string_view> legal) const;
  const std::vector<OptionInfo>& all() const { return values_; }
  /// Whether set() was called for it.
  bool given(std::string_view name) const;
  /// For sizes that were taken from the input `array`: throws ArgumentError naming both when an option was
  /// given that says something else. "dtype" is compared where the kernel has it.
  void agree(std::string_view array, const HostArray& a,
             const std::vector<std::pair<std::string, std::uint64_t>>& sizes) const;

 private:
  const OptionInfo& find(std::string_view name) const;
  std::string kernel_;
  std::vector<OptionInfo> values_;
  std::vector<std::string> given_;
};

struct NamedArray {
  std::string name;
  HostArray array;
};

/// One problem on one device, ready to run any number of times.
class Case {
 public:
  virtual ~Case() = default;
  virtual void launch(runtime::Stream& s) = 0;  ///< queues the kernel(s); idempotent
  virtual Check verify() = 0;                   ///< of the last launch, waited for by the caller
  virtual std::vector<NamedArray> outputs() = 0;
  std::string variant;                       ///< chosen by the selector
  std::string why;                           ///< the selector's reason
  std::vector<runtime::KernelImage> images;  ///< what launch() runs, in order
  double flops = 0;                          ///< of the algorithm, not of the variant
  double bytes = 0;                          ///< compulsory: inputs once, outputs once
};

struct KernelEntry {
  std::string name, summary;
  std::vector<OptionInfo> options;
  std::vector<std::string> inputs;  ///< names of the arrays that may be given; missing ones are random
  /// Everything that ships for an architecture: (variant, image) for tests that assemble and `cgp list`.
  std::function<std::vector<runtime::KernelImage>(std::string_view arch)> images;
  std::function<std::unique_ptr<Case>(const runtime::Device&, const Options&,
                                      const std::vector<NamedArray>& inputs, std::uint64_t seed)>
      prepare;
};

/// Sorted by name.
std::span<const KernelEntry> catalog();
/// Throws ArgumentError with the closest names.
const KernelEntry& find_kernel(std::string_view name);

/// The array of that name if it was given (its type must be `t` and its shape `shape`), else a random one.
HostArray input_or_random(const std::vector<NamedArray>& given, std::string_view name, DType t,
                          const std::vector<std::uint64_t>& shape, std::uint64_t seed);
/// The given array's shape, if it was given: problems take their sizes from it.
const HostArray* find_input(const std::vector<NamedArray>& given, std::string_view name);

}  // namespace cgp::kernels
