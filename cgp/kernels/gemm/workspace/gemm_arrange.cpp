// SPDX-License-Identifier: Apache-2.0
// Operands as the tensor cores want them: rows whose K is contiguous and 16-byte aligned, f32 as three bf16.
//   who      a block copies 64 rows x 64 of K of one matrix, 16 elements a thread
//   memory   reads along whichever direction is contiguous, writes along K; where they differ through shared
//            memory, a word an element, rows of 65 words
#include "cgp/kernels/gemm/workspace/gemm_arrange.h"

#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/memory/atomic.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kSide = 64, kThreads = 256, kEach = kSide * kSide / kThreads;

struct ArrangeConfig {
  int bits = 16;           ///< of an element
  bool split = false;      ///< f32 into three bf16
  bool transpose = false;  ///< rows are contiguous, not K
  int bytes() const { return bits / 8; }
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.number("bits", "b", c.bits), v.flag("split", c.split), v.flag("transpose", c.transpose);
  }
};

template <class T>
void arrange_as(Kernel& k, const ArrangeConfig& how, const Val<u64>& from_address, const Val<u64>& to_address,
                const Val<u64>& rows, const Val<u64>& depth, const Val<u64>& from_ld, const Val<u64>& to_ld,
                const Val<u64>& plane, const Val<u32>& tiles_k, const Val<u64>& unfit) {
  const In<T> from(from_address, 0, true);
  const auto r0 = to<u64>(k.ctaid_x() / tiles_k) * kSide, k0 = to<u64>(k.ctaid_x() % tiles_k) * kSide;
  std::vector<Val<T>> held;
  for (std::uint32_t j = 0; j < kEach; ++j) {
    const auto i = k.tid() + j * kThreads;
    const auto r = r0 + to<u64>(how.transpose ? i % kSide : i / kSide),
               l = k0 + to<u64>(how.transpose ? i / kSide : i % kSide);
    const auto at = how.transpose ? l * from_ld + r : r * from_ld + l;
    held.push_back(from.ld_if((r < rows) & (l < depth), at, Val<T>(0))[0]);
  }
  if (how.transpose) {
    const auto words = k.shared<T>(int(kSide * (kSide + 1)));
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const auto i = k.tid() + j * kThreads;
      words.st(i / kSide * (kSide + 1) + i % kSide, held[j]);
    }
    k.sync();
    std::vector<Val<T>> transposed;
    for (std::uint32_t j = 0; j < kEach; ++j) {
      const auto i = k.tid() + j * kThreads;
      transposed.push_back(words.ld(i % kSide * (kSide + 1) + i / kSide));
    }
    held.swap(transposed);
  }
  std::vector<Val<pred>> unfit_here{rows == 0u};
  for (std::uint32_t j = 0; j < kEach; ++j) {
    const auto i = k.tid() + j * kThreads;
    const auto r = r0 + to<u64>(i / kSide), l = k0 + to<u64>(i % kSide);
    const auto inside = (r < rows) & (l < depth);
    const auto at = r * to_ld + l;
    if constexpr (std::is_same_v<T, f32>) {
      if (how.split) {
        // x = high + middle + low to 24 bits and more. Infinities and NaN are no such sum.
        const Out<bf16> out(to_address);
        const auto high = to<bf16>(held[j]);
        const auto second = held[j] - to<f32>(high);
        const auto finite = dsl::abs(to<f32>(high)) < std::numeric_limits<float>::infinity();
        unfit_here.push_back(unfit_here.back() | (inside & !finite));
        const auto middle = to<bf16>(second);
        const auto low = to<bf16>(second - to<f32>(middle));
        out.st_if(inside, at, high);
        out.st_if(inside, at + plane, middle);
        out.st_if(inside, at + plane * 2u, low);
        continue;
      }
    }
    Out<T>(to_address).st_if(inside, at, held[j]);
  }
  if (how.split)
    k.if_(unfit_here.back(), [&] { red<relaxed, gpu, op::max>(Out<u32>(unfit), 0, Val<u32>(1)); });
}

void gemm_arrange_kernel(Kernel& k, ArrangeConfig how, Val<u64> from, Val<u64> to_, Val<u64> rows,
                         Val<u64> depth, Val<u64> from_ld, Val<u64> from_stride, Val<u64> to_ld,
                         Val<u64> to_stride, Val<u64> plane, Val<u32> tiles_k, Val<u64> unfit) {
  k.block(int(kThreads));
  const auto batch = to<u64>(k.ctaid_z());
  const auto a = from + batch * from_stride * std::uint32_t(how.bytes()),
             b = to_ + batch * to_stride * std::uint32_t(how.split ? 2 : how.bytes());
  if (how.bytes() == 1)
    arrange_as<u8>(k, how, a, b, rows, depth, from_ld, to_ld, plane, tiles_k, unfit);
  else if (how.bytes() == 2)
    arrange_as<u16>(k, how, a, b, rows, depth, from_ld, to_ld, plane, tiles_k, unfit);
  else
    arrange_as<f32>(k, how, a, b, rows, depth, from_ld, to_ld, plane, tiles_k, unfit);
}

Variant arrange_variant(const ArrangeConfig& how) {
  return config_variant("gemm_arrange", how, how.split ? 80 : 75, gemm_arrange_kernel);
}

}  // namespace

std::vector<Variant> gemm_arrange_variants() {
  std::vector<Variant> all;
  for (bool transpose : {false, true}) {
    for (int bits : {8, 16, 32}) all.push_back(arrange_variant({bits, false, transpose}));
    all.push_back(arrange_variant({32, true, transpose}));
  }
  return all;
}

void run_gemm_arrange(runtime::Stream& s, const GemmMatrix& from, const GemmMatrix& to, int bytes, bool split,
                      std::uint64_t batch, std::uint64_t unfit) {
  const std::uint64_t tiles_k = (from.cols + kSide - 1) / kSide,
                      tiles = (from.rows + kSide - 1) / kSide * tiles_k;
  if (!tiles || !batch) return;
  const auto fn = load(s.device(), arrange_variant({8 * bytes, split, from.transposed}));
  auto grid = runtime::grid_for(tiles, 1);
  for (std::uint64_t b = 0; b < batch; b += 65535) {
    grid.z = std::uint32_t(std::min<std::uint64_t>(65535, batch - b));
    const auto element = std::uint64_t(bytes);
    fn(s, grid, from.address + b * from.stride * element, to.address + b * to.stride * (split ? 2 : element),
       from.rows, from.cols, from.ld, from.stride, to.ld, to.stride, to.stride * batch,
       std::uint32_t(tiles_k), unfit);
  }
}

}  // namespace cgp::kernels
