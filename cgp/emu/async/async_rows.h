// SPDX-License-Identifier: Apache-2.0
#pragma once
// Registers of asynchronous instructions between their issue and their wait (async.register): accumulators
// and register operands of wgmma, destinations of tcgen05.ld, sources of tcgen05.st. Ordinary instructions
// that read a register still being written, or write one still being read or written, are reported.
//
// A family does four things:
//   decode   op.flags |= kAsyncOwner; d.async_rows(rows): every other instruction of the function that
//            touches these rows gets kAsyncRow, so that nothing else pays for the check
//   issue    issue_rows(w, unit, op, reads, writes, n): n counts the operations of this unit and warp from 1
//   wait     settle_rows(w, unit, n): the operations up to n are complete
//   fence    fence_rows / check_fenced where a fence must lie between ordinary writes and the issue (wgmma)
// The books are kept per warp: these instructions are executed by whole warps.
#include <span>

#include "cgp/emu/core/machine.h"

namespace cgp::emu {

enum class AsyncUnit : std::uint8_t { wgmma, tensor_load, tensor_store };
inline constexpr std::size_t kAsyncUnits = 3;

void issue_rows(Warp& w, AsyncUnit unit, const Op& op, std::span<const Loc> reads,
                std::span<const Loc> writes, std::uint64_t number);
void settle_rows(Warp& w, AsyncUnit unit, std::uint64_t number);

/// Ordinary accesses to registers up to here are ordered before the asynchronous instructions that follow.
void fence_rows(Warp& w);
/// Reports a row that ordinary instructions wrote and `op` is about to read, when there was no fence_rows
/// since the last wait.
void check_fenced(Warp& w, const Op& op, std::span<const Loc> uses, bool overwrites);

/// Called by the machine for an instruction with kAsyncRow.
void note_rows(Warp& w, const Op& op);

}  // namespace cgp::emu
