// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor Memory Accelerator (sm_90): kernel parameters TmaIn<Tile> and TmaOut<Tile> and copies through them.
//   TmaIn<Tile<bf16, 128, 64>> a     the host encodes a tensor map from the parameter's TensorMapSchema
//   at(a, row, col)                  where a tile begins; coordinates outermost first, one per dimension
//   a.multicast(Axis::x)             the cluster's blocks along x get the tile; each fetches its slice
//   a.hint(L2Hint::evict_first)      cache policy of the copies
// Tiles wider than the swizzle are several copies, derived here.
// PTX ISA, "Tensors" and "cp.async.bulk.tensor".
#include <span>

#include "cgp/dsl/core/build.h"
#include "cgp/dsl/memory/tile.h"
#include "cgp/dsl/pipeline/mbarrier.h"

namespace cgp::dsl {

enum class Axis : std::uint8_t { x, y, z };
enum class L2Hint : std::uint8_t { none, evict_normal, evict_first, evict_last };

namespace record {

/// A tensor map parameter and how this kernel uses it.
struct TmaMap {
  Kernel* k;
  ptx::SymbolId param;
  Value address;  ///< generic address of the 128 bytes
  TileLayout layout;
  int rank;
  int peers = 1;  ///< blocks of the cluster that share each load
  Axis axis = Axis::x;
  L2Hint hint = L2Hint::none;
};
/// Rows of one copy: at most 256, the same for all copies of a tile.
int box_rows(const TileLayout& t, int peers, Here at);
TmaMap declare_tma(Kernel& k, ptx::Mod element, const TileLayout& t, std::span<const int> box, bool store);
TmaMap with_address(const TmaMap& m, const Value& address);
TmaMap share_tma(const TmaMap& m, Axis axis, Here at);

struct TmaSource {
  TmaMap map;
  std::vector<Value> coords;  ///< outermost first
};
/// Loads one tile (this block's slice of it, when shared) to `to`; completion on `bar`, which may lie in the
/// other block of a `pair` (sm_100).
void tma_load(Kernel& k, const TmaSource& from, const SharedAddress& to, const SharedAddress& bar, Here at,
              bool pair = false);
enum class StoreOp : std::uint8_t { store, add, min, max, inc, dec, and_, or_, xor_ };
void tma_store(Kernel& k, const TmaSource& to, const SharedAddress& from, const TileLayout& layout,
               StoreOp op, Here at);
void tma_prefetch(Kernel& k, const TmaSource& from, Here at);
void prefetch_tensormap(Kernel& k, const Value& map, Here at);
void bulk_commit(Kernel& k, Here at);
void bulk_wait(Kernel& k, int pending, bool read, Here at);
void bulk_load(Kernel& k, const SharedAddress& to, const record_impl::Address& from, const Value& bytes,
               const SharedAddress& bar, L2Hint hint, Here at);
void bulk_store(Kernel& k, const record_impl::Address& to, const SharedAddress& from, const Value& bytes,
                StoreOp op, ptx::Mod type, L2Hint hint, Here at);
void bulk_prefetch(Kernel& k, const record_impl::Address& from, const Value& bytes, Here at);
void fence_proxy_async(Kernel& k, ptx::Mod space, Here at);
}  // namespace record

template <class TileT, int... Box>
class TmaMapOf {
 public:
  using tile = TileT;
  /// Extents of one tile in the tensor, outermost first; a matrix by default.
  static constexpr int rank = sizeof...(Box) == 0 ? 2 : int(sizeof...(Box));
  static_assert(rank <= 5, "a tensor has one to five dimensions");
  static_assert(sizeof...(Box) == 0 || (1 * ... * Box) == TileT::rows * TileT::cols,
                "the box of a tile must hold exactly the tile's elements");
  const record::TmaMap& map() const { return map_; }
  /// Starts fetching the 128-byte descriptor itself; once per kernel is enough.
  void prefetch_descriptor(Thread& t, Here at = Here::now()) const {
    record::prefetch_tensormap(t.k, map_.address, at);
  }

 protected:
  explicit TmaMapOf(record::TmaMap m) : map_(std::move(m)) {}
  static record::TmaMap declare(Kernel& k, bool store) {
    constexpr int dims = sizeof...(Box) == 0 ? 2 : int(sizeof...(Box));
    const std::array<int, std::size_t(dims)> box = [] {
      if constexpr (sizeof...(Box) == 0)
        return std::array<int, 2>{TileT::rows, TileT::cols};
      else
        return std::array<int, sizeof...(Box)>{Box...};
    }();
    return record::declare_tma(k, TileT::elem::mod, TileT::layout, box, store);
  }
  record::TmaMap map_;
};

/// A tensor that tiles are loaded from.
template <class TileT, int... Box>
class TmaIn : public TmaMapOf<TileT, Box...> {
  using Base = TmaMapOf<TileT, Box...>;

 public:
  /// The blocks of the cluster along `axis` all need the same tiles of this tensor: each loads one slice of
  /// the rows and multicasts it. Without a cluster along that axis this changes nothing.
  TmaIn multicast(Axis axis, Here at = Here::now()) const {
    return TmaIn(record::share_tma(this->map_, axis, at));
  }
  TmaIn hint(L2Hint h) const {
    auto m = this->map_;
    m.hint = h;
    return TmaIn(std::move(m));
  }
  /// The same tiles through another map (generic address); tensor_map_edit.h makes such maps.
  TmaIn through(const Value& address) const { return TmaIn(record::with_address(this->map_, address)); }
  static TmaIn declare(Kernel& k) { return TmaIn(Base::declare(k, false)); }

 private:
  explicit TmaIn(record::TmaMap m) : Base(std::move(m)) {}
};
/// A tensor that tiles are stored to (or reduced into).
template <class TileT, int... Box>
class TmaOut : public TmaMapOf<TileT, Box...> {
  using Base = TmaMapOf<TileT, Box...>;

 public:
  TmaOut hint(L2Hint h) const {
    auto m = this->map_;
    m.hint = h;
    return TmaOut(std::move(m));
  }
  /// The same tiles through another map (generic address); tensor_map_edit.h makes such maps.
  TmaOut through(const Value& address) const { return TmaOut(record::with_address(this->map_, address)); }
  static TmaOut declare(Kernel& k) { return TmaOut(Base::declare(k, true)); }

 private:
  explicit TmaOut(record::TmaMap m) : Base(std::move(m)) {}
};

/// Where a tile begins in its tensor.
template <class MapT>
struct TmaAt {
  using tile = typename MapT::tile;
  record::TmaSource place;
};
namespace record {
template <class C>
Value coordinate(const C& c) {
  if constexpr (std::is_integral_v<C>)
    return Value::literal(std::uint32_t(std::int32_t(c)), ptx::Mod::u32);
  else
    return c;
}
template <class MapT, class... C>
TmaAt<MapT> tma_at(const MapT& map, const C&... c) {
  static_assert(sizeof...(C) == MapT::rank, "one coordinate per dimension of the tensor, outermost first");
  return {{map.map(), {coordinate(c)...}}};
}
}  // namespace record
template <class TileT, int... Box, class... C>
TmaAt<TmaIn<TileT, Box...>> at(const TmaIn<TileT, Box...>& map, const C&... coords) {
  return record::tma_at(map, coords...);
}
template <class TileT, int... Box, class... C>
TmaAt<TmaOut<TileT, Box...>> at(const TmaOut<TileT, Box...>& map, const C&... coords) {
  return record::tma_at(map, coords...);
}
/// Brings a tile into L2 only.
template <class TileT, int... Box>
void prefetch(Thread& t, const TmaAt<TmaIn<TileT, Box...>>& from, Here at = Here::now()) {
  record::tma_prefetch(t.k, from.place, at);
}

/// Bulk copies of `bytes` bytes (a multiple of 16, both addresses 16-byte aligned), one thread each.
template <class T, class U>
void bulk_load(Thread& t, const Ptr<shared, T>& to, const Ptr<global, U>& from, const Val<u32>& bytes,
               const Mbarrier<ByBytes>& bar, L2Hint hint = L2Hint::none, Here at = Here::now()) {
  record::bulk_load(t.k, {to.base(), int(to.offset())}, {from.base(), from.offset()}, bytes,
                    {bar.address(), 0}, hint, at);
}

/// Copies out of shared memory that a thread has issued: the memory may be overwritten, and the block may
/// end, only after a wait.
class [[nodiscard]] PendingBulk {
 public:
  PendingBulk(PendingBulk&& o) noexcept : k_(std::exchange(o.k_, nullptr)), at_(o.at_) {}
  ~PendingBulk() {
    if (k_)
      k_->problem("bulk stores were issued but never waited for", at_,
                  "call wait_read(t) or wait(t) on what the store returned");
  }
  /// Shared memory has been read: it may be written again.
  void wait_read(Thread& t, Here at = Here::now()) && { finish(t, true, at); }
  /// The stores are done and visible.
  void wait(Thread& t, Here at = Here::now()) && { finish(t, false, at); }

  static PendingBulk commit(Thread& t, Here at) {
    record::bulk_commit(t.k, at);
    return PendingBulk(t.k, at);
  }

 private:
  PendingBulk(Kernel& k, Here at) : k_(&k), at_(at) {}
  void finish(Thread& t, bool read, Here at) {
    record::bulk_wait(t.k, 0, read, at);
    k_ = nullptr;
  }
  Kernel* k_;
  Here at_;
};
template <class T, class U>
PendingBulk bulk_store(Thread& t, const Ptr<global, T>& to, const Ptr<shared, U>& from, const Val<u32>& bytes,
                       L2Hint hint = L2Hint::none, Here at = Here::now()) {
  record::bulk_store(t.k, {to.base(), to.offset()}, {from.base(), int(from.offset())}, bytes,
                     record::StoreOp::store, ptx::Mod::b8, hint, at);
  return PendingBulk::commit(t, at);
}
/// to[i] += from[i]; T decides the arithmetic (f16 and bf16 without flushing).
template <class T>
PendingBulk bulk_add(Thread& t, const Ptr<global, T>& to, const Ptr<shared, T>& from, const Val<u32>& bytes,
                     Here at = Here::now()) {
  record::bulk_store(t.k, {to.base(), to.offset()}, {from.base(), int(from.offset())}, bytes,
                     record::StoreOp::add, T::mod, L2Hint::none, at);
  return PendingBulk::commit(t, at);
}
template <class U>
void bulk_prefetch(Thread& t, const Ptr<global, U>& from, const Val<u32>& bytes, Here at = Here::now()) {
  record::bulk_prefetch(t.k, {from.base(), from.offset()}, bytes, at);
}
/// One thread stores a tile that a fence and a barrier have made visible to it (epilogue.h does all three).
template <class TileT, int... Box, int PanelRows>
PendingBulk tma_store(Thread& t, const TmaAt<TmaOut<TileT, Box...>>& to,
                      const SmemTile<TileT, PanelRows>& from, record::StoreOp op = record::StoreOp::store,
                      Here at = Here::now()) {
  record::tma_store(t.k, to.place, {from.base(), from.offset()}, SmemTile<TileT, PanelRows>::layout, op, at);
  return PendingBulk::commit(t, at);
}

/// Orders this thread's earlier shared-memory writes before later asynchronous reads (TMA stores, wgmma).
inline void fence_async_shared(Kernel& k, Here at = Here::now()) {
  record::fence_proxy_async(k, ptx::Mod::shared_cta, at);
}
inline void fence_async_global(Kernel& k, Here at = Here::now()) {
  record::fence_proxy_async(k, ptx::Mod::global, at);
}

template <class TileT, int... Box>
struct Param<TmaIn<TileT, Box...>> {
  static TmaIn<TileT, Box...> make(Kernel& k) { return TmaIn<TileT, Box...>::declare(k); }
};
template <class TileT, int... Box>
struct Param<TmaOut<TileT, Box...>> {
  static TmaOut<TileT, Box...> make(Kernel& k) { return TmaOut<TileT, Box...>::declare(k); }
};

}  // namespace cgp::dsl
