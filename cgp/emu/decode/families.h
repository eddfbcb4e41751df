// SPDX-License-Identifier: Apache-2.0
#pragma once
// The decoders of the families, by file. Their handlers are in handlers.h.
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

void add_arithmetic(Table& t);  ///< decode_arithmetic.cpp: add mul fma ... by type
void add_bits(Table& t);        ///< decode_bits.cpp: logic, shifts, fields, dot products
void add_compare(Table& t);     ///< decode_compare.cpp: setp set selp slct
void add_convert(Table& t);
void add_move(Table& t);
void add_memory(Table& t);
void add_atomic(Table& t);
void add_control(Table& t);
void add_barrier(Table& t);
void add_warp(Table& t);
void add_video(Table& t);         ///< packed: exec_video.cpp
void add_scalar_video(Table& t);  ///< exec_video_scalar.cpp
void add_rewrites(Table& t);      ///< decode_rewrite.cpp: instructions executed as others

/// Everything but the tensor families.
void add_families(Table& t);

/// All participants of a .sync instruction with the lane mask in row `mask`, or false while some are missing
/// (exec_warp.cpp). Lanes with different masks are parted. kNoLoc (PTX before .sync): the active ones.
bool meet_members(Warp& w, const Op& op, Loc mask, std::uint32_t kind, Meeting& m);

}  // namespace cgp::emu
