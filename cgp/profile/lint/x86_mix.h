// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which vector instructions a program for x86-64 holds, function by function, from what objdump -d prints.
// What is in the file, not what runs: cgp profile binary --count step counts that.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cgp::profile {

/// By the width of the registers that an instruction names.
struct X86Mix {
  std::uint64_t integer = 0;       ///< no vector register
  std::uint64_t scalar_float = 0;  ///< one float in a vector register (addss, vmulsd), and x87
  std::uint64_t sse = 0;           ///< 128 bits, without VEX
  std::uint64_t avx128 = 0, avx256 = 0;
  std::uint64_t avx512 = 0;  ///< zmm, mask registers, or registers 16 to 31
  std::uint64_t amx = 0;
  std::uint64_t total() const { return integer + scalar_float + sse + avx128 + avx256 + avx512 + amx; }
  std::uint64_t vectors() const { return sse + avx128 + avx256 + avx512 + amx; }
  void add(const X86Mix& o);
};
enum class X86Kind : std::uint8_t { integer, scalar_float, sse, avx128, avx256, avx512, amx };
/// Of one instruction in AT&T syntax: "vaddps %ymm1,%ymm2,%ymm0".
X86Kind x86_kind(std::string_view instruction);

struct X86Function {
  std::string name;
  X86Mix mix;
};
/// In order of the listing.
std::vector<X86Function> x86_functions(std::string_view listing);

}  // namespace cgp::profile
