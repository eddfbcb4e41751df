// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds SIMD loads and stores that fault on unaligned addresses (and streaming stores, which all do) in C and
// C++ sources where nothing nearby shows that the address is aligned.
#include <string>
#include <vector>

namespace cgp::profile {

struct SimdRisk {
  std::string file, intrinsic, text;
  int line = 0, bytes = 0;  ///< the alignment that it needs
};
/// An access counts as guarded when its function, up to it, checks or declares an alignment of at least the
/// bytes it needs: % 32, & 31, alignas(64), aligned_alloc, std::assume_aligned, a name with "align" in it.
std::vector<SimdRisk> simd_risks(const std::string& source, const std::string& file);

}  // namespace cgp::profile
