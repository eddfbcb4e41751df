// SPDX-License-Identifier: Apache-2.0
// Opens the instruction-set namespace of a file that is compiled twice (CGP_EMU_AVX512 set or not). Include
// last, after every other header, so that only the file's own functions are compiled for AVX-512: an inline
// function of the standard library must not be, or the linker might keep that copy for machines that lack it.
#if defined(CGP_EMU_AVX512)
#if defined(__clang__)
#pragma clang attribute push(                                                                        \
    __attribute__((                                                                                  \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi,bmi2,popcnt,lzcnt"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx2,fma,f16c,bmi,bmi2,popcnt,lzcnt,prefer-vector-width=512")
#endif
#define CGP_EMU_ISA isa_avx512
#else
#define CGP_EMU_ISA isa_portable
#endif

namespace cgp::emu {
namespace CGP_EMU_ISA {
