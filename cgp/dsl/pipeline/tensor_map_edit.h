// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tensor maps changed on the device (sm_90a), for grouped and ragged problems whose addresses or extents are
// known only there. Edit (in shared memory), publish (to global memory), acquire, use:
//   TensorMapEdit edit(w, a);                       copies the parameter's 128 bytes into shared memory
//   edit.address(pointer).extent(0, rows);
//   auto map = std::move(edit).publish(w, scratch); 128 bytes of global memory, 128-byte aligned
//   auto mine = map.acquire(a);                     a TmaIn like `a`, through the new map
// PTX ISA, "tensormap.replace" and "tensormap.cp_fenceproxy".
#include "cgp/dsl/pipeline/tma.h"

namespace cgp::dsl {

namespace record {
int tensor_map_copy(Kernel& k, const Value& map, Here at);
void tensor_map_replace(Kernel& k, int smem, ptx::Mod field, int ordinal, const Value& v, Here at);
void tensor_map_publish(Kernel& k, int smem, const record_impl::Address& to, Here at);
Value tensor_map_acquire(Kernel& k, const record_impl::Address& map, Here at);
}  // namespace record

/// A tensor map in global memory that was written by this grid.
template <class T>
class PublishedMap {
 public:
  explicit PublishedMap(const Ptr<global, T>& at) : at_(at) {}
  /// Every thread that will use the map acquires it; the result stands for `like` with the new map.
  template <class TileT, int... Box>
  TmaIn<TileT, Box...> acquire(const TmaIn<TileT, Box...>& like, Here at = Here::now()) const {
    return like.through(record::tensor_map_acquire(*at_.kernel(), {at_.base(), at_.offset()}, at));
  }
  template <class TileT, int... Box>
  TmaOut<TileT, Box...> acquire(const TmaOut<TileT, Box...>& like, Here at = Here::now()) const {
    return like.through(record::tensor_map_acquire(*at_.kernel(), {at_.base(), at_.offset()}, at));
  }

 private:
  Ptr<global, T> at_;
};

class TensorMapEdit {
 public:
  template <class MapT>
  TensorMapEdit(Warp& w, const MapT& original, Here at = Here::now()) : k_(w.k), rank_(MapT::rank) {
    w.converged("editing a tensor map", at);
    smem_ = record::tensor_map_copy(k_, original.map().address, at);
    w.sync(at);
  }
  TensorMapEdit(TensorMapEdit&&) = default;
  /// The tensor's first byte, a multiple of 16.
  template <class T>
  TensorMapEdit& address(const Ptr<global, T>& p, Here at = Here::now()) {
    const Val<u64> a = p.address(at);
    const Value generic = k_.op(ptx::Op::cvta, {ptx::Mod::global, ptx::Mod::u64}, ptx::Mod::u64, {a});
    record::tensor_map_replace(k_, smem_, ptx::Mod::global_address, -1, generic, at);
    return *this;
  }
  /// Elements along dimension d, outermost first as everywhere here.
  TensorMapEdit& extent(int d, const Val<u32>& n, Here at = Here::now()) {
    record::tensor_map_replace(k_, smem_, ptx::Mod::global_dim, innermost_first(d, rank_, at), n, at);
    return *this;
  }
  /// Bytes from one index of dimension d to the next; the innermost dimension is always dense.
  TensorMapEdit& stride(int d, const Val<u64>& bytes, Here at = Here::now()) {
    record::tensor_map_replace(k_, smem_, ptx::Mod::global_stride, innermost_first(d, rank_ - 1, at), bytes,
                               at);
    return *this;
  }
  template <class T>
  [[nodiscard]] PublishedMap<T> publish(Warp& w, const Ptr<global, T>& to, Here at = Here::now()) && {
    w.sync(at);
    record::tensor_map_publish(k_, smem_, {to.base(), to.offset()}, at);
    return PublishedMap<T>(to);
  }

 private:
  int innermost_first(int d, int count, Here at) const {
    if (d < 0 || d >= count)
      throw BuildError("a dimension of the tensor map, outermost first", at, text::cat(d, " of ", count));
    return count - 1 - d;
  }
  Kernel& k_;
  int rank_, smem_ = 0;
};

}  // namespace cgp::dsl
