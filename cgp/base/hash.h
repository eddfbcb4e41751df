// SPDX-License-Identifier: Apache-2.0
#pragma once
// 128 bits of a text, for caches: by folding 64 x 64 multiplications over 16 bytes at a time. Not against an
// adversary, but ample against accident.
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cgp {

struct Hash128 {
  std::uint64_t a = 0x243f6a8885a308d3ull, b = 0x13198a2e03707344ull;

  static std::uint64_t fold(std::uint64_t x, std::uint64_t y) {
    __extension__ typedef unsigned __int128 Wide;
    const Wide p = Wide(x) * y;
    return std::uint64_t(p) ^ std::uint64_t(p >> 64);
  }
  /// add("ab"), add("c") differs from add("abc").
  void add(std::string_view s) {
    const std::size_t n = s.size();
    while (!s.empty()) {
      std::uint64_t w[2] = {0, 0};
      const std::size_t take = s.size() < 16 ? s.size() : 16;
      std::memcpy(w, s.data(), take);
      a = fold(a ^ w[0] ^ 0xa4093822299f31d0ull, w[1] ^ 0x082efa98ec4e6c89ull) + b;
      b = fold(b ^ w[1] ^ 0x452821e638d01377ull, w[0] ^ 0xbe5466cf34e90c6cull) + a;
      s.remove_prefix(take);
    }
    a = fold(a ^ n, 0xc0ac29b7c97c50ddull) + b;
    b = fold(b ^ n, 0x3f84d5b5b5470917ull) ^ a;
  }
};

}  // namespace cgp
