// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machine code that comes with the program: what ptxas made of the shipped variants when it was built
// (CMake: -DCGP_EMBED_CUBINS="90a;100a", programs: cgp_embed_cubins(target)), so that nothing is compiled
// when a kernel is first used. A cubin is found by the hash of the PTX that it was made of: one that does not
// fit the kernel of today is not found, and the PTX is compiled as without a pack.
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cgp/runtime/kernel_image.h"

namespace cgp::kernels {

/// Collects cubins and writes them as one block of bytes.
class CubinPackWriter {
 public:
  void add(std::string_view ptx, std::string_view arch, std::string cubin);
  std::size_t size() const { return cubins_.size(); }
  std::string bytes() const;

 private:
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> cubins_;  // by hash
};

/// Reads such a block, which must outlive it.
class CubinPack {
 public:
  CubinPack() = default;
  /// ArgumentError when it is not one.
  explicit CubinPack(std::span<const std::byte> bytes);
  std::size_t size() const { return count_; }
  std::optional<std::string_view> find(std::string_view ptx, std::string_view arch) const;

 private:
  std::span<const std::byte> bytes_;
  std::size_t count_ = 0;
};

/// The pack of this program, empty without one. load() of variant.h looks here.
const CubinPack& embedded_cubins();
/// Called by the object that carries the pack; for tests too.
void set_embedded_cubins(std::span<const std::byte> bytes);
/// Adds the pack's cubin to the image, if there is one.
void attach_embedded(runtime::KernelImage& image, std::string_view arch);

}  // namespace cgp::kernels
