// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/module.h"

#include <bit>

namespace cgp::ptx {

Operand Operand::of(RegId r, bool negated) {
  Operand o;
  o.kind = OperandKind::reg;
  o.reg = r;
  o.negated = negated;
  return o;
}

}  // namespace cgp::ptx
