// SPDX-License-Identifier: Apache-2.0
#pragma once
// How decode combines results: of warps in shared memory, of the blocks of a cluster in each other's shared memory,
// of other blocks in the workspace. Members of Decode (decode_kernel.h).
#include "cgp/kernels/decode/decode_kernel.h"

namespace cgp::kernels::decode_parts {

template <class T, class Page>
template <class Block>
void Decode<T, Page>::combine_cluster(const Where& at, Block&& block) {
  const auto blocks = std::uint32_t(t_.cluster), columns = std::uint32_t(d_) / blocks;
  const auto rank = k_.cluster_ctarank();
  const auto most = std::uint32_t(8 * halves());
  const auto parts = k_.shared<f32>(int(blocks * most * columns)),
             stats = k_.shared<f32>(int(blocks * most * 2));
  each(at, d_, [&](const Val<u32>& r, const Val<u32>& x) {
    const auto b = block(r, x);
    mapa(parts.at((rank * most + r) * columns + x % columns), x / columns).st(0, b.o);
    k_.if_(x % columns == 0u, [&] {
      mapa(stats.at((rank * most + r) * 2u), x / columns).template st<2>(0, RegGroup<f32, 2>(b.max, b.sum));
    });
  });
  cluster_sync(cta_);
  each(at, int(columns), [&](const Val<u32>& r, const Val<u32>& x) {
    std::vector<Val<f32>> max, sum, o;
    for (std::uint32_t b = 0; b < blocks; ++b) max.push_back(stats.ld((r + b * most) * 2u));
    const auto all = most_of(max);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const auto scale = weight(max[b], all);
      const auto l = stats.ld((r + b * most) * 2u + 1u) * scale,
                 v = parts.ld((r + b * most) * columns + x) * scale;
      sum.push_back(b ? sum.back() + l : l), o.push_back(b ? o.back() + v : v);
    }
    store(at, r, rank * columns + x, Result{all, sum.back(), o.back()});
  });
}

template <class T, class Page>
void Decode<T, Page>::leave(const State& done) {
  const auto warp = k_.warp_index();
  const auto own = out_.at(warp * std::uint32_t(out_pitch()));
  for (int half = 0; half < halves(); ++half) {
    const auto r = group_ + std::uint32_t(8 * half);
    const auto sum = reduce(
        w_, std::get<1>(done)[std::size_t(half)], [](const Val<f32>& a, const Val<f32>& b) { return a + b; },
        4);
    k_.if_(quad_ == 0u, [&] {
      stats_.st((warp * std::uint32_t(kRows) + r) * 2u, std::get<0>(done)[std::size_t(half)]);
      stats_.st((warp * std::uint32_t(kRows) + r) * 2u + 1u, sum);
    });
    for (int j = 0; j < width_ / 8; ++j)
      for (int i = 0; i < 2; ++i) {
        const auto column = std::uint32_t(j / 8 * 64 + j % 8), one = std::uint32_t(i);
        if (t_.rows16)
          own.st(r * std::uint32_t(pitch()) + (quad_ * 2u + one) * 8u + column,
                 std::get<2>(done)[std::size_t(j)][std::size_t(2 * half + i)]);
        else
          own.st((quad_ * 2u + one) * std::uint32_t(pitch()) + group_ * 8u + column,
                 std::get<2>(done)[std::size_t(j / 2)][std::size_t(j % 2 * 2 + i)]);
      }
  }
  k_.sync();
}

template <class T, class Page>
template <class Block>
void Decode<T, Page>::publish(const Where& at, const Val<u32>& split, const Val<u32>& item, Block&& block) {
  const auto stats = slot_stats(), values = slot_values();
  each(at, d_, [&](const auto& r, const auto& x) {
    const Result b = block(r, x);
    const auto there = slot(at, item, t_.cascade ? r / rows() : r, split);
    const auto row = t_.cascade ? r % rows() : r;
    values.st(there * std::uint64_t(kRows * d_) + to<u64>(row * std::uint32_t(d_) + x), b.o);
    k_.if_(x == 0u, [&] {
      stats.st(there * std::uint64_t(2 * kRows) + to<u64>(row * 2u), b.max);
      stats.st(there * std::uint64_t(2 * kRows) + to<u64>(row * 2u + 1u), b.sum);
    });
  });
}

template <class T, class Page>
void Decode<T, Page>::combine_slots(const Where& at, const Val<u32>& item, const Val<u32>& members) {
  const Out<u32> counter(p_.workspace);
  const auto stats = slot_stats(), values = slot_values();
  const auto last = k_.shared<u32>(block_rows());
  fence<acq_rel, gpu>(k_);
  k_.sync();
  k_.if_(k_.tid() < members, [&] {
    const auto index = to<u64>(shared_index(at, item, k_.tid()));
    const auto is_last = atom<acq_rel, gpu, op::add>(counter, index, 1) == slots() - 1;
    last.st(k_.tid(), select(is_last, Val<u32>(1), Val<u32>(0)));
    k_.if_(is_last, [&] { counter.st(index, 0); });
  });
  k_.sync();
  const auto combined = [&](const Val<u32>& member, const Where& one) {
    k_.if_(assume_uniform(last.ld(member)) == 1u, [&] {
      fence<acq_rel, gpu>(k_);
      each(one, d_ / 4, [&](const Val<u32>& r, const Val<u32>& x) {
        combine(one, stats, values, slot(at, item, member, Val<u32>(0)), r, x * 4u);
      });
    });
  };
  if (!t_.cascade) return combined(Val<u32>(0), at);
  k_.loop(members, [&](Val<u32> m) {
    combined(m, Where{at.batch + m, at.head, Val<u32>(0), at.length, rows()});
  });
}

template <class T, class Page>
void Decode<T, Page>::combine(const Where& at, const Out<f32>& stats, const Out<f32>& partial,
                              const Val<u64>& slot0, const Val<u32>& r, const Val<u32>& x) {
  constexpr std::uint32_t kTogether = 12;
  using S = std::tuple<Val<f32>, Val<f32>, Floats>;
  const auto done = k_.loop(
      range(Val<u32>(0), slots(), Val<u32>(kTogether)), S{kNever, 0.0f, Floats(4, Val<f32>(0))},
      [&](Val<u32> s0, S now) {
        std::vector<RegGroup<f32, 2>> of_row;
        std::vector<RegGroup<f32, 4>> values;
        for (std::uint32_t i = 0; i < kTogether; ++i) {
          const auto there = s0 + i < slots();
          const auto slot = slot0 + to<u64>(s0 + i);
          of_row.push_back(stats.at(slot * std::uint64_t(2 * kRows) + to<u64>(r * 2u))
                               .template ld_if<2>(there, 0, Val<f32>(kNever)));
          values.push_back(partial.at(slot * std::uint64_t(kRows * d_) + to<u64>(r * std::uint32_t(d_) + x))
                               .template ld_if<4>(there, 0, Val<f32>(0)));
        }
        std::vector<Val<f32>> max{std::get<0>(now)};
        for (const auto& m : of_row) max.push_back(dsl::max(max.back(), m[0]));
        const auto old = weight(std::get<0>(now), max.back());
        std::vector<Val<f32>> sum{std::get<1>(now) * old};
        std::vector<std::vector<Val<f32>>> o;
        for (std::size_t e = 0; e < 4; ++e) o.push_back({std::get<2>(now)[e] * old});
        for (std::uint32_t i = 0; i < kTogether; ++i) {
          const auto add = weight(of_row[i][0], max.back());
          sum.push_back(fma(select(add == 0.0f, Val<f32>(0), of_row[i][1]), add, sum.back()));
          for (int e = 0; e < 4; ++e)
            o[std::size_t(e)].push_back(fma(values[i][e], add, o[std::size_t(e)].back()));
        }
        return S{max.back(), sum.back(), Floats{o[0].back(), o[1].back(), o[2].back(), o[3].back()}};
      });
  for (std::uint32_t e = 0; e < 4; ++e)
    store(at, r, x + e, Result{std::get<0>(done), std::get<1>(done), std::get<2>(done)[e]});
}

}  // namespace cgp::kernels::decode_parts
