// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which instructions this processor has, found once at run time, so that one binary runs on every x86-64
// (and, with the scalar versions, elsewhere). Each family of kernels (loops/, matvec/, gemm/, quant/) has a
// version per instruction set in a file of its own, the only one compiled for it; next: loops/loops.h.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::cpu {

/// Each includes those before it, except that a processor with AVX-512 may lack avx_vnni. avx2 is AVX2 with FMA and F16C;
/// avx512 is F, BW, DQ and VL; amx is AMX-TILE and AMX-BF16, which Linux must grant to the process.
enum class Isa : std::uint8_t { scalar, sse2, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, amx };
std::string_view name(Isa isa);
/// Narrowest first.
std::vector<Isa> all_isas();
/// Processor and operating system.
bool has(Isa isa);
Isa widest_isa();
/// What is used when nothing is asked for: the widest, or the one that the environment variable CGP_SIMD
/// names. Throws ArgumentError for a name that is none, Unsupported for one that this processor lacks.
Isa chosen_isa();
/// "avx2"; throws ArgumentError with the names there are.
Isa isa_of(std::string_view name);
/// Throws Unsupported.
void require(Isa isa);

/// Bytes of the data caches that one core sees; 32 KiB, 1 MiB and 32 MiB where nothing tells.
struct Caches {
  std::int64_t l1 = 32 << 10, l2 = 1 << 20, l3 = 32 << 20;
};
/// Of this processor: cpuid (leaf 4, on AMD 0x8000001D).
const Caches& caches();

/// Memory at a multiple of 64 bytes, for packed operands. Uninitialised.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(std::size_t bytes);
  ~AlignedBuffer();
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  /// At least so many bytes; what was there is lost when it grows.
  void* at_least(std::size_t bytes);
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace cgp::cpu
