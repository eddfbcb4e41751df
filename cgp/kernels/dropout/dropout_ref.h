// SPDX-License-Identifier: Apache-2.0
#pragma once
// Philox4x32-10 on the host, as its paper writes it.
#include <array>
#include <cstdint>

namespace cgp::kernels {

inline std::array<std::uint32_t, 4> philox_ref(std::array<std::uint32_t, 4> c,
                                               std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xd2511f53ull * c[0], b = 0xcd9e8d57ull * c[2];
    c = {std::uint32_t(b >> 32) ^ c[1] ^ key[0], std::uint32_t(b), std::uint32_t(a >> 32) ^ c[3] ^ key[1],
         std::uint32_t(a)};
    key[0] += 0x9e3779b9u, key[1] += 0xbb67ae85u;
  }
  return c;
}

}  // namespace cgp::kernels
