// SPDX-License-Identifier: Apache-2.0
#pragma once
// A kernel as the runtime takes it: PTX text (and cubins, if there are any), the entry's name, its parameters
// and its shape. Made by the DSL's glue, or by image_from_ptx() from foreign PTX.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/base/dtype.h"
#include "cgp/runtime/launch.h"
#include "cgp/runtime/tensor_map.h"

namespace cgp::runtime {

enum class ParamKind : std::uint8_t {
  scalar,      ///< by value, `dtype` is its type
  pointer,     ///< 64-bit global address; `dtype` is the element type, or absent for "any"
  tensor_map,  ///< 128 bytes, by value (.param .align 64 .b8 [128])
  bytes,       ///< a struct by value, `bytes` long
  word,        ///< foreign PTX does not say whether a .u64 is an address: any scalar or pointer of that width
};
std::string_view name(ParamKind k);

struct Param {
  std::string name;
  ParamKind kind = ParamKind::scalar;
  std::optional<DType> dtype;
  std::uint32_t bytes = 4;
  std::uint32_t align = 4;
  bool writable = true;  ///< pointers: the kernel may write through it, so a const Buffer is refused
  std::optional<TensorMapSpec>
      tensor{};  ///< tensor maps: type, box and swizzle that the kernel was built for

  static Param scalar(std::string name, DType t);
  static Param input(std::string name, std::optional<DType> t);   ///< pointer, read only
  static Param output(std::string name, std::optional<DType> t);  ///< pointer, may be written
  static Param tensor_map(std::string name);
  static Param raw(std::string name, std::uint32_t bytes, std::uint32_t align);
};

/// Machine code for one architecture, from ptxas.
struct Cubin {
  std::string arch;  ///< "sm_90a"
  std::string bytes;
};

struct KernelImage {
  std::string name;   ///< for people and messages; need not be unique
  std::string entry;  ///< the .entry's symbol
  std::shared_ptr<const std::string> ptx;
  std::vector<Param> params;
  Dim3 block = kFromKernel;  ///< kFromKernel: each launch says it
  Dim3 cluster{1, 1, 1};
  std::uint32_t dynamic_smem = 0;              ///< bytes, beyond what the module declares statically
  std::uint32_t max_threads_per_block = 1024;  ///< .maxntid; `block` says more when it is fixed
  bool cooperative = false;
  std::vector<Cubin> cubins;  ///< tried before the PTX is compiled
};

/// Reads signature, block and cluster shape of `entry` from PTX (of the only entry, if empty). Scalars of 8
/// bytes become ParamKind::word. Throws ParseError, or ArgumentError naming the entries there are.
KernelImage image_from_ptx(std::string ptx, std::string_view entry = {});

std::vector<std::string> entries_of_ptx(std::string_view ptx);
/// The first word of .target, without parsing the rest; empty if there is none.
std::string target_of_ptx(std::string_view ptx);
/// The cubin that fits an architecture best: made for exactly it, else for an earlier minor of the same major
/// (cubins of `a` targets fit exactly or not at all); null: none fits.
const Cubin* choose_cubin(const std::vector<Cubin>& cubins, std::string_view arch);

}  // namespace cgp::runtime
