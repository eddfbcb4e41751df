// SPDX-License-Identifier: Apache-2.0
// Families that have no instructions yet.
#include "cgp/emu/families.h"

namespace cgp::emu {
void add_convert(Table&) {}
void add_atomic(Table&) {}
void add_warp(Table&) {}
void add_video(Table&) {}
}  // namespace cgp::emu
