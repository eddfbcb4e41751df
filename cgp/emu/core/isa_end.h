// SPDX-License-Identifier: Apache-2.0
// Closes what isa_begin.h opened.
}  // namespace CGP_EMU_ISA
}  // namespace cgp::emu
#if defined(CGP_EMU_AVX512)
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
