// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/tcgen05_mma.h"

#include <algorithm>
#include <cmath>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/tensor/matrix_plan.h"

namespace cgp::emu {

using ptx::Mod;
using text::cat;

TensorLayout::TensorLayout(int m, int group, bool weight_stationary) {
  rows_ = m / group;
  if (weight_stationary || group == 2)
    folds_ = 128 / rows_;
  else
    scattered_ = rows_ == 64;
}

namespace {

// Bits of an element in shared memory: 6- and 4-bit types of the 8-bit kinds come in slots of 16 elements
// and 16 bytes.
int element_bits(Mod type) {
  switch (type) {
    case Mod::e2m3:
    case Mod::e3m2:
      return 6;
    case Mod::e2m1:
      return 4;
    default:
      return ptx::type_bits(type);
  }
}

std::uint32_t bits_at(const std::byte* p, int bit, int count) {
  std::uint32_t u = 0;
  std::memcpy(&u, p + bit / 8, std::size_t((bit % 8 + count + 7) / 8));
  return u >> bit % 8 & (count == 32 ? ~0u : (1u << count) - 1);
}

// Calls piece(offset, row, k) for the 16-byte pieces of a `rows` x k operand, k elements being `bytes` bytes
// of a row: K-major, elements k and following of `row`; MN-major, element k of the rows from `row` on.
template <class Piece>
void for_pieces(const MatrixDescriptor& d, int rows, int k, int bytes, bool mn_major, Piece&& piece) {
  const int per = k * 16 / bytes;  // elements of a piece
  if (mn_major) {
    for (int kk = 0; kk < k; ++kk)
      for (int row = 0; row < rows; row += per)
        piece(d.mn_major(std::uint32_t(kk), std::uint32_t(row / per * 16)), row, kk);
    return;
  }
  for (int row = 0; row < rows; ++row)
    for (int b = 0; b < bytes; b += 16)
      piece(d.k_major(std::uint32_t(row), std::uint32_t(b)), row, b / 16 * per);
}

// Elements of a `rows` x k operand into out(row, k, bits), without the pieces of rows that nobody wants.
template <class Wanted, class Out>
void read_operand(SharedOperand& reader, const MatrixDescriptor& d, int rows, int k, int bytes, Mod type,
                  bool mn_major, Wanted&& wanted, Out&& out) {
  const int bits = element_bits(type), per = k * 16 / bytes;
  for_pieces(d, rows, k, bytes, mn_major, [&](std::uint32_t offset, int row, int kk) {
    const int count = mn_major ? std::min(per, rows - row) : 1;
    if (!wanted(row, count)) return;
    const std::byte* p = reader.piece(offset);
    for (int i = 0; i < (mn_major ? count : per); ++i)
      out(mn_major ? row + i : row, mn_major ? kk : kk + i, bits_at(p, i * bits, bits));
  });
}

}  // namespace

void MmaStep::read_a(MatrixOperands& m) {
  const int rows = what.m / pair.count();
  for (int c = 0; c < pair.count(); ++c) {
    SharedOperand reader(by, *pair.cta[c], "operand A of tcgen05.mma");
    read_operand(
        reader, a_shared, rows, stored_k(), 32, what.a, what.a_mn_major, [](int, int) { return true; },
        [&](int row, int k, std::uint32_t v) { m.a_bits(c * rows + row, k_of(c * rows + row, k)) = v; });
  }
}

// A in Tensor Memory takes 8 columns of 32 bits; 6- and 4-bit types lie in bytes, e2m1 in bits 2 to 5.
void MmaStep::read_a_tensor(MatrixOperands& m) {
  const TensorLayout layout(what.m, plan->form.group, plan->form.weight_stationary);
  const int bits = packed4() ? 4 : std::max(8, element_bits(what.a)), per = 32 / bits;
  const int shift = bits == 8 && what.a == Mod::e2m1 ? 2 : 0;
  const std::uint32_t keep = (1u << std::min(bits - 1, 31)) * 2 - 1;
  bool differs = false, unwritten = false;
  for (int row = 0; row < what.m; ++row) {
    for (int copy = 0; copy < layout.copies(); ++copy) {
      TensorRow at = layout.a_row(row, copy);
      // .ashift: like tcgen05.shift, but nothing moves in the memory.
      if (plan->ashift && at.lane % 32 != 31) ++at.lane;
      TensorMemory& t = tensor_memory(*pair.cta[at.cta]);
      const int lane = a.lane + at.lane;
      if (!unwritten && !t.all_written(lane, a.column, 8)) {
        unwritten = true;
        report_unwritten_tensor(by, *pair.cta[at.cta], lane, a.column, "operand A of tcgen05.mma reads");
      }
      for (int k = 0; k < stored_k(); ++k) {
        const std::uint32_t v = (*t.row(lane, a.column + k / per) >> (k % per * bits) & keep) >> shift;
        std::uint32_t& to = m.a_bits(row, k_of(row, k));
        if (copy == 0)
          to = v;
        else
          differs = differs || to != v;
      }
    }
  }
  if (differs)
    by.warp->report(
        Check::bounds, "tcgen05.operand", *by.op, lane_bit(by.lane),
        cat("A in Tensor Memory must be there ", layout.copies(), " times, from lanes 0, ",
            128 / layout.copies(), layout.copies() == 4 ? ", 64 and 96" : "", " on, and the copies differ"),
        "with M of 64 (.ws), of 32, and of 128 for a pair, each group of lanes reads its own copy of A");
}

// Sparse A: two of four elements are stored (tf32: one of two), and four bits of metadata for them say which.
// The metadata of row r and k, in units of one bit (tf32: two bits) per k: 8-bit types in lane r, bit k;
// others in the 32-bit column that the sparsity id selects of two, lane r % 8 + 16 * (r / 16) + 8 * (k /
// half) and bit 16 * (r / 8 % 2) + k % half. PTX ISA 9.7.16.10.8, CUTLASS's fragment for it.
void MmaStep::read_metadata(MatrixOperands& m) {
  const int rows = what.m / pair.count(), element = element_bits(what.a);
  const bool bytes = element <= 8;
  const int half = what.k / 2, unit = element == 32 ? 2 : 1, group = element == 32 ? 2 : 4;
  const int column = metadata.column + (bytes ? 0 : what.sparse_id);
  positions_.assign(std::size_t(what.m * stored_k()), 0);
  bool unwritten = false;
  for (int row = 0; row < what.m; ++row) {
    TensorMemory& t = tensor_memory(*pair.cta[row / rows]);
    const int r = row % rows;
    for (int k = 0; k < what.k; k += group) {
      const int lane = bytes ? r : r % 8 + r / 16 * 16 + k / half * 8;
      const int bit = bytes ? k : r / 8 % 2 * 16 + k % half * unit;
      if (!unwritten && !t.is_written(lane, column + bit / 32)) {
        unwritten = true;
        report_unwritten_tensor(by, *pair.cta[row / rows], lane, column + bit / 32,
                                "the sparsity metadata is");
      }
      const std::uint32_t pattern = *t.row(lane, column + bit / 32) >> bit % 32 & 15;
      std::uint16_t* to = &positions_[std::size_t(row * stored_k() + k / 2)];
      if (group == 2) {
        to[0] = std::uint16_t(k + (pattern == 0xe));
      } else {
        to[0] = std::uint16_t(k + int(pattern & 3));
        to[1] = std::uint16_t(k + int(pattern >> 2));
      }
    }
  }
  std::fill_n(m.a_data(), std::size_t(what.m * what.k), 0u);
}

void MmaStep::read_b(MatrixOperands& m) {
  const int rows = what.n / pair.count();
  for (int c = 0; c < pair.count(); ++c) {
    SharedOperand reader(by, *pair.cta[c], "operand B of tcgen05.mma");
    read_operand(
        reader, b_shared, column_mask.source(rows), what.k, what.sparse ? 64 : 32, what.b, what.b_mn_major,
        [&](int row, int count) { return columns_used(row, count); },
        [&](int row, int k, std::uint32_t v) {
          if (columns_used(row, 1)) m.b_bits(k, c * rows + row - column_mask.source(0)) = v;
        });
  }
  for (int n = 0; n < what.n; ++n)
    if (column_mask.zero(n))
      for (int k = 0; k < what.k; ++k) m.b_bits(k, n) = 0;
}

void MmaStep::load_d(MatrixOperands& m) {
  const TensorLayout layout(what.m, plan->form.group, plan->form.weight_stationary);
  const bool integer = what.d == Mod::s32;
  const float factor = std::ldexp(1.0f, -plan->scale_d);
  bool unwritten = false;
  for (int row = 0; row < what.m; ++row)
    layout.each_part(row, what.n, [&](const TensorRow& p) {
      std::int32_t* ints = &m.d_int(row, p.first);
      float* floats = &m.d(row, p.first);
      if (!accumulate) {
        integer ? void(std::fill_n(ints, p.count, 0)) : void(std::fill_n(floats, p.count, 0.0f));
        return;
      }
      TensorMemory& t = tensor_memory(*pair.cta[p.cta]);
      const int lane = d.lane + p.lane, column = d.column + p.column;
      if (!unwritten && !t.all_written(lane, column, p.count)) {
        unwritten = true;
        report_unwritten_tensor(by, *pair.cta[p.cta], lane, column, "tcgen05.mma adds to D at");
      }
      const std::uint32_t* from = t.row(lane, column);
      if (what.d == Mod::f16)
        for (int i = 0; i < p.count; ++i) floats[i] = float(half::from_bits(std::uint16_t(from[i]))) * factor;
      else
        std::memcpy(integer ? static_cast<void*>(ints) : floats, from, std::size_t(p.count) * 4);
      if (plan->scale_d && what.d == Mod::f32)
        for (int i = 0; i < p.count; ++i) floats[i] *= factor;
    });
}

void MmaStep::store_d(MatrixOperands& m) {
  const TensorLayout layout(what.m, plan->form.group, plan->form.weight_stationary);
  for (int row = 0; row < what.m; ++row)
    layout.each_part(row, what.n, [&](const TensorRow& p) {
      const int lane = d.lane + p.lane, column = d.column + p.column;
      if (lane_mask[std::size_t(p.cta * 4 + lane / 32)] >> (lane % 32) & 1) return;
      TensorMemory& t = tensor_memory(*pair.cta[p.cta]);
      std::uint32_t* to = t.row(lane, column);
      const float* floats = &m.d(row, p.first);
      if (what.d == Mod::f16)
        for (int i = 0; i < p.count; ++i) to[i] = half(double(floats[i])).bits;
      else
        std::memcpy(to, what.d == Mod::s32 ? static_cast<const void*>(&m.d_int(row, p.first)) : floats,
                    std::size_t(p.count) * 4);
      t.mark(lane, column, p.count);
    });
}

// The whole K of an instruction is one sum; the zeros of a sparse A take no part in it.
FusedRule MmaStep::rule() const {
  FusedRule r = fused_rule(MatrixUnit::mma, what.a, Generation::blackwell, what.d == Mod::f16);
  r.step = what.k;
  return r;
}

void MmaStep::note_accesses(race::Agent agent) const {
  Warp& w = *by.warp;
  if (!w.race) return;
  const TensorLayout layout(what.m, plan->form.group, plan->form.weight_stationary);
  const int rows = what.m / pair.count(), n = what.n / pair.count();
  const auto tensor = [&](Cta& cta, TensorAddress at, int columns, race::Use use) {
    race::tensor_access(w, *by.op, by.lane, agent, cta, {at.lane, 128 - at.lane, at.column, columns}, use);
  };
  for (int c = 0; c < pair.count(); ++c) {
    Cta& cta = *pair.cta[c];
    {
      OperandPieces pieces(by, agent, cta);
      const auto mark = [&](std::uint32_t offset, int, int) { pieces.mark(offset); };
      if (!plan->form.a_in_tensor) for_pieces(a_shared, rows, stored_k(), 32, what.a_mn_major, mark);
      const int b_bytes = what.sparse ? 64 : 32, per = what.b_mn_major ? what.k * 16 / b_bytes : 1;
      for_pieces(b_shared, column_mask.source(n), what.k, b_bytes, what.b_mn_major,
                 [&](std::uint32_t offset, int row, int) {
                   if (columns_used(row, per)) pieces.mark(offset);
                 });
    }
    if (plan->form.a_in_tensor) tensor(cta, a, 8, race::Use::read);
    if (what.sparse) tensor(cta, metadata, 2, race::Use::read);
    if (plan->form.scale_vector) {
      tensor(cta, sfa, (rows + 31) / 32, race::Use::read);
      tensor(cta, sfb, ((rows == 64 ? what.n / 2 : what.n) + 31) / 32, race::Use::read);
    }
    if (!layout.scattered()) {
      tensor(cta, d, what.n / layout.copies(), race::Use::write);
      continue;
    }
    for (int lane = d.lane; lane < 128; lane += 32)  // 16 of each 32 lanes
      race::tensor_access(w, *by.op, by.lane, agent, cta, {lane, 16, d.column, what.n}, race::Use::write);
  }
}

void MmaStep::run() {
  for (int c = 0; c < pair.count(); ++c)
    if (pair.cta[c]->done) {
      by.warp->report(Check::lifetime, "lifetime.tensor", *by.op, lane_bit(by.lane),
                      cat("tcgen05.mma is still running when CTA rank ", pair.cta[c]->rank, " has exited"),
                      "wait for a tcgen05.commit of the last operation before the block ends");
      return;
    }
  const TensorLayout layout(what.m, plan->form.group, plan->form.weight_stationary);
  const int columns = what.n / layout.copies();
  for (int c = 0; c < pair.count(); ++c)  // it may have been freed since the issue
    if (!check_tensor_range(by, *pair.cta[c], d.lane, layout.lanes(), d.column, columns,
                            "tcgen05.mma writes"))
      return;
  MatrixOperands& m = matrix_scratch();
  m.resize(what.m, what.n, what.k);
  if (what.sparse) read_metadata(m);
  if (plan->form.a_in_tensor)
    read_a_tensor(m);
  else
    read_a(m);
  read_b(m);
  load_d(m);
  const MatrixPrecision precision = precision_of(*by.warp);
  if (is_block_scaled(plan->form.kind))
    multiply_scaled(*this, m, precision);
  else if (plan->form.kind == MmaKind::i8)
    MatrixCore::multiply_int(m, what.a, what.b, what.saturate);
  else
    MatrixCore::multiply(m, what.a, what.b, rule(), precision, what.negate_a ? -1 : 1,
                         what.negate_b ? -1 : 1);
  store_d(m);
}

}  // namespace cgp::emu
