// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bulk copies whose stage or barrier is chosen at run time, for loops whose body is recorded once whatever the
// number of stages. Phases are derived; a kernel never sees a parity.
//   BulkRing           stages in shared memory that bulk copies fill. The kernel knows by its own barriers when a
//                      stage may be filled again.
//   BulkRoleRing       stages of equal pieces between a role that copies and one that reads and frees them
//   ExchangeBarriers   barriers that count the bytes of st.async from the blocks of a cluster, one per exchange
// Ring (ring.h) is the better choice where TMA tiles have build-time shapes and consumers free the stages.
#include <optional>

#include "cgp/dsl/pipeline/cluster.h"
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

class BulkRing {
 public:
  /// The stage to read next. A loop carries it.
  class Cursor {
   public:
    Cursor() : Cursor(Val<u32>(0), Val<u32>(0)) {}
    const Val<u32>& stage() const { return stage_; }
    static auto carried() { return std::tuple(&Cursor::stage_, &Cursor::parity_); }

   private:
    friend class BulkRing;
    template <class S>
    friend struct Carry;
    Cursor(const Val<u32>& stage, const Val<u32>& parity) : stage_(stage), parity_(parity) {}
    Val<u32> stage_, parity_;
  };

  /// `arrivals` threads call expect() for each filling of a stage. All threads of the block construct the ring.
  BulkRing(Kernel& k, int stages, int stage_bytes, int arrivals = 1, Here at = Here::now());

  /// A ring for each of the block's `warps` warps: this one's. One thread of the warp calls expect() for each filling;
  /// only the warp waits for the barriers to be there.
  BulkRing(Warp& warp, int warps, int stages, int stage_bytes, Here at = Here::now());

  /// This thread announces the bytes of its copies into `stage`, 0 included.
  void expect(const Val<u32>& stage, const Val<u32>& bytes, Here at = Here::now()) const;
  /// Copies `bytes` (a multiple of 16) to `to`, which lies in `stage`; both addresses are multiples of 16.
  template <class T, class U>
  void copy(const Val<u32>& stage, const Ptr<shared, T>& to, const Ptr<global, U>& from,
            const Val<u32>& bytes, L2Hint hint = L2Hint::none, Here at = Here::now()) const {
    record::bulk_load(k_, {to.base(), int(to.offset())}, {from.base(), from.offset()}, bytes, barrier(stage),
                      hint, at);
  }
  /// Waits until the copies of the cursor's stage have landed.
  void wait(const Cursor& c, Here at = Here::now()) const;
  Cursor next(const Cursor& c) const;
  /// The stage that was read before the cursor's.
  Val<u32> previous(const Cursor& c) const;
  Ptr<shared, b8> stage(const Val<u32>& stage, int offset = 0) const {
    return Ptr<shared, b8>(first_stage_.value_or(k_.smem_addr(data_)))
        .at(stage * std::uint32_t(stage_bytes_))
        .at(offset);
  }

 private:
  record::SharedAddress barrier(const Val<u32>& stage) const;
  Kernel& k_;
  int stages_, stage_bytes_, data_, full_;
  std::optional<Val<u32>> first_stage_, first_barrier_;  ///< addresses, of a warp's own ring
};

/// Ring (ring.h) for bulk copies: a stage is `pieces` pieces of `piece_bytes`, one after the other.
class BulkRoleRing {
 public:
  /// A thread of `from` fills, every warp of `to` takes and frees each stage.
  BulkRoleRing(Kernel& k, Stages stages, int pieces, int piece_bytes, const Role<Warpgroup>& from,
               const Role<Warpgroup>& to)
      : pieces_(pieces),
        piece_bytes_(piece_bytes),
        core_(k, stages, pieces * piece_bytes, pieces * piece_bytes, 128,
              record::RingRules{to.threads() / 32, false, false, from.first_warp(), to.first_warp(),
                                to.threads() / 32},
              {}) {}
  /// Waits for an empty stage and copies from(i), where a piece lies in global memory, to its piece i.
  template <class From>
  void fill(Thread& t, From&& from, L2Hint hint = L2Hint::none, Here at = Here::now()) {
    const auto stage = core_.begin_fill(at);
    for (int i = 0; i < pieces_; ++i) {
      const auto piece = from(i);
      record::bulk_load(t.k, {stage.data, i * piece_bytes_}, {piece.base(), piece.offset()},
                        Val<u32>(piece_bytes_), stage.full, hint, at);
    }
    core_.end_fill(at);
  }
  /// A stage that has landed; a BuildError where it is not released.
  class [[nodiscard]] Taken {
   public:
    Val<u32> piece(const Val<u32>& i) const { return data_ + i * std::uint32_t(piece_bytes_); }
    /// All warps of the reading role, when all lanes have read.
    void release(Warp& w, Here at = Here::now()) && {
      w.sync(at);
      std::move(token_).release(at);
    }

   private:
    friend class BulkRoleRing;
    Taken(const Val<u32>& data, int piece_bytes, record::StageToken token)
        : data_(data), piece_bytes_(piece_bytes), token_(std::move(token)) {}
    Val<u32> data_;
    int piece_bytes_;
    record::StageToken token_;
  };
  /// Waits for a full stage.
  Taken take(Warpgroup& wg, Here at = Here::now()) {
    wg.converged("ring.take", at);
    const auto data = core_.begin_take(at);
    return Taken(data, piece_bytes_, core_.end_take(at));
  }

 private:
  int pieces_, piece_bytes_;
  record::RingCore core_;
};

/// Exchange i of a block waits on barrier i mod `count`. Each phase has one arrival, which announces the bytes
/// that the blocks of the cluster will send.
class ExchangeBarriers {
 public:
  /// Threads count exchanges; no number: the kernel has one exchange.
  using Exchange = std::optional<Val<u32>>;
  /// `count`: a power of two. Synchronises the cluster.
  ExchangeBarriers(Kernel& k, int count, Here at = Here::now());
  /// The barrier of an exchange, to announce bytes and to be named to other blocks.
  class Barrier {
   public:
    void expect(Thread&, const Val<u32>& bytes, Here at = Here::now()) const;
    PeerBarrier of_block(const Val<u32>& rank, Here at = Here::now()) const;

   private:
    friend class ExchangeBarriers;
    explicit Barrier(const Val<u32>& address) : address_(address) {}
    Val<u32> address_;
  };
  Barrier at(const Exchange& i) const;
  /// Waits until the bytes of exchange `i` are there; they are visible to the calling thread.
  void wait(const Exchange& i, Here at = Here::now()) const;

 private:
  Kernel& k_;
  int count_, first_;
};

}  // namespace cgp::dsl
