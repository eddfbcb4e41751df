// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/occupancy.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

std::uint64_t round_up(std::uint64_t v, std::uint64_t to) { return (v + to - 1) / to * to; }

std::string impossible(const ChipLimits& c, const LaunchShape& s) {
  if (s.threads < 1 || s.threads > c.threads_per_block)
    return text::cat("a block has 1 to ", c.threads_per_block, " threads, not ", s.threads);
  if (s.registers < 0 || s.registers > c.registers_per_thread)
    return text::cat("a thread has at most ", c.registers_per_thread, " registers, not ", s.registers);
  if (s.shared > c.shared_per_block)
    return text::cat("a block has at most ", text::bytes(c.shared_per_block), " of shared memory, not ",
                     text::bytes(s.shared));
  return {};
}

}  // namespace

Occupancy occupancy(int sm, const LaunchShape& s) {
  const ChipLimits* found = chip_limits(sm);
  if (!found) throw Unsupported(text::cat("occupancy of sm_", sm, " is not known"));
  const ChipLimits& c = *found;
  Occupancy o;
  o.reason = impossible(c, s);
  if (!o.reason.empty()) return o;
  const int warps = (s.threads + 31) / 32;
  o.by_blocks = c.blocks_per_sm;
  o.by_warps = c.warps_per_sm / warps;
  o.by_registers = c.blocks_per_sm;
  const int per_warp = int(round_up(std::uint64_t(s.registers) * 32, std::uint64_t(c.register_granularity)));
  if (per_warp) {
    // Each of the four sub-partitions has its own quarter of the registers.
    const int warps_per_partition = c.registers_per_sm / c.warp_granularity / per_warp;
    o.by_registers = warps_per_partition * c.warp_granularity / warps;
    if (std::uint64_t(per_warp) * round_up(std::uint64_t(warps), std::uint64_t(c.warp_granularity)) >
        std::uint64_t(c.registers_per_sm))
      o.by_registers = 0;
  }
  const std::uint64_t shared = round_up(s.shared + c.shared_reserved, c.shared_granularity);
  o.by_shared = shared
                    ? int(std::min<std::uint64_t>(c.shared_per_sm / shared, std::uint64_t(c.blocks_per_sm)))
                    : c.blocks_per_sm;
  o.blocks = std::min({o.by_warps, o.by_blocks, o.by_registers, o.by_shared});
  o.warps = o.blocks * warps;
  o.fraction = double(o.warps) / c.warps_per_sm;
  if (o.blocks == o.by_registers && o.by_registers < std::min(o.by_warps, o.by_blocks)) {
    o.limit = "registers";
    o.reason =
        text::cat(s.threads, " threads with ", s.registers, " registers take ",
                  std::uint64_t(per_warp) * std::uint64_t(warps), " of ", c.registers_per_sm, " registers");
    if (o.blocks == 0) o.reason += ": not even one block fits";
  } else if (o.blocks == o.by_shared && o.by_shared < std::min(o.by_warps, o.by_blocks)) {
    o.limit = "shared memory";
    o.reason = text::cat("a block takes ", text::bytes(shared), " of ", text::bytes(c.shared_per_sm),
                         " of shared memory");
  } else if (o.blocks == o.by_warps && o.by_warps <= o.by_blocks) {
    o.limit = "warps";
    o.reason = text::cat("a block has ", warps, " of ", c.warps_per_sm, " warps");
  } else {
    o.limit = "blocks";
    o.reason = text::cat("an SM holds at most ", c.blocks_per_sm, " blocks");
  }
  return o;
}

}  // namespace cgp::ptx
