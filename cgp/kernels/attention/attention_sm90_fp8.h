// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values of 8 bits for attention sm90. wgmma reads 8-bit operands with the summed dimension contiguous, so v
// must become [d][keys]. TMA brings tiles [keys][d] into one ring, two warps of the producing warpgroup turn
// them into another. Two orders are free, since sums do not care and columns of o are stored one by one:
//   keys of 16  byte 4q + 2b + e is key 8b + 2q + e: what a thread holds of an accumulator of scores, so that
//               probabilities become operand A without leaving their thread
//   d of 16     rows 0 to 7 are the even columns of v, 8 to 15 the odd ones: a transposed ldmatrix of pairs
//   of
//               bytes gives both, and rows that are neighbours lie in different banks
#include "cgp/dsl/memory/ldmatrix.h"
#include "cgp/dsl/mma/wgmma.h"
#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/kernels/attention/attention.h"

namespace cgp::kernels::attention_parts {

using namespace dsl;

template <class T, int BN, int DV>
class TurnedValues {
 public:
  using Raw = dsl::Tile<T, BN, DV>;
  using Turned = dsl::Tile<T, DV, BN>;
  static constexpr int kWarps = 2, kFirst = 2;  // of the producing warpgroup; its first warp issues copies

  TurnedValues(Kernel& k, int stages, const Role<Warpgroup>& load, const Role<Warpgroup>& math,
               Here at = Here::now())
      : k_(k),
        raw_(k, stages, load,
             Role<Warp>(k, load.first_warp() + kFirst, kWarps, 0, std::make_shared<bool>(true))),
        data_(k.smem(Turned::bytes * stages, Turned::align, at)),
        bars_(k.smem(kBarriers * stages, kBarriers, at)),
        filled_(k, stages, 1),
        taken_(k, stages, 0),
        releases_(k.laneid() < 1u) {
    k.if_(
        k.tid() == 0u,
        [&] {
          for (int s = 0; s < stages; ++s) {
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kBarriers * s}, Val<u32>(kWarps), at);
            record::mbarrier_init(k, {k.smem_addr(0), bars_ + kBarriers * s + 8},
                                  Val<u32>(math.threads() / 32), at);
          }
          record::fence_mbarrier_init(k, at);
        },
        at);
    record::sync_cluster_or_block(k, at);
  }

  template <class At>
  void fill(Thread& t, const At& at) {
    raw_.fill(t, at);
  }

  /// body(Warp&) on the warps of the producing warpgroup that call turn().
  template <class Body>
  void turners(Warpgroup& load, Body&& body) {
    Warp w = load.warp();
    k_.if_(w.index >= std::uint32_t(kFirst), [&] {
      locate(w.index - std::uint32_t(kFirst));
      body(w);
    });
  }
  /// One tile, as many times as fill().
  void turn(Warp& w, Here at = Here::now()) {
    auto raw = raw_.take(w);
    record::mbarrier_wait(k_, {barrier(filled_), 8}, filled_.parity(), false, at);
    const auto from = raw.template get<0>().address() + from_[0], to = data(filled_) + to_[0];
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
          const auto [place, offset] = further(Turned::layout, to, first + 32 * int(n));
          stmatrix<x4>(w, place, out, offset + 16 * block * Turned::layout.span());
        }
      }
    }
    std::move(raw).release(w);
    record::fence_proxy_async(k_, ptx::Mod::shared_cta, at);
    w.sync();
    k_.guarded(releases_, [&] { record::mbarrier_arrive(k_, {barrier(filled_), 0}, at); });
    filled_.advance(at);
  }

  /// acc + p * v of the next tile; wait(wg) gives the accumulator back and frees the tile.
  template <class P>
  auto multiply(Warpgroup& wg, Acc<f32, 64, DV> acc, P p, bool promoted, const WgmmaPart& part,
                Here at = Here::now()) {
    wg.converged("taking turned values", at);
    record::mbarrier_wait(k_, {barrier(taken_), 0}, taken_.parity(), false, at);
    const SmemTile<Turned> tile(data(taken_));
    record::StageToken stage(barrier(taken_) + 8u, releases_, false, at);
    taken_.advance(at);
    return Multiplied<P>(wg, std::move(acc), std::move(p), tile, std::move(stage), promoted, part, at);
  }

 private:
  static constexpr int kTogether = 128;             // keys whose loads are under way together
  static constexpr int kBarriers = 16;              // full at +0, empty at +8
  static constexpr int kBlocks = DV / 16 / kWarps;  // of 16 columns, of each warp
  static_assert(DV % (16 * kWarps) == 0 && BN % 32 == 0);

  static constexpr int kParts = 2;  // of the columns, where sums are promoted
  // The tensor core keeps some 14 bits of a sum. A promoted product is a sum of one tile's keys, which fp32
  // registers add up; to need few of them, it is made part by part: step() ends one and begins the next.
  template <class P>
  class Multiplied {
    using All = Acc<f32, 64, DV>;
    using Part = Acc<f32, 64, DV / kParts>;

   public:
    Multiplied(Warpgroup& wg, All acc, P p, const SmemTile<Turned>& tile, record::StageToken stage,
               bool promoted, const WgmmaPart& part, Here at)
        : p_(std::move(p)), tile_(tile), stage_(std::move(stage)), at_(at) {
      if (promoted) {
        sums_.emplace(std::move(acc));
        begin(wg);
      } else {
        whole_.emplace(wgmma(wg, std::move(acc), p_, tile_, part));
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
      if (whole_) sums_.emplace(std::move(*whole_).wait(wg, at_));
      std::move(stage_).release(at_);
      return std::move(*sums_);
    }

   private:
    void begin(Warpgroup& wg) {
      part_.emplace(wgmma(wg, fresh<f32, 64, DV / kParts>(wg), p_,
                          tile_.template rows<DV / kParts>(DV / kParts * begun_)));
      ++begun_;
    }
    void end(Warpgroup& wg) {
      const Part done = std::move(*part_).wait(wg, at_);
      part_.reset();
      const auto first = std::size_t((begun_ - 1) * Part::count);
      for (std::size_t i = 0; i < std::size_t(Part::count); ++i) {
        const Value& sum = sums_->values()[first + i];
        wg.k.mov_op(sum, ptx::Op::add, {ptx::Mod::f32}, {sum, done.values()[i]});
      }
    }
    P p_;
    SmemTile<Turned> tile_;
    record::StageToken stage_;
    Here at_;
    std::optional<All> sums_;
    std::optional<InFlight<All, 0>> whole_;
    std::optional<InFlight<Part, 0>> part_;
    int begun_ = 0;
  };

  // What does not change from tile to tile: lane l reads row l of 32 keys, and writes row l % 16 of 16.
  void locate(const Val<u32>& warp) {
    const auto lane = k_.laneid();
    const auto first = warp * std::uint32_t(16 * kBlocks);
    from_.push_back(record::tile_offset(Raw::layout, lane, first));
    to_.push_back(record::tile_offset(Turned::layout, first + (lane & 15u), (lane >> 4u) * 16u));
  }
  /// Address and offset of `bytes` further in the row, where adding that to the lane's own carries nothing.
  static std::pair<Val<u32>, int> further(const TileLayout& t, const Val<u32>& address, int bytes) {
    const int inside = bytes % t.span(), panels = bytes / t.span() * t.panel_bytes();
    return {inside ? address ^ std::uint32_t(inside) : address, panels};
  }
  Val<u32> barrier(const record::PhaseCursor& c) const {
    return k_.smem_addr(bars_) + record::times(c.stage(), kBarriers);
  }
  Val<u32> data(const record::PhaseCursor& c) const {
    return k_.smem_addr(data_) + record::times(c.stage(), Turned::bytes);
  }

  Kernel& k_;
  Ring<ByThreads, Raw> raw_;
  int data_, bars_;
  record::PhaseCursor filled_, taken_;
  Val<pred> releases_;
  std::vector<Val<u32>> from_, to_;
};

/// e4m3 operands; no variant where there is no such tile.
struct Sm90Tune;
Variant sm90_fp8(std::string name, int d_qk, int d_v, int columns, const Sm90Tune& t);

}  // namespace cgp::kernels::attention_parts
