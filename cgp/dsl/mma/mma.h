// SPDX-License-Identifier: Apache-2.0
#pragma once
// mma.sync: tensor cores of sm_75 and newer, one warp at a time. A is row-major, B column-major, that is,
// both have K contiguous.
//   auto d = mma(w, a, b, std::move(c));               one instruction, typed fragments
//   multiply(w, acc, a_rows, a_tile, b_rows, b_tile)   a warp's part of two tiles in shared memory
// The accumulator's registers are updated in place.
// PTX ISA, "Warp-level matrix multiply-accumulate: mma".
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/mma/fragment.h"

namespace cgp::dsl {

namespace record {
/// Why PTX has no mma.sync of this shape and these types; empty = it has.
constexpr const char* mma_reject(ptx::Mod a, ptx::Mod b, ptx::Mod c, int m, int n, int k) {
  using T = ptx::Mod;
  const bool fp8 = (a == T::e4m3 || a == T::e5m2) && (b == T::e4m3 || b == T::e5m2);
  const bool int8 = (a == T::s8 || a == T::u8) && (b == T::s8 || b == T::u8);
  const bool f32_sum = c == T::f32, f32_or_f16 = f32_sum || c == T::f16;
  if (!fp8 && !int8 && a != b) return "A and B must have the same type (8-bit types of one kind may mix)";
  if (a == T::f64) {
    const bool shape = (m == 8 && k == 4) || (m == 16 && (k == 4 || k == 8 || k == 16));
    return c == T::f64 && n == 8 && shape ? ""
                                          : "f64 mma is m8n8k4 or (sm_90) m16n8k4/k8/k16, accumulating f64";
  }
  if (m != 16 || n != 8) return "mma.sync is 16 x 8";
  if (a == T::f16)
    return (k == 8 || k == 16) && f32_or_f16 ? "" : "f16 mma has K 8 or 16 and accumulates f32 or f16";
  if (a == T::bf16) return (k == 8 || k == 16) && f32_sum ? "" : "bf16 mma has K 8 or 16 and accumulates f32";
  if (a == T::tf32) return (k == 4 || k == 8) && f32_sum ? "" : "tf32 mma has K 4 or 8 and accumulates f32";
  if (int8)
    return (k == 16 || k == 32) && c == T::s32 ? "" : "8-bit integer mma has K 16 or 32 and accumulates s32";
  if (fp8)
    return (k == 16 || k == 32) && f32_or_f16 ? "" : "fp8 mma has K 16 or 32 and accumulates f32 or f16";
  return "mma.sync multiplies f16, bf16, tf32, s8, u8, e4m3, e5m2 or f64";
}
constexpr bool mma_legal(ptx::Mod a, ptx::Mod b, ptx::Mod c, int m, int n, int k) {
  return !mma_reject(a, b, c, m, n, k)[0];
}

struct MmaTypes {
  ptx::Mod a, b, c;
  int m, n, k;
};
/// d += a * b, in place: `c` are the registers of one block.
void mma(Kernel& kernel, const MmaTypes& t, std::span<const Value> a, std::span<const Value> b,
         std::span<const Value> c, bool satfinite, Here at);
struct WarpProduct {
  MmaTypes types;
  int blocks_m, blocks_n, a_regs, b_regs, c_regs;
};
/// All blocks of one K slice.
void mma_blocks(Kernel& kernel, const WarpProduct& p, const std::vector<Value>& a,
                const std::vector<Value>& b, const std::vector<Value>& acc, Here at);
}  // namespace record

/// d = a * b + c; the result sits in c's registers.
template <class TA, class TB, class TC, int M, int N, int K>
[[nodiscard]] FragC<TC, M, N> mma(Warp& w, const FragA<TA, M, K>& a, const FragB<TB, K, N>& b,
                                  FragC<TC, M, N>&& c, Here at = Here::now()) {
  static_assert(record::mma_legal(TA::mod, TB::mod, TC::mod, M, N, K),
                "mma.sync has no such shape for these types (docs: mma.h lists them)");
  record::mma(w.k, {TA::mod, TB::mod, TC::mod, M, N, K}, a.values(), b.values(), c.values(), false, at);
  return std::move(c);
}

/// acc += A * B for one warp's part of two tiles in shared memory, all of the tiles' K. Fragments of the next
/// K slice are loaded before the products of this one are issued.
template <class T, int M, int N, class TileA, Major MA, class TileB, Major MB, int PA, int PB>
[[nodiscard]] WarpAcc<T, M, N> multiply(Warp& w, WarpAcc<T, M, N> acc,
                                        const WarpOperand<Operand::a, TileA, M, MA>& a_rows,
                                        const SmemTile<TileA, PA>& a,
                                        const WarpOperand<Operand::b, TileB, N, MB>& b_rows,
                                        const SmemTile<TileB, PB>& b, Here at = Here::now()) {
  using OA = WarpOperand<Operand::a, TileA, M, MA>;
  using OB = WarpOperand<Operand::b, TileB, N, MB>;
  using TA = typename TileA::elem;
  using TB = typename TileB::elem;
  static_assert(OA::k == OB::k, "A and B tiles disagree on the K extent");
  static_assert(record::mma_legal(TA::mod, TB::mod, T::mod, 16, 8, OA::k_per_step),
                "mma.sync has no such combination of element and accumulator types");
  Kernel& k = w.k;
  const record::WarpProduct p{
      {TA::mod, TB::mod, T::mod, 16, 8, OA::k_per_step}, M / 16, N / 8, 4, 2, FragC<T, 16, 8>::count};
  auto a_lanes = a_rows.lanes(a);
  auto b_lanes = b_rows.lanes(b);
  auto a_now = a_rows.load(w, a_lanes, 0, at);
  auto b_now = b_rows.load(w, b_lanes, 0, at);
  for (int step = 0; step < OA::k_steps; ++step) {
    std::vector<Value> a_next, b_next;
    if (step + 1 < OA::k_steps) {
      a_next = a_rows.load(w, a_lanes, step + 1, at);
      b_next = b_rows.load(w, b_lanes, step + 1, at);
    }
    record::mma_blocks(k, p, a_now, b_now, acc.values(), at);
    a_now.swap(a_next);
    b_now.swap(b_next);
  }
  return acc;
}

/// acc += A * B from fragments in registers: blocks of 16 rows of A times blocks of 8 columns of B, one K
/// step.
template <class T, class TC, int M, int N, int K>
[[nodiscard]] WarpAcc<TC, M, N> multiply(Warp& w, WarpAcc<TC, M, N> acc,
                                         const std::vector<FragA<T, 16, K>>& a,
                                         const std::vector<FragB<T, K, 8>>& b, Here at = Here::now()) {
  static_assert(record::mma_legal(T::mod, T::mod, TC::mod, 16, 8, K),
                "mma.sync has no such combination of element and accumulator types");
  if (int(a.size()) != M / 16 || int(b.size()) != N / 8)
    throw BuildError(
        "fragments must cover the accumulator", at,
        text::cat(a.size(), " blocks of 16 rows and ", b.size(), " of 8 columns for ", M, "x", N));
  std::vector<Value> ra, rb;
  for (const auto& x : a)
    for (const auto& v : x.values()) ra.push_back(v);
  for (const auto& y : b)
    for (const auto& v : y.values()) rb.push_back(v);
  const record::WarpProduct p{{T::mod, T::mod, TC::mod, 16, 8, K},
                              M / 16,
                              N / 8,
                              FragA<T, 16, K>::count,
                              FragB<T, K, 8>::count,
                              FragC<TC, 16, 8>::count};
  record::mma_blocks(w.k, p, ra, rb, acc.values(), at);
  return acc;
}

/// The same with B from a tile in shared memory: its K slice `k_step`.
template <class T, class TC, int M, int N, class TileB, Major MB>
[[nodiscard]] WarpAcc<TC, M, N> multiply(Warp& w, WarpAcc<TC, M, N> acc,
                                         const std::vector<FragA<T, 16, 16>>& a,
                                         const WarpOperand<Operand::b, TileB, N, MB>& b, TileLanes& b_lanes,
                                         int k_step, Here at = Here::now()) {
  static_assert(std::is_same_v<T, typename TileB::elem> && T::bits == 16, "A and B have one 16-bit type");
  const auto regs = b.load(w, b_lanes, k_step, at);
  std::vector<FragB<T, 16, 8>> columns;
  for (std::size_t i = 0; i < regs.size(); i += 2)
    columns.push_back(FragB<T, 16, 8>({regs[i], regs[i + 1]}, at));
  return multiply<T>(w, std::move(acc), a, columns, at);
}

}  // namespace cgp::dsl
