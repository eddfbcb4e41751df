// SPDX-License-Identifier: Apache-2.0
#pragma once
// 8-bit values for attention sm90. wgmma reads 8-bit operands with the summed dimension contiguous, so v must
// be transposed to [d][keys]. TMA brings tiles [keys][d] into one ring; two warps of the producing warpgroup
// transpose them into another. Two orders are free, because a sum has no order and columns of o are stored one
// by one:
//   16 keys     byte 4q + 2b + e is key 8b + 2q + e: what a thread holds of an accumulator of scores, so that
//               probabilities become operand A without leaving their thread
//   16 columns  rows 0 to 7 are the even columns of v, 8 to 15 the odd ones: a transposed ldmatrix of pairs of
//               bytes gives both, and neighbouring rows lie in different banks
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/held_stage.h"
#include "cgp/dsl/pipeline/warp_ring.h"
#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels::attention_parts {

using namespace dsl;

template <class T, int BN, int DV>
class TransposedValues {
 public:
  using Raw = dsl::Tile<T, BN, DV>;
  using Transposed = dsl::Tile<T, DV, BN>;
  static constexpr int kWarps = 2, kFirst = 2;  // of the producing warpgroup; its first warp issues copies

  TransposedValues(Kernel& k, int stages, const Role<Warpgroup>& load, const Role<Warpgroup>& math)
      : k_(k),
        raw_(k, stages, load,
             Role<Warp>(k, load.first_warp() + kFirst, kWarps, 0, std::make_shared<bool>(true))),
        ring_(k, stages, kWarps, math) {}

  template <class At>
  void fill(Thread& t, const At& at) {
    raw_.fill(t, at);
  }

  /// body(Warp&) on the warps of the producing warpgroup that call transpose().
  template <class Body>
  void transposers(Warpgroup& load, Body&& body) {
    Warp w = load.warp();
    k_.if_(w.index >= std::uint32_t(kFirst), [&] {
      locate(w.index - std::uint32_t(kFirst));
      body(w);
    });
  }
  /// One tile, as many times as fill().
  void transpose(Warp& w) {
    auto raw = raw_.take(w);
    auto stage = ring_.open(w);
    const auto from = raw.template get<0>().address() + from_[0], to = stage.tile().address() + to_[0];
    for (int block = 0; block < kBlocks; ++block) {
      const auto [source, column] = further(Raw::layout, from, 16 * block);
      for (int first = 0; first < BN; first += kTogether) {
        std::vector<std::array<Val<b32>, 4>> in;
        for (int keys = first; keys < std::min(BN, first + kTogether); keys += 32)
          in.push_back(ldmatrix<x4, trans>(w, source, column + keys * Raw::layout.span()));
        for (std::size_t n = 0; n < in.size(); ++n) {
          const auto& x = in[n];
          const std::array<Val<b32>, 4> out{prmt(x[0], x[1], 0x6420u), prmt(x[0], x[1], 0x7531u),
                                            prmt(x[2], x[3], 0x6420u), prmt(x[2], x[3], 0x7531u)};
          const auto [place, offset] = further(Transposed::layout, to, first + 32 * int(n));
          stmatrix<x4>(w, place, out, offset + 16 * block * Transposed::layout.span());
        }
      }
    }
    std::move(raw).release(w);
    std::move(stage).publish(w);
  }

  /// acc + p * v of the next tile; wait(wg) gives the accumulator back and frees the tile.
  template <class P>
  auto multiply(Warpgroup& wg, Acc<f32, 64, DV> acc, P p, bool promoted, const WgmmaPart& part,
                Here at = Here::now()) {
    return Product<P>(wg, std::move(acc), std::move(p), Stage(ring_.take(wg)), promoted, part, at);
  }

 private:
  using Stage = HeldStage<Transposed>;
  static constexpr int kTogether = 128;             // keys whose loads are under way together
  static constexpr int kBlocks = DV / 16 / kWarps;  // of 16 columns, of each warp
  static_assert(DV % (16 * kWarps) == 0 && BN % 32 == 0);

  static constexpr int kParts = 2;  // of the columns, where accumulation is promoted
  // The tensor core keeps some 14 bits of a sum. A promoted product sums one tile's keys; fp32 registers add up
  // the tiles. It is made in two parts, one half of the columns after the other, which needs fewer registers:
  // step() ends one part and begins the next.
  template <class P>
  class Product {
    using All = Acc<f32, 64, DV>;
    using Part = Acc<f32, 64, DV / kParts>;

   public:
    Product(Warpgroup& wg, All acc, P p, Stage stage, bool promoted, const WgmmaPart& part, Here at)
        : p_(std::move(p)), stage_(std::move(stage)), at_(at) {
      if (promoted) {
        acc_.emplace(std::move(acc));
        begin(wg);
      } else {
        whole_.emplace(wgmma(wg, std::move(acc), p_, tile(), part));
      }
    }
    /// After the first part's product has had time.
    void step(Warpgroup& wg) {
      if (!part_ || begun_ == kParts) return;
      end(wg);
      begin(wg);
    }
    All wait(Warpgroup& wg) && {
      while (part_ && begun_ < kParts) step(wg);
      if (part_) end(wg);
      if (whole_) acc_.emplace(std::move(*whole_).wait(wg, at_));
      std::move(stage_).free(wg, at_);
      return std::move(*acc_);
    }

   private:
    SmemTile<Transposed> tile() const { return stage_.template get<0>(); }
    void begin(Warpgroup& wg) {
      part_.emplace(wgmma(wg, fresh<f32, 64, DV / kParts>(wg), p_,
                          tile().template rows<DV / kParts>(DV / kParts * begun_)));
      ++begun_;
    }
    void end(Warpgroup& wg) {
      const Part done = std::move(*part_).wait(wg, at_);
      part_.reset();
      const auto first = std::size_t((begun_ - 1) * Part::count);
      for (std::size_t i = 0; i < std::size_t(Part::count); ++i) {
        const Value& sum = acc_->values()[first + i];
        wg.k.mov_op(sum, ptx::Op::add, {ptx::Mod::f32}, {sum, done.values()[i]});
      }
    }
    P p_;
    Stage stage_;
    Here at_;
    std::optional<All> acc_;
    std::optional<InFlight<All, 0>> whole_;
    std::optional<InFlight<Part, 0>> part_;
    int begun_ = 0;
  };

  // What does not change from tile to tile: lane l reads row l of 32 keys, and writes row l % 16 of 16.
  void locate(const Val<u32>& warp) {
    const auto lane = k_.laneid();
    const auto first = warp * std::uint32_t(16 * kBlocks);
    from_.push_back(SmemTile<Raw>::offset_of(lane, first));
    to_.push_back(SmemTile<Transposed>::offset_of(first + (lane & 15u), (lane >> 4u) * 16u));
  }
  /// Address and offset of `bytes` further in the row, where adding that to the lane's own carries nothing.
  static std::pair<Val<u32>, int> further(const TileLayout& t, const Val<u32>& address, int bytes) {
    const int inside = bytes % t.span(), panels = bytes / t.span() * t.panel_bytes();
    return {inside ? address ^ std::uint32_t(inside) : address, panels};
  }
  Kernel& k_;
  Ring<ByThreads, Raw> raw_;
  WarpRing<Transposed> ring_;
  std::vector<Val<u32>> from_, to_;
};

}  // namespace cgp::kernels::attention_parts
