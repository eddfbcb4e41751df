// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/dyn_warp.h"

#include "cgp/dsl/mma/mma.h"

namespace cgp::dsl {

DynWarpProduct::DynWarpProduct(Kernel& k, ptx::Mod type, int rows, int cols, const Side& a, const Side& b)
    : k_(k),
      type_(type),
      rows_(rows),
      cols_(cols),
      a_(a),
      b_(b),
      values_(record::zero_registers(k, ptx::Mod::f32, rows * cols / 32, k.here())) {
  if (rows % 16 || cols % 8)
    throw BuildError("a warp's accumulator is made of 16 x 8 blocks", k.here(), text::cat(rows, " x ", cols));
}

void DynWarpProduct::add(const Val<u32>& base, int offset_a, int offset_b, int steps, Here at) {
  const record::WarpProduct product{{type_, type_, ptx::Mod::f32, 16, 8, 16}, rows_ / 16, cols_ / 8, 4, 2, 4};
  TileLanes of_a(a_.tile, base + a_.lane, offset_a), of_b(b_.tile, base + b_.lane, offset_b);
  for (int step = 0; step < steps; ++step)
    record::mma_blocks(k_, product, record::load_operand(k_, Operand::a, a_.major, 2, rows_, step, of_a, at),
                       record::load_operand(k_, Operand::b, b_.major, 2, cols_, step, of_b, at), values_, at);
}

}  // namespace cgp::dsl
