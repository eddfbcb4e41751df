// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/pipeline/async.h"

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

void cp_async(Kernel& k, const Value& shared_address, int shared_offset, const record_impl::Address& from,
              int bytes, const Value* source_bytes, ptx::Mods l2, Here at) {
  k.at(at);
  k.needs_sm(80, "cp.async", at);
  ptx::Mods m{bytes == 16 ? Mod::cg : Mod::ca, Mod::shared, Mod::global};
  for (Mod x : l2) m.push_back(x);
  std::vector<Operand> operands{Operand::at(k.register_of(shared_address), shared_offset),
                                record_impl::address_operand(k, from, bytes, at), Operand::integer(bytes)};
  if (source_bytes) operands.push_back(k.operand(*source_bytes));
  k.inst(Op::cp_async, m, std::move(operands));
}
void cp_async_commit(Kernel& k, Here at) {
  k.at(at);
  k.needs_sm(80, "cp.async", at);
  k.inst(Op::cp_async_commit_group, {}, {});
}
void cp_async_wait(Kernel& k, int pending, Here at) {
  k.at(at);
  if (pending < 0)
    throw BuildError("cp.async.wait_group leaves zero or more groups pending", at,
                     text::cat("got ", pending));
  k.inst(Op::cp_async_wait_group, {}, {Operand::integer(pending)});
}
void cp_async_wait_all(Kernel& k, Here at) {
  k.at(at);
  k.inst(Op::cp_async_wait_all, {}, {});
}

int block_threads(const Kernel& k, std::string_view what, Here at) {
  const auto b = k.block_size();
  const int n = b[0] * b[1] * b[2];
  if (n == 0)
    throw BuildError(text::cat(what, " divides its work among a known number of threads"), at,
                     "the block size is free", "call k.block(threads) first");
  return n;
}

ChunkPlan plan_chunks(const TileLayout& t, int threads) {
  ChunkPlan p{};
  p.threads = threads;
  p.chunks_per_row = t.row_bytes() / 16;
  p.chunks = p.chunks_per_row * t.rows;
  p.steps = (p.chunks + threads - 1) / threads;
  p.row_step = threads % p.chunks_per_row == 0 ? threads / p.chunks_per_row : 0;
  p.last_partial = p.chunks % threads != 0;
  return p;
}

namespace {
/// Bytes of a 16-byte chunk that lie inside the matrix.
Val<u32> valid_bytes(const TileLayout& t, const SourceShape& s, const Val<u32>& row, const Val<u32>& col) {
  const int per_chunk = 16 / t.element_bytes;
  // cols - col may be negative: compared as signed, clamped to 0 .. per_chunk.
  Kernel& k = *col.kernel();
  const Value left = k.op(Op::sub, {Mod::s32}, Mod::s32, {*s.cols, col});
  const Value low = k.op(Op::max, {Mod::s32}, Mod::s32, {left, Value::literal(0, Mod::s32)});
  const Value most = Value::literal(std::uint64_t(per_chunk), Mod::s32);
  const Val<u32> elements(k.op(Op::min, {Mod::s32}, Mod::s32, {low, most}).as(Mod::u32));
  return select(row < *s.rows, times(elements, t.element_bytes), Val<u32>(0));
}
}  // namespace

void copy_tile(Kernel& k, const TileLayout& t, const ChunkPlan& plan, const Val<u32>& thread, const Value& to,
               int to_offset, const record_impl::Address& from, const SourceShape& shape, const Val<u32>& row,
               const Val<u32>& col, ptx::Mods l2, Here at) {
  k.at(at);
  const int per_chunk = 16 / t.element_bytes;
  const bool fixed_column = plan.row_step != 0, fixed_phase = fixed_column && plan.row_step % 8 == 0;
  std::optional<Val<u32>> first_row, first_col, first_target;
  for (int step = 0; step < plan.steps; ++step) {
    const Val<u32> chunk = fixed_column || step == 0 ? thread : thread + Val<u32>(step * plan.threads);
    if (!fixed_column || step == 0) {
      first_row.emplace(divided(chunk, plan.chunks_per_row));
      first_col.emplace(times(remainder(chunk, plan.chunks_per_row), per_chunk));
    }
    const int rows_down = fixed_column ? step * plan.row_step : 0;
    const Val<u32> r = rows_down ? *first_row + Val<u32>(rows_down) : *first_row;
    const Val<u32>& c = *first_col;
    int target_offset = to_offset;
    if (fixed_phase && step > 0) {
      target_offset += rows_down * t.span();  // whole patterns further: the swizzle is the same
    } else {
      first_target.emplace(Val<u32>(to) + tile_offset(t, r, c));
    }
    const Val<u32> source_row = row + r, source_col = col + c;
    const auto source =
        record_impl::index_address(from, source_row * shape.pitch + source_col, t.element_bytes, at);
    std::optional<Value> bytes;
    if (shape.rows) bytes.emplace(valid_bytes(t, shape, source_row, source_col));
    const auto copy = [&] {
      cp_async(k, *first_target, target_offset, source, 16, bytes ? &*bytes : nullptr, l2, at);
    };
    if (plan.last_partial && step + 1 == plan.steps)
      k.guarded(thread < Val<u32>(plan.chunks - step * plan.threads), copy);
    else
      copy();
  }
}

}  // namespace cgp::dsl::record
