// SPDX-License-Identifier: Apache-2.0
#pragma once
// Module to PTX text, deterministic to the byte.
#include <string>

#include "cgp/ptx/module.h"

namespace cgp::ptx {

std::string print(const Module& m);
/// One instruction as the printer writes it, for messages: "add.s32 %r1, %r2, 4;".
std::string print(const Module& m, const Function& f, const Inst& inst);

}  // namespace cgp::ptx
