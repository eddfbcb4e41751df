// SPDX-License-Identifier: Apache-2.0
// gemm skinny: few rows of A against a large B that is stored [n, k], whose bytes are the cost; and small
// products, whose cost is the latency of one access.
//   who      a block owns ROWS rows of B (columns of C) and COLS rows of A; its warps take turns along K
//   memory   B straight from global memory into mma fragments, 16 bytes a lane, read once and kept out of L1;
//            where B is a stream, its lines are the first to leave L2, so that they push out each other and
//            not what others have there; A likewise, which L1 and L2 hold
//   sync     none until the end, when the warps' accumulators meet in shared memory and are added in order of the
//   warps math     mma.m16n8k16 with B as its first operand. A lane's 16 bytes are 8 neighbours of K where
//   the
//            fragment wants two pairs of each of two steps: both operands use the same order of K, so it does
//            not matter
//   needs    sm_80; trans_b and not trans_a; k, rows and starts of A and B at multiples of 16 bytes
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/simt/gemm_params_simt.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

// Rows of a matrix, 8 at a time: lane 4g + q has row g and the accesses q, q + 4, ... of it.
template <class T>
class RowLoads {
 public:
  RowLoads(Warp& w, const In<T>& p, const Val<u32>& first, const Val<u32>& rows, const Val<u64>& pitch,
           int groups) {
    for (int i = 0; i < groups; ++i) {
      const auto row = first + w.lane() / 4 + std::uint32_t(8 * i);
      inside_.push_back(row < rows);
      at_.push_back(p.at(to<u64>(row) * pitch).template as<b32>());
    }
  }
  int groups() const { return int(at_.size()); }
  /// Access `access` of each row; zeros where there is none.
  std::vector<RegGroup<b32, 4>> load(const Val<u32>& access, const Val<pred>& exists) const {
    return each(access, exists, [](const auto& p, const auto& have, const auto& i) {
      return p.template ld_if<4, nc>(have, i, Val<b32>(0));
    });
  }
  /// The same, not kept in L1, and with a policy in L2.
  std::vector<RegGroup<b32, 4>> stream(const Val<u32>& access, const Val<pred>& exists,
                                       const std::optional<CachePolicy>& policy) const {
    return each(access, exists, [&](const auto& p, const auto& have, const auto& i) {
      if (!policy) return p.template ld_if<4, nc, no_allocate>(have, i, Val<b32>(0));
      return load_with_policy(p, have, i, *policy);
    });
  }

 private:
  template <class Load>
  std::vector<RegGroup<b32, 4>> each(const Val<u32>& access, const Val<pred>& exists, Load&& load) const {
    std::vector<RegGroup<b32, 4>> out;
    for (std::size_t i = 0; i < at_.size(); ++i)
      out.push_back(load(at_[i], inside_[i] & exists, to<u64>(access)));
    return out;
  }
  static RegGroup<b32, 4> load_with_policy(const Ptr<global, const b32>& p, const Val<pred>& have,
                                           const Val<u64>& i, const CachePolicy& policy) {
    Kernel& k = *p.kernel();
    std::vector<Value> home;
    for (int j = 0; j < 4; ++j) home.push_back(k.copy(Val<b32>(0)).with(Uniform::thread));
    const auto from = p.indexed(i, 16, k.here());
    const Value bits = policy.bits;
    k.guarded(have, [&] {
      record_impl::load(k,
                        {{ptx::Mod::global, ptx::Mod::nc, ptx::Mod::L1_no_allocate, ptx::Mod::L2_cache_hint},
                         ptx::Mod::b32,
                         4,
                         4,
                         &bits},
                        from, home, ptx::Mod::b32, Uniform::thread, k.here());
    });
    return RegGroup<b32, 4>::from(home);
  }
  std::vector<Ptr<global, const b32>> at_;
  std::vector<Val<pred>> inside_;
};

template <class T, int Rows, int Cols>
void gemm_skinny_kernel(Kernel& k, GemmSkinnyTuning t) {
  const auto p = declare_params<GemmPointerParams<OnDevice, u32, T>>(k);
  const auto &m = *p.m, &n = *p.n, &accesses = *p.k;
  k.block(32 * t.warps);
  if (t.min_blocks) k.min_blocks(t.min_blocks);
  auto warp = k.warp();
  const auto batch = to<u64>(k.ctaid_z());
  const auto n0 = k.ctaid_x() * Rows, m0 = k.ctaid_y() * Cols;
  const RowLoads<T> b_rows(warp, In<T>(p.b->at(batch * *p.stride_b)), n0, n, *p.ldb, Rows / 8);
  const RowLoads<T> a_rows(warp, In<T>(p.a->at(batch * *p.stride_a)), m0, m, *p.lda, Cols / 8);
  std::optional<CachePolicy> policy;
  if (t.evict_first) policy.emplace(createpolicy_fractional<L2_evict_first>(k));
  const auto q = warp.lane() % 4;
  const std::uint32_t iteration = std::uint32_t(4 * t.unroll);

  using Sum = WarpAcc<f32, Rows, Cols>;
  auto sum = k.loop(range(warp.index * iteration, accesses, Val<u32>(iteration * std::uint32_t(t.warps))),
                    zeros<f32, Rows, Cols>(warp), [&](Val<u32> base, Sum acc) {
                      std::vector<std::vector<RegGroup<b32, 4>>> b_now, a_now;
                      for (int u = 0; u < t.unroll; ++u) {
                        const auto access = base + q + std::uint32_t(4 * u);
                        b_now.push_back(b_rows.stream(access, access < accesses, policy));
                        a_now.push_back(a_rows.load(access, access < accesses));
                      }
                      std::vector<Sum> accumulators;
                      accumulators.push_back(std::move(acc));
                      for (int u = 0; u < t.unroll; ++u)
                        for (int half = 0; half < 4; half += 2) {
                          std::vector<FragA<T, 16, 16>> x;
                          std::vector<FragB<T, 16, 8>> y;
                          const auto& rows = b_now[std::size_t(u)];
                          for (std::size_t r = 0; r < rows.size(); r += 2)
                            x.push_back(FragA<T, 16, 16>({rows[r][half], rows[r + 1][half], rows[r][half + 1],
                                                          rows[r + 1][half + 1]}));
                          for (const auto& col : a_now[std::size_t(u)])
                            y.push_back(FragB<T, 16, 8>({col[half], col[half + 1]}));
                          accumulators.push_back(multiply<T>(warp, std::move(accumulators.back()), x, y));
                        }
                      return std::move(accumulators.back());
                    });

  auto smem = k.shared<f32>(t.warps * Rows * Cols, 128);
  for (int i = 0; i < Sum::count; ++i)
    smem.st((warp.index * std::uint32_t(Sum::count) + std::uint32_t(i)) * 32u + warp.lane(), sum[i]);
  k.sync();
  const GemmOutput<T> out{
      InOut<T>(p.c->at(batch * *p.stride_c)), to<u64>(m), to<u64>(n), *p.ldc, *p.alpha, *p.beta};
  for (int first = 0; first < Rows * Cols; first += 32 * t.warps) {
    const auto o = k.tid() + std::uint32_t(first);
    const auto row = o % Rows, col = o / Rows;  // of B's rows, of A's
    const auto lane = row % 8 * 4 + col % 8 / 2;
    const auto reg = (row / 16 * (Cols / 8) + col / 8) * 4 + row / 8 % 2 * 2 + col % 2;
    const auto store = [&] {
      std::vector<Val<f32>> total{smem.ld(reg * 32 + lane)};
      for (int w = 1; w < t.warps; ++w)
        total.push_back(total.back() + smem.ld((reg + std::uint32_t(w * Sum::count)) * 32 + lane));
      out.put(k, to<u64>(m0 + col), to<u64>(n0 + row), total.back());
    };
    if (first + 32 * t.warps <= Rows * Cols)
      store();
    else
      k.if_(o < Rows * Cols, store);
  }
}

template <class T>
Variant make(std::string name, const GemmSkinnyTuning& t) {
  const auto pick = [&](auto fn) { return variant(std::move(name), 80, fn, t); };
  if (t.cols == 32)
    return t.rows == 16   ? pick(gemm_skinny_kernel<T, 16, 32>)
           : t.rows == 32 ? pick(gemm_skinny_kernel<T, 32, 32>)
                          : pick(gemm_skinny_kernel<T, 64, 32>);
  if (t.cols == 8)
    return t.rows == 16 ? pick(gemm_skinny_kernel<T, 16, 8>) : pick(gemm_skinny_kernel<T, 32, 8>);
  return t.rows == 16 ? pick(gemm_skinny_kernel<T, 16, 16>) : pick(gemm_skinny_kernel<T, 32, 16>);
}

}  // namespace

GemmVariant gemm_skinny(DType type, const GemmSkinnyTuning& t) {
  const GemmConfig config{.family = GemmFamily::skinny,
                          .a = type,
                          .layout = GemmLayout::nt,
                          .tile_m = t.cols,
                          .tile_n = t.rows,
                          .warps = t.warps,
                          .unroll = t.unroll,
                          .min_blocks = t.min_blocks,
                          .evict_b = t.evict_first};
  return {type == DType::f16 ? make<f16>(print(config), t) : make<bf16>(print(config), t), config};
}

}  // namespace cgp::kernels
