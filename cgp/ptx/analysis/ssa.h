// SPDX-License-Identifier: Apache-2.0
#pragma once
// Static single assignment over a PTX function: every write of a register is a Value, and every read knows
// the one Value that reaches it. Where paths with different Values meet there is a phi. The function itself
// is not changed.
#include <cstdint>
#include <vector>

#include "cgp/ptx/cfg.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/module.h"

namespace cgp::ptx {

using ValueId = std::uint32_t;

struct Value {
  enum class Kind : std::uint8_t {
    undefined,  ///< the register before anything wrote it
    parameter,  ///< a parameter of a .func in .reg space
    inst,       ///< written by body[inst]
    phi         ///< paths meet at the beginning of `block`
  };
  Kind kind = Kind::undefined;
  RegId reg = kNone;
  BlockId block = 0;
  std::uint32_t inst = kNone;
  /// phi: one per predecessor, in the order of Block::predecessors (kNone for unreachable ones); block 0 has
  /// one more, the value on entry. inst with a guard: the value that threads without the guard keep.
  std::vector<ValueId> inputs;
};

struct Ssa {
  struct Read {
    RegId reg;
    ValueId value;
  };
  std::vector<Value> values;
  std::vector<std::vector<Read>> reads;      ///< per instruction, the guard included; empty if unreachable
  std::vector<std::vector<ValueId>> writes;  ///< per instruction, in the order of the text
  std::vector<std::vector<ValueId>> phis;    ///< per block

  /// The value that an instruction reads in a register; kNone when it does not read it.
  ValueId read(std::uint32_t inst, RegId reg) const;
  ValueId written(std::uint32_t inst, RegId reg) const;
};

Ssa build_ssa(const Function& f, const Cfg& c, const Liveness& l);

}  // namespace cgp::ptx
