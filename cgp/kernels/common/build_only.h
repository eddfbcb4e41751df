// SPDX-License-Identifier: Apache-2.0
#pragma once
// The names of what ships, without building it: recording every kernel of the catalogue takes many seconds.
#include <string>
#include <vector>

#include "cgp/kernels/common/variant.h"

namespace cgp::kernels {

/// While one lives, images() on its thread builds the variant of that name alone; of all others it gives the
/// name and entry (KernelImage::ptx stays null). No name: it builds none, as `cgp list` needs. They nest.
class BuildOnly {
 public:
  explicit BuildOnly(std::string variant = {});
  ~BuildOnly();
  BuildOnly(const BuildOnly&) = delete;
  BuildOnly& operator=(const BuildOnly&) = delete;

  static const BuildOnly* current();
  const std::string& variant() const { return variant_; }
  /// The variants that images() was asked for.
  const std::vector<Variant>& met() const { return met_; }
  void meet(const Variant& v) const { met_.push_back(v); }

 private:
  std::string variant_;
  mutable std::vector<Variant> met_;
  const BuildOnly* outer_;
};

}  // namespace cgp::kernels
