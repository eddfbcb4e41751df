// SPDX-License-Identifier: Apache-2.0
#pragma once
// Accesses of whole warps to words, as long as nothing needs a closer look: what kernels do most. All return
// false, and change nothing, when something does: race::on_access() then looks.
#include "cgp/emu/race/race.h"

namespace cgp::emu {
struct Allocation;
namespace race {

/// Lane l accesses `bytes` (whole words) at `offset` + l * bytes of the block's own shared memory.
bool shared_row(Warp& w, const Op& op, std::uint32_t offset, std::uint32_t bytes, Use use);
/// Lane l accesses word l ^ turn of the line of 32 words at `offset`.
bool shared_line(Warp& w, const Op& op, std::uint32_t offset, std::uint32_t turn, Use use);
/// Lane l accesses the word at offset[l]; no two lanes the same one.
bool shared_words(Warp& w, const Op& op, const std::uint32_t* offset, Use use);
/// Lane l reads `bytes` (1, 2 or 4 words) at offset[l]; lanes may read the same.
bool shared_groups(Warp& w, const Op& op, const std::uint32_t* offset, std::uint32_t bytes);
/// Lanes fill lines of 32 words: the first 128 / `bytes` of them that at line[0], and so on.
bool shared_lines(Warp& w, const Op& op, const std::uint32_t* line, std::uint32_t bytes, Use use);
bool global_lines(Warp& w, const Op& op, const Allocation& in, const std::uint32_t* line, std::uint32_t bytes,
                  Use use);
/// As shared_row(), at `offset` of an allocation.
bool global_row(Warp& w, const Op& op, const Allocation& in, std::uint64_t offset, std::uint32_t bytes,
                Use use);

}  // namespace race
}  // namespace cgp::emu
