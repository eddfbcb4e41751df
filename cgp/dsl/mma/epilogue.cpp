// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/epilogue.h"

#include "cgp/dsl/core/convert.h"

namespace cgp::dsl {
namespace record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
namespace {

/// First row of this warp in the accumulator: 16 rows per warp of a warpgroup.
std::optional<Val<u32>> warp_row(Kernel& k, int block_rows) {
  if (block_rows == 16) return std::nullopt;
  return times(remainder(divided(k.tid(), 32), 4), 16);
}

class AccWriter {
 public:
  AccWriter(Kernel& k, const AccStore& s, const std::vector<Value>& acc, const TileLayout& tile, Here at)
      : k_(k), s_(s), acc_(acc), tile_(tile), at_(at), packed_(s.register_type == Mod::b32) {}

  /// 16-bit elements, 16 x 16 at a time.
  void by_stmatrix(const Val<u32>& base, int offset) {
    const Val<u32> lane = k_.laneid();
    const Val<u32> in_warp = remainder(lane, 16), chunk = divided(lane, 16);
    const auto first = warp_row(k_, s_.block_rows);
    const Val<u32> row = first ? *first + in_warp : in_warp;
    TileLanes lanes(tile_, base + tile_offset(tile_, row, times(chunk, 8)), offset);
    for (int i = 0; i < s_.rows / s_.block_rows; ++i)
      for (int col = 0; col < tile_.cols; col += 16) {
        std::vector<Value> regs;
        for (int j = 0; j < (tile_.cols - col >= 16 ? 2 : 1); ++j)
          for (int h = 0; h < 2; ++h) regs.push_back(pair16(i, s_.first_col + col + 8 * j, h));
        const auto where = lanes.at(i * s_.block_rows, col / 8);
        stmatrix(k_, false, where.first, where.second, regs, at_);
      }
  }
  /// Any element: the two neighbours that a thread holds go in one store.
  void by_pairs(const Val<u32>& base, int offset) {
    const auto origin = s_.block_rows == 64 ? warpgroup_origin(k_) : warp_origin(k_);
    TileLanes lanes(tile_, base + tile_offset(tile_, origin.row, origin.col), offset);
    for (int i = 0; i < s_.rows / s_.block_rows; ++i)
      for (int col = 0; col < tile_.cols; col += 8)
        for (int h = 0; h < 2; ++h) {
          const int bytes = col * tile_.element_bytes;
          const auto where = lanes.at(i * s_.block_rows + 8 * h, bytes / 16);
          store_pair(i, s_.first_col + col, h, where.first, where.second + bytes % 16);
        }
  }

 private:
  std::size_t index(int block, int col, int half) const {
    return std::size_t((block * (s_.cols / 8) + col / 8) * 4 + 2 * half);
  }
  Value pair16(int block, int col, int half) {
    const std::size_t i = index(block, col, half);
    if (packed_) return acc_[i / 2];
    return pack_pair(k_, s_.element == Mod::bf16 ? Mod::bf16x2 : Mod::f16x2, acc_[i], acc_[i + 1], at_);
  }
  void store_pair(int block, int col, int half, const Value& address, int offset) {
    const Operand where = Operand::at(k_.register_of(address), offset);
    const std::size_t i = index(block, col, half);
    if (tile_.element_bytes == 4) {
      k_.inst(Op::st, {Mod::shared, Mod::v2, s_.register_type},
              {where, Operand::vec({k_.in_register(acc_[i]), k_.in_register(acc_[i + 1])})});
    } else if (tile_.element_bytes == 2) {
      k_.inst(Op::st, {Mod::shared, Mod::b32}, {where, k_.in_register(pair16(block, col, half))});
    } else if (s_.element == Mod::s8) {
      const auto both = prmt(bits<u32>(Val<s32>(acc_[i])), bits<u32>(Val<s32>(acc_[i + 1])), Val<u32>(0x40));
      k_.inst(Op::st, {Mod::shared, Mod::b16}, {where, k_.in_register(to<u16>(both))});
    } else {
      const Mod packed = s_.element == Mod::e4m3 ? Mod::e4m3x2 : Mod::e5m2x2;
      const Value both =
          k_.op(Op::cvt, {Mod::rn, Mod::satfinite, packed, Mod::f32}, Mod::b16, {acc_[i + 1], acc_[i]});
      k_.inst(Op::st, {Mod::shared, Mod::b16}, {where, k_.in_register(both)});
    }
  }
  Kernel& k_;
  const AccStore& s_;
  const std::vector<Value>& acc_;
  const TileLayout& tile_;
  Here at_;
  bool packed_;
};

}  // namespace

void store_accumulator(Kernel& k, const AccStore& s, const std::vector<Value>& acc, const TileLayout& tile,
                       const Val<u32>& base, int offset, Here at) {
  k.at(at);
  AccWriter w(k, s, acc, tile, at);
  const bool sixteen = tile.element_bytes == 2;
  // Without a swizzle stmatrix may still be used, at the price of bank conflicts; rows must hold whole
  // chunks.
  if (sixteen && k.sm() >= 90 && tile.row_bytes() % 16 == 0)
    w.by_stmatrix(base, offset);
  else
    w.by_pairs(base, offset);
}

// ---------------------------------------------------------------- Staging
StagingCore::StagingCore(Kernel& k, int warpgroups, int buffers, int tile_bytes, int align, Here at)
    : k_(k),
      warpgroups_(warpgroups),
      buffers_(buffers),
      tile_bytes_((tile_bytes + align - 1) / align * align) {
  k.needs_sm(90, "a TMA store", at);
  if (buffers < 1) throw BuildError("staging has at least one buffer", at, text::cat("got ", buffers));
  // No bytes: the caller brings the memory, and asks end() alone.
  data_ = tile_bytes_ ? k.smem(tile_bytes_ * buffers * warpgroups, align, at) : 0;
  first_barrier_ = k.named_barrier(128, at).id();
  for (int i = 1; i < warpgroups; ++i) (void)k.named_barrier(128, at);
}

void StagingCore::barrier(Warpgroup& wg, Here at) {
  wg.converged("bar.sync of the warpgroup", at);
  const Operand id = warpgroups_ == 1 ? Operand::integer(first_barrier_)
                                      : k_.in_register(wg.index + Val<u32>(first_barrier_));
  k_.inst(Op::bar_sync, {}, {id, Operand::integer(128)});
}

Val<pred> StagingCore::storing_thread() { return remainder(k_.tid(), 128) == Val<u32>(0); }

Val<u32> StagingCore::begin(Warpgroup& wg, int buffer, Here at) {
  k_.at(at);
  // Bulk groups belong to a thread: the same one issues and waits.
  k_.guarded(storing_thread(), [&] { bulk_wait(k_, buffers_ - 1, true, at); });
  barrier(wg, at);
  const Val<u32> base = k_.smem_addr(data_ + buffer * tile_bytes_, at);
  return warpgroups_ == 1 ? base : base + times(wg.index, buffers_ * tile_bytes_);
}

void StagingCore::end(Warpgroup& wg, const TmaSource& to, const Val<u32>& tile, const TileLayout& layout,
                      StoreOp op, Here at) {
  fence_proxy_async(k_, Mod::shared_cta, at);
  barrier(wg, at);
  k_.guarded(storing_thread(), [&] {
    tma_store(k_, to, {tile, 0}, layout, op, at);
    bulk_commit(k_, at);
  });
}

void StagingCore::drain(Warpgroup& wg, Here at, bool read) {
  wg.converged("waiting for staged stores", at);
  k_.at(at);
  k_.guarded(storing_thread(), [&] { bulk_wait(k_, 0, read, at); });
}

}  // namespace record

PendingStore Carry<PendingStore>::settle(Kernel& k, PendingStore& home, PendingStore next) {
  if (home.core_ != next.core_ || home.next_ != next.next_)
    throw BuildError(
        "a loop body stores whole turns of the staging buffers", next.at_,
        text::cat("the next buffer is ", home.next_, " at the top and ", next.next_, " at the bottom"),
        "make the number of stores in the body a multiple of the number of buffers");
  (void)k;
  home.core_ = nullptr;
  return next;
}

}  // namespace cgp::dsl
