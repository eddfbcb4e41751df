// SPDX-License-Identifier: Apache-2.0
#pragma once
// cp.async (sm_80): copies from global to shared memory that bypass registers, and the pipeline over them.
//   TileSource   a matrix in global memory as the source of tiles; each thread knows its 16-byte chunks
//   AsyncRing    stages of tiles; loop() issues the copies, waits, and hands each stage to the body
// A stage can be read only inside the body that AsyncRing calls after its wait: the wait cannot be
// forgotten. PTX ISA, "Data movement and conversion: cp.async".
#include <algorithm>
#include <optional>

#include "cgp/dsl/core/scope.h"
#include "cgp/dsl/memory/ptr.h"
#include "cgp/dsl/memory/tile.h"

namespace cgp::dsl {

namespace record {
/// One copy of 4, 8 or 16 bytes; `source_bytes` (or null) are read, the rest is filled with zeros.
void cp_async(Kernel& k, const Value& shared_address, int shared_offset, const record_impl::Address& from,
              int bytes, const Value* source_bytes, ptx::Mods l2, Here at);
void cp_async_commit(Kernel& k, Here at);
void cp_async_wait(Kernel& k, int pending, Here at);
void cp_async_wait_all(Kernel& k, Here at);
/// Threads of the block, as the kernel was told; BuildError when the launch would choose.
int block_threads(const Kernel& k, std::string_view what, Here at);

/// Which chunks of a tile a thread copies: chunk i * threads + tid, for i < steps.
struct ChunkPlan {
  int threads, chunks_per_row, chunks, steps;
  int row_step;       ///< rows from one step to the next; 0: the chunk's column differs from step to step
  bool last_partial;  ///< some threads have no chunk in the last step
};
ChunkPlan plan_chunks(const TileLayout& t, int threads);
struct SourceShape {
  Val<u32> pitch;  ///< elements from one row to the next
  std::optional<Val<u32>> rows, cols;
};
void copy_tile(Kernel& k, const TileLayout& t, const ChunkPlan& plan, const Val<u32>& thread, const Value& to,
               int to_offset, const record_impl::Address& from, const SourceShape& shape, const Val<u32>& row,
               const Val<u32>& col, ptx::Mods l2, Here at);
}  // namespace record

/// cp_async<16>(dst, src): 16 bytes (also 4 or 8) by this thread. Tags: L2_64B, L2_128B, L2_256B (prefetch
/// size).
template <int Bytes, class... Tags, class T, class U>
void cp_async(const Ptr<shared, T>& to, const Ptr<global, U>& from, Here at = Here::now()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  record::cp_async(*to.kernel(), to.base(), int(to.offset()), {from.base(), from.offset()}, Bytes, nullptr,
                   mods_of<Tags...>(), at);
}
/// The same; only the first `source_bytes` are read, the rest becomes zero (0: nothing is read).
template <int Bytes, class... Tags, class T, class U>
void cp_async_zfill(const Ptr<shared, T>& to, const Ptr<global, U>& from, const Val<u32>& source_bytes,
                    Here at = Here::now()) {
  static_assert(Bytes == 4 || Bytes == 8 || Bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  const Value n = source_bytes;
  record::cp_async(*to.kernel(), to.base(), int(to.offset()), {from.base(), from.offset()}, Bytes, &n,
                   mods_of<Tags...>(), at);
}
/// Copies issued so far and not yet in a group become one group of this thread.
inline void cp_async_commit(Kernel& k, Here at = Here::now()) { record::cp_async_commit(k, at); }
/// Waits until at most `pending` groups of this thread are unfinished. Other threads' copies need a barrier
/// too.
inline void cp_async_wait(Kernel& k, int pending, Here at = Here::now()) {
  record::cp_async_wait(k, pending, at);
}
inline void cp_async_wait_all(Kernel& k, Here at = Here::now()) { record::cp_async_wait_all(k, at); }

/// A row-major matrix as the source of TileT tiles, copied by all threads of the block (which must be known).
/// With limits, chunks outside are zeros: rows at and beyond `rows`, columns at and beyond `cols`.
/// Every row must start at a multiple of 16 bytes.
template <class TileT, class... L2>
class TileSource {
 public:
  using elem = typename TileT::elem;
  TileSource(Cta& cta, const Ptr<global, const elem>& src, const Val<u32>& pitch, Here at = Here::now())
      : TileSource(cta, src, {pitch, std::nullopt, std::nullopt}, at) {}
  TileSource(Cta& cta, const Ptr<global, const elem>& src, const Val<u32>& pitch, const Val<u32>& rows,
             const Val<u32>& cols, Here at = Here::now())
      : TileSource(cta, src, {pitch, rows, cols}, at) {}

  /// Issues the copy of the tile whose first element is (row, col) of the matrix.
  template <int PanelRows>
  void copy(const SmemTile<TileT, PanelRows>& to, const Val<u32>& row, const Val<u32>& col,
            Here at = Here::now()) const {
    record::copy_tile(*k_, SmemTile<TileT, PanelRows>::layout, plan_, thread_, to.base(), to.offset(),
                      {src_.base(), src_.offset()}, shape_, row, col, mods_of<L2...>(), at);
  }

 private:
  TileSource(Cta& cta, const Ptr<global, const elem>& src, record::SourceShape shape, Here at)
      : k_(&cta.k),
        plan_(record::plan_chunks(TileT::layout, record::block_threads(cta.k, "TileSource", at))),
        src_(src),
        shape_(std::move(shape)),
        thread_(cta.k.tid()) {
    static_assert(TileT::row_bytes % 16 == 0,
                  "cp.async moves 16-byte chunks: rows must be a multiple of 16 bytes");
  }
  Kernel* k_;
  record::ChunkPlan plan_;
  Ptr<global, const elem> src_;
  record::SourceShape shape_;
  Val<u32> thread_;
};

template <class... Tiles>
class AsyncRing;

/// A stage to be written: only copies go in.
template <class... Tiles>
class Filling {
 public:
  Filling(const Filling&) = delete;
  /// The I-th tile of the stage <- the tile of `src` at (row, col).
  template <int I, class Source>
  void copy(const Source& src, const Val<u32>& row, const Val<u32>& col, Here at = Here::now()) {
    src.copy(std::get<I>(tiles_), row, col, at);
  }
  /// For copies that TileSource does not describe: the tile, to be written with cp_async only.
  template <int I>
  auto& target() {
    return std::get<I>(tiles_);
  }

 private:
  friend class AsyncRing<Tiles...>;
  explicit Filling(std::tuple<SmemTile<Tiles>...> t) : tiles_(std::move(t)) {}
  std::tuple<SmemTile<Tiles>...> tiles_;
};

/// A stage whose copies have landed and are visible to the block.
template <class... Tiles>
class Ready {
 public:
  Ready(const Ready&) = delete;
  template <int I>
  const auto& get() const {
    return std::get<I>(tiles_);
  }

 private:
  friend class AsyncRing<Tiles...>;
  explicit Ready(std::tuple<SmemTile<Tiles>...> t) : tiles_(std::move(t)) {}
  std::tuple<SmemTile<Tiles>...> tiles_;
};

/// `stages` copies of the tiles in shared memory and the pipeline over them: stages - 1 copies are in flight
/// while the block computes.
template <class... Tiles>
class AsyncRing {
 public:
  static constexpr int align = std::max({Tiles::align...});
  /// Tiles are laid out in the order given, each at a multiple of its own alignment.
  static constexpr int stage_bytes = [] {
    int at = 0;
    ((at = (at + Tiles::align - 1) / Tiles::align * Tiles::align + Tiles::bytes), ...);
    return (at + align - 1) / align * align;
  }();

  AsyncRing(Kernel& k, int stages, Here at = Here::now()) : k_(k), stages_(stages), base_(0) {
    k.needs_sm(80, "cp.async", at);
    if (stages < 2)
      throw BuildError("a pipeline has at least two stages: one is read while the others are filled", at,
                       text::cat("stages = ", stages));
    base_ = k.smem(stage_bytes * stages, align, at);
  }

  /// state = body(ready, i, state) for i = 0 .. n-1, after fetch(filling, i) brought stage i in.
  /// fetch issues copies only; both run on every thread of the block. n must be uniform over the block.
  template <class S, class Fetch, class Body>
  S loop(Cta& cta, const Val<u32>& n, S init, Fetch&& fetch, Body&& body, Here at = Here::now()) {
    cta.converged("AsyncRing::loop", at);
    const int ahead = stages_ - 1;
    cta.sync(at);  // nobody still reads the stages of an earlier loop
    for (int s = 0; s < ahead; ++s) {
      const auto first_fill = [&] { fill(fetch, k_.smem_addr(base_ + s * stage_bytes, at), Val<u32>(s)); };
      if (!n.is_literal())
        k_.if_(n > Val<u32>(s), first_fill, at);
      else if (n.bits() > std::uint64_t(s))
        first_fill();
      record::cp_async_commit(k_, at);  // also when empty: the waits below count groups
    }
    using State = std::tuple<Val<u32>, Val<u32>, S>;
    const Val<u32> first = k_.smem_addr(base_, at);
    State last = k_.loop(
        n, State(first, k_.smem_addr(base_ + ahead * stage_bytes, at), std::move(init)),
        [&](Val<u32> i, State state) {
          const Val<u32> reading = std::get<0>(state), writing = std::get<1>(state);
          record::cp_async_wait(k_, ahead - 1, at);
          cta.sync(at);  // this stage has landed for everybody, and everybody is done with the one before
          const Val<u32> next = i + Val<u32>(ahead);
          k_.if_(
              next < n, [&] { fill(fetch, writing, next); }, at);
          record::cp_async_commit(k_, at);
          Ready<Tiles...> ready(tiles_at(reading));
          S out = body(static_cast<const Ready<Tiles...>&>(ready), i, std::move(std::get<2>(state)));
          return State(advance(reading, first), advance(writing, first), std::move(out));
        },
        at);
    return std::move(std::get<2>(last));
  }
  template <class Fetch, class Body>
  void loop(Cta& cta, const Val<u32>& n, Fetch&& fetch, Body&& body, Here at = Here::now()) {
    (void)loop(
        cta, n, std::tuple<>{}, fetch,
        [&](const Ready<Tiles...>& ready, const Val<u32>& i, std::tuple<>) {
          body(ready, i);
          return std::tuple<>{};
        },
        at);
  }
  int stages() const { return stages_; }

 private:
  std::tuple<SmemTile<Tiles>...> tiles_at(const Val<u32>& stage) const {
    int at = 0;
    return std::tuple<SmemTile<Tiles>...>{next_tile<Tiles>(stage, at)...};  // braces: in order
  }
  template <class T>
  static SmemTile<T> next_tile(const Val<u32>& stage, int& at) {
    at = (at + T::align - 1) / T::align * T::align;
    const int offset = at;
    at += T::bytes;
    return SmemTile<T>(stage, offset);
  }
  template <class Fetch>
  void fill(Fetch& fetch, const Val<u32>& stage, const Val<u32>& i) {
    Filling<Tiles...> filling(tiles_at(stage));
    fetch(filling, i);
  }
  Val<u32> advance(const Val<u32>& stage, const Val<u32>& first) {
    const Val<u32> next = stage + Val<u32>(stage_bytes);
    return select(next == first + Val<u32>(stage_bytes * stages_), first, next);
  }
  Kernel& k_;
  int stages_, base_;
};

}  // namespace cgp::dsl
