// SPDX-License-Identifier: Apache-2.0
// The object that carries the pack (the file CGP_CUBIN_PACK of the build) into a program.
#include <cstddef>

#include "cgp/kernels/pack/cubin_pack.h"

asm(".pushsection .rodata,\"a\",@progbits\n"
    ".balign 64\n"
    ".globl cgp_cubin_pack_begin\n"
    ".hidden cgp_cubin_pack_begin\n"
    "cgp_cubin_pack_begin:\n"
    ".incbin \"" CGP_CUBIN_PACK
    "\"\n"
    ".globl cgp_cubin_pack_end\n"
    ".hidden cgp_cubin_pack_end\n"
    "cgp_cubin_pack_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
[[gnu::visibility("hidden")]] extern const std::byte cgp_cubin_pack_begin[], cgp_cubin_pack_end[];
}

namespace {
[[maybe_unused]] const bool registered = [] {
  cgp::kernels::set_embedded_cubins(
      {cgp_cubin_pack_begin, std::size_t(cgp_cubin_pack_end - cgp_cubin_pack_begin)});
  return true;
}();
}  // namespace
