// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/gemm_store_sm90.h"

#include <optional>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::kernels {

struct HopperStore::Impl {
  Impl(dsl::Kernel& k, DType c, const Epilogue& e, const dsl::Val<dsl::u32>& m, const dsl::Val<dsl::u32>& n)
      : k_(k), type_(c), pairing_(e.pairing()), m_(m), n_(n) {}

  template <class T>
  static constexpr int width_of = 1024 / T::bits;
  template <class T>
  using TileOf = dsl::Tile<T, 64, width_of<T>>;
  template <class T>
  using MapOf = dsl::TmaOut<TileOf<T>, 1, 64, width_of<T>>;
  template <class T>
  struct Part {
    explicit Part(MapOf<T> m) : map(std::move(m)) {}
    MapOf<T> map;
    std::optional<dsl::Staging<TileOf<T>>> staging;
  };

  template <class F>
  void with_c(F&& f) {
    switch (type_) {
      case DType::f32:
        return f(std::get<0>(parts_));
      case DType::s32:
        return f(std::get<1>(parts_));
      case DType::f16:
        return f(std::get<2>(parts_));
      case DType::bf16:
        return f(std::get<3>(parts_));
      case DType::e4m3:
        return f(std::get<4>(parts_));
      case DType::e5m2:
        return f(std::get<5>(parts_));
      default:
        throw Unsupported(text::cat("results of type ", name(type_), " through staging"));
    }
  }

  // What all elements of a thread's 64 rows share: its two rows, and its first column of C.
  struct Lines {
    std::vector<EpilogueLine> rows;
    dsl::Val<dsl::u64> batch;
    dsl::Val<dsl::u32> c0, columns;
    dsl::Val<dsl::u64> wide_c0;
  };
  Lines lines(const HopperPlace& at) const {
    using namespace dsl;
    const auto origin = record::warpgroup_origin(k_);
    const auto row = at.m0 + origin.row;
    const auto wide = to<u64>(row);
    const bool pairs = pairing_ != Pairing::none;
    const auto c0 = (pairs ? at.n0 / 2u : at.n0) + origin.col;
    return {{EpilogueLine(wide, 0, row < m_), EpilogueLine(wide, 8, row + 8u < m_)},
            to<u64>(at.batch),
            c0,
            pairs ? n_ / 2u : n_,
            to<u64>(c0)};
  }

  // Columns col .. of the result, from the registers, into the staging tile.
  template <class T, class TileT>
  void fill(dsl::Warpgroup& wg, TileT& tile, const std::vector<dsl::Value>& sums, int cols, int col,
            const HopperPlace& at, const std::optional<Lines>& shared) {
    using namespace dsl;
    constexpr int width = width_of<T>;
    using Sum = std::conditional_t<std::is_same_v<T, s32>, s32, f32>;
    std::vector<Value> out;
    const auto from = std::size_t(col / 8 * 4);
    if (program_->empty()) {
      for (std::size_t i = 0; i < std::size_t(width / 2); ++i) out.push_back(k_.copy(sums[from + i]));
    } else if constexpr (std::is_same_v<T, s32>) {
      throw Unsupported("s32 results of an epilogue");
    } else {
      apply(sums, cols, col, width, at, *shared, out);
    }
    store_tile(wg, Acc<Sum, 64, width>(AccRegs(std::move(out))), tile);
  }

  void apply(const std::vector<dsl::Value>& sums, int cols, int col, int width, const HopperPlace& at,
             const Lines& shared, std::vector<dsl::Value>& out) {
    using namespace dsl;
    const bool pairs = pairing_ != Pairing::none;
    const auto& rows = shared.rows;
    const auto &batch = shared.batch, &wide = shared.wide_c0;
    const auto &c0 = shared.c0, &columns = shared.columns;
    // Of the product: two halves of the tile hold the two elements of a pair.
    const auto line = [&](int offset) {
      return EpilogueLine(wide, offset, c0 + std::uint32_t(offset) < columns);
    };
    for (int j = 0; j < width; j += 8) {
      const std::vector<EpilogueLine> to_c{line(col + j), line(col + j + 1)};
      std::vector<EpilogueLine> gate, up;
      if (pairs)
        for (int e = 0; e < 2; ++e) {
          const auto first = c0 + std::uint32_t(col + j + e);
          const auto inside = first < columns;
          const bool halves = pairing_ == Pairing::halves;
          gate.emplace_back(to<u64>(halves ? first : first * 2u), 0, inside);
          up.emplace_back(to<u64>(halves ? first + columns : first * 2u + 1u), 0, inside);
        }
      const auto i = std::size_t((col + j) / 8 * 4), second = i + std::size_t(cols / 2 / 8 * 4);
      for (int v = 0; v < 4; ++v) {
        const auto& r = rows[std::size_t(v / 2)];
        const auto& c = to_c[std::size_t(v % 2)];
        const auto inside = r.inside() & c.inside();
        const EpiloguePoint point{r, c, batch, inside};
        const Val<f32> x(sums[i + std::size_t(v)]);
        const auto y = pairs ? program_->apply(point, {r, gate[std::size_t(v % 2)], batch, inside},
                                               {r, up[std::size_t(v % 2)], batch, inside}, x,
                                               Val<f32>(sums[second + std::size_t(v)]))
                             : program_->apply(point, x);
        out.push_back(k_.copy(y));
      }
    }
    program_->finish(
        {k_, batch, to<u64>(at.m0), to<u64>((pairs ? at.n0 / 2u : at.n0) + std::uint32_t(col)), true});
  }

  dsl::Kernel& k_;
  DType type_;
  Pairing pairing_;
  dsl::Val<dsl::u32> m_, n_;
  std::tuple<std::optional<Part<dsl::f32>>, std::optional<Part<dsl::s32>>, std::optional<Part<dsl::f16>>,
             std::optional<Part<dsl::bf16>>, std::optional<Part<dsl::e4m3>>, std::optional<Part<dsl::e5m2>>>
      parts_;
  std::optional<EpilogueProgram> program_;
};

HopperStore::HopperStore(dsl::Kernel& k, DType c, const Epilogue& e, const dsl::Val<dsl::u32>& m,
                         const dsl::Val<dsl::u32>& n)
    : impl_(std::make_unique<Impl>(k, c, e, m, n)) {
  impl_->with_c([&]<class T>(std::optional<Impl::Part<T>>& part) {
    part.emplace(dsl::Param<Impl::MapOf<T>>::make(k));
  });
  impl_->program_.emplace(k, e);
}
HopperStore::~HopperStore() = default;

void HopperStore::open(const dsl::Role<dsl::Warpgroup>& math, int buffers) {
  impl_->with_c(
      [&]<class T>(std::optional<Impl::Part<T>>& part) { part->staging.emplace(impl_->k_, math, buffers); });
}

dsl::PendingStore HopperStore::idle() {
  std::vector<dsl::PendingStore> out;
  impl_->with_c([&]<class T>(std::optional<Impl::Part<T>>& part) { out.push_back(part->staging->idle()); });
  return std::move(out[0]);
}

dsl::PendingStore HopperStore::store(dsl::Warpgroup& wg, dsl::PendingStore pending,
                                     const std::vector<dsl::Value>& sums, int cols, const HopperPlace& at) {
  std::vector<dsl::PendingStore> turn;
  turn.push_back(std::move(pending));
  impl_->with_c([&]<class T>(std::optional<Impl::Part<T>>& part) {
    constexpr int width = Impl::width_of<T>;
    const bool pairs = impl_->pairing_ != Pairing::none;
    const int out_cols = pairs ? cols / 2 : cols;
    const auto c0 = pairs ? at.n0 / 2u : at.n0 + 0u;
    std::optional<Impl::Lines> shared;
    if (!impl_->program_->empty()) shared.emplace(impl_->lines(at));
    for (int col = 0; col < out_cols; col += width)
      turn.push_back(part->staging->store(
          wg, std::move(turn.back()), dsl::at(part->map, at.batch, at.m0, c0 + std::uint32_t(col)),
          [&](auto& tile) { impl_->template fill<T>(wg, tile, sums, cols, col, at, shared); }));
  });
  return std::move(turn.back());
}

}  // namespace cgp::kernels
