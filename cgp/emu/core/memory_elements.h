// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the handlers of ld and st share: the rows of their elements, and the handlers for AVX-512.
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

/// Rows of the elements of a load or store.
struct Elements {
  std::array<Loc, 32> at{};
  int count = 0, bytes = 0, cell = 0;
  bool sign = false;
};

enum WordKind : std::uint8_t { kLoadWords = 1, kStoreWords };

/// Any load and store (exec_memory.cpp).
void exec_load(Warp& w, const Op& op);
void exec_store(Warp& w, const Op& op);
/// Whether lane `lane` stores what lane `other` does, or (other < 0) what is at `at`. For the race detector.
bool same_stored_value(Warp& w, const Op& op, int lane, int other, const std::byte* at);

#if defined(__x86_64__) && !defined(CGP_EMU_PORTABLE_ONLY)
namespace isa_avx512 {
/// The handler of weak loads and stores of one, two or four 4-byte elements in global or shared memory, for
/// machines with AVX-512 (exec_memory_avx512.cpp); nullptr: there is none. One look at the addresses of the
/// warp, then rows, gathers and scatters. Whatever is not in range, aligned and written falls back to the
/// general handler, which reports it. The rows of the elements are also in op.d, b, c and e, and op.kind is a
/// WordKind.
Handler word_handler(const Op& op, bool store, int count);
}  // namespace isa_avx512
#endif

}  // namespace cgp::emu
