// SPDX-License-Identifier: Apache-2.0
#pragma once
// A recorded kernel as a WebGPU or Vulkan compute shader: WGSL text or SPIR-V words with what the host must bind.
//
// Both languages take the same parameter block: the bytes of the PTX parameters at their PTX offsets
// (Parameter::offset), rounded up to 16 bytes. They differ in what stands for a pointer.
//   WGSL    The block is the uniform buffer at group 0, binding 0; buffers are storage buffers of group 0 at
//           Parameter::binding. A pointer's low word is the byte offset of its first element from the start of the
//           binding, its high word is 1, and a null pointer is two zero words (its binding takes any buffer that the
//           other parameters do not use). The binding's start must be aligned
//           to 256 bytes and reach all that the kernel reads and writes; its size is a multiple of 16 bytes.
//           Addresses are 32-bit byte offsets: a binding holds less than 4 GiB.
//   SPIR-V  The block is the push constants, or lies in a buffer whose 64-bit device address is the only push
//           constant (Shader::block_by_address). A pointer is its 64-bit device address
//           (VK_KHR_buffer_device_address).
// The grid is the dispatch: %ctaid is the workgroup's id, %nctaid the number of workgroups.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cgp/ptx/module.h"

namespace cgp::shader {

/// Cooperative matrices (SPV_KHR_cooperative_matrix; of bf16 with SPV_KHR_bfloat16) of 16 x 16 and 16 x `columns` into f32 that a
/// device spreads over 32 threads as PTX spreads the operands of mma.m16n8k16: the elements of a thread are its registers', in
/// one of two orders each.
struct MatrixLayout {
  int columns = 8;  ///< 8, or 16: two products with one A are one, and a lone one has zeros beside it
  bool a_by_rows =
      false;  ///< the registers of A's row g before those of g + 8; else of K's first half before the second
  bool b_by_k =
      false;  ///< columns 16: of K's first half before the second; else of the first 8 columns before the others
  bool c_by_rows =
      false;  ///< columns 16: of row g before those of g + 8; else of the first 8 columns before the others
  friend bool operator==(const MatrixLayout&, const MatrixLayout&) = default;
};

struct ShaderOptions {
  /// Threads of a block, for kernels without .reqntid. PTX leaves it to the launch; a shader fixes it.
  std::array<std::uint32_t, 3> block{256, 1, 1};
  /// Bytes of dynamic shared memory, beyond what the kernel declares.
  std::uint32_t dynamic_shared = 0;
  /// Invocations of a subgroup, where the device fixes them and numbers them along the local invocation index.
  /// 32: shuffles and votes are subgroup operations. Anything else (0: not known): they go through workgroup
  /// memory, which is right for any subgroup size.
  std::uint32_t subgroup_size = 0;
  /// WGSL with subgroup operations: begin with "enable subgroups;", as the language asks. naga (wgpu-native) up to 29 has
  /// the operations and refuses the line.
  bool subgroup_directive = true;
  /// WGSL: for each pointer parameter (in order) the number of its buffer. Parameters with one number share a
  /// binding, as WebGPU asks of slices of one buffer of which one is written. Empty: each has its own.
  std::vector<std::uint32_t> buffers;
  /// SPIR-V: f16 is converted by the device's own instructions, where it has shaderFloat16, keeps subnormals of f16 and rounds it to
  /// nearest even on request. Otherwise by integers.
  bool float16 = false;
  /// SPIR-V, with subgroup_size 32: how mma.sync of f16, and of bf16, is a product of cooperative matrices. Without: the threads
  /// multiply what they tell each other.
  std::optional<MatrixLayout> matrix_f16, matrix_bf16;
  /// SPIR-V: workgroup memory is accessed in words of 8 and 16 bytes where PTX does so (workgroupMemoryExplicitLayout), and in
  /// bytes and halves (with the 8- and 16-bit access of that feature).
  bool wide_shared = false, narrow_shared = false;
  /// SPIR-V: bytes of push constants that the device has. A larger block is read through an address.
  std::uint32_t push_constants = 128;
};

/// One PTX parameter, or one pointer in a struct that is passed by value.
struct Parameter {
  enum class Kind : std::uint8_t { scalar, pointer };
  std::string name;
  Kind kind = Kind::scalar;
  std::uint32_t offset = 0;  ///< bytes from the start of the parameter block
  std::uint32_t bytes = 4;   ///< in the block; 8 for pointers
  std::uint32_t binding =
      0;  ///< WGSL, pointers: the storage buffer; 0 where the kernel does not access memory by it
  bool writable = false;  ///< pointers: the kernel may write (WGSL: the binding's access is read_write)
};

/// What the device must have, beyond the default limits that the host compares itself.
struct Requirements {
  bool subgroups = false;  ///< shuffle and ballot, with the options' subgroup size; "subgroups" in WebGPU
  bool int64 = false;      ///< SPIR-V: shaderInt64
  bool device_address = false;  ///< SPIR-V: bufferDeviceAddress
  bool float16 = false;         ///< SPIR-V: as ShaderOptions::float16
  bool matrix_f16 = false;      ///< SPIR-V: cooperative matrices, as ShaderOptions
  bool matrix_bf16 = false;
  bool wide_shared = false;  ///< SPIR-V: as ShaderOptions
  bool narrow_shared = false;
  bool storage16 = false;             ///< SPIR-V: storageBuffer16BitAccess
  bool storage8 = false;              ///< SPIR-V: storageBuffer8BitAccess
  std::uint32_t shared_bytes = 0;     ///< workgroup memory, scratch for shuffles included
  std::uint32_t threads = 0;          ///< invocations of a workgroup
  std::uint32_t storage_buffers = 0;  ///< WGSL: bindings
};

struct Shader {
  std::string entry;  ///< the shader's entry point
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::vector<Parameter> parameters;
  std::uint32_t block_bytes =
      0;  ///< of the parameter block, a multiple of 16; 0: the kernel has no parameters
  bool block_by_address = false;  ///< SPIR-V
  Requirements needs;
  std::string wgsl;                  ///< of translate_wgsl
  std::vector<std::uint32_t> spirv;  ///< of translate_spirv: SPIR-V 1.5 for Vulkan 1.2
};

/// Both are deterministic. They throw BuildError, before anything is written, naming the instruction, its source
/// line and why, for what is outside the portable subset (docs/shader.md), VerifyError for a module that is not legal
/// PTX, and ArgumentError for an entry that is not in the module or options that do not fit it.
Shader translate_wgsl(const ptx::Module& m, std::string_view entry, const ShaderOptions& o = {});
Shader translate_spirv(const ptx::Module& m, std::string_view entry, const ShaderOptions& o = {});

}  // namespace cgp::shader
