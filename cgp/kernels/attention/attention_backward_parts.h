// SPDX-License-Identifier: Apache-2.0
#pragma once
// Partial sums of d_q on their way from a warpgroup to the warp that adds them to fp32 sums in global memory, so
// that no warpgroup waits for memory: blocks of 64 x 64 in shared memory, each with a note that says where it
// belongs.
//   PartialSumQueue queue(k, warpgroups, depth)
//   queue.send(wg, {block, number}, quad)       quad(j): accumulator registers 4 j to 4 j + 3
//   queue.end(wg)                               nothing comes after it
//   queue.add(t, member, sums, arrived, order)  one thread adds until the end
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/pipeline/handoff.h"
#include "cgp/dsl/pipeline/held_stage.h"
#include "cgp/dsl/pipeline/tma.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/attention/attention_backward.h"
#include "cgp/kernels/attention/attention_quad.h"

namespace cgp::kernels::attention_parts {

using namespace dsl;

class PartialSumQueue {
 public:
  static constexpr int kFloats = 64 * 64;
  struct Note {
    Val<u32> block;   ///< of kFloats sums in global memory
    Val<u32> number;  ///< of this part among those of the block, in the order of keys
  };
  PartialSumQueue(Kernel& k, int warpgroups, int depth)
      : k_(k), depth_(depth), slots_(k, warpgroups, depth, 4 * kFloats, 2) {
    k.require(depth == 1 || depth == 2, "a warpgroup has one or two partial sums under way");
  }

  template <class Quad>
  void send(Warpgroup& wg, const Note& note, Quad&& quad) {
    const auto slot = slots_.open(wg);
    const auto thread = k_.tid() & 127u;
    const auto to = slots_.data(slot, thread * 16u);
    for (int j = 0; j < kFloats / 4 / 128; ++j) to.st<4>(128 * j, quad(j));
    finish(wg, slot, thread, note);
  }
  void end(Warpgroup& wg) { finish(wg, slots_.open(wg), k_.tid() & 127u, {Val<u32>(kEnd), Val<u32>(0)}); }

  /// `arrived[block]` counts the parts that have been added, unless the order is any.
  void add(Thread& t, const Val<u32>& member, const Out<f32>& sums, const Out<u32>& arrived, AddOrder order) {
    using State = std::tuple<Val<u32>, Val<u32>, Val<u32>, Val<u32>>;  // note, block and slot before
    BulkStores stores(t);
    const auto receive = [&](const Val<u32>& before, const Val<u32>& slot_before) {
      const auto slot = slots_.receive(t, member);
      const auto note = slots_.note(slot).ld<2>(0);
      return State(note[0], note[1], before, slot_before);
    };
    (void)k_.while_(
        receive(Val<u32>(kEnd), Val<u32>(0)), [](const State& s) { return std::get<0>(s) != kEnd; },
        [&](State s) {
          const auto [block, number, before, slot_before] = s;
          const auto slot = slots_.current(t, member);
          if (order != AddOrder::any) {
            add_after_others(stores, sums, arrived, order, {block, number}, slot);
            slots_.free(t, slot);
          } else {
            add(stores, sums, block, slot);
            // With two slots the next part is on its way before this one has been read.
            stores.wait_read(depth_ - 1);
            if (depth_ == 1)
              slots_.free(t, slot);
            else
              k_.if_(before != kEnd, [&] { slots_.free(t, {slot_before}); });
          }
          slots_.next(t);
          return receive(block, slot.index);
        });
    stores.wait();
  }

 private:
  static constexpr std::uint32_t kEnd = 0xffffffffu;

  void finish(Warpgroup& wg, const Handoff::Slot& slot, const Val<u32>& thread, const Note& n) {
    k_.if_(thread == 0u, [&] { slots_.note(slot).st<2>(0, RegGroup<u32, 2>(n.block, n.number)); });
    slots_.send(wg, slot);
  }
  static Out<f32> of_block(const Out<f32>& sums, const Val<u32>& block) {
    return sums.at(to<u64>(block) * std::uint64_t(kFloats));
  }
  void add(BulkStores& stores, const Out<f32>& sums, const Val<u32>& block, const Handoff::Slot& slot) {
    const auto to = of_block(sums, block);
    stores.add(to, slots_.data(slot), Val<u32>(4 * kFloats));
  }
  // The first stores; each of the others waits for the one before it, or only for the first.
  void add_after_others(BulkStores& stores, const Out<f32>& sums, const Out<u32>& arrived, AddOrder order,
                        const Note& note, const Handoff::Slot& slot) {
    const bool ordered = order == AddOrder::ordered;
    const auto count = arrived.at(note.block);
    const auto hand_on = [&] {
      stores.wait();
      fence_async_global(k_);
      fence<acq_rel, gpu>(k_);
      red<relaxed, gpu, op::add>(count, 0, 1u);
    };
    const auto first = note.number == 0u;
    k_.if_(first, [&] {
      const auto to = of_block(sums, note.block);
      stores.store(to, slots_.data(slot), Val<u32>(4 * kFloats));
      hand_on();
    });
    k_.if_(!first, [&] {
      (void)k_.while_(
          Val<u32>(0),
          [&](const Val<u32>&) {
            const auto now = count.template ld<acquire, gpu>(0);
            return ordered ? now != note.number : now == 0u;
          },
          [](const Val<u32>& x) { return x; });
      fence_async_global(k_);
      add(stores, sums, note.block, slot);
      if (ordered)
        hand_on();
      else
        stores.wait_read();
    });
  }

  Kernel& k_;
  int depth_;
  Handoff slots_;
};

/// Of row `h` (0 or 1) of a thread's two in a 64 x N accumulator: `outside` where the column, counted from
/// the thread's first, lies before `from` or behind `to`. Null: no such bound.
inline void keep_columns(Kernel& k, const std::vector<Val<f32>>& x, int h, const Val<s32>* from,
                         const Val<s32>* to, float outside = 0) {
  for (std::size_t e = 0; e < x.size(); ++e) {
    if (int(e >> 1 & 1) != h) continue;
    const auto column = std::int32_t(8 * (e >> 2) + (e & 1));
    const auto inside = !to ? *from <= column : !from ? *to >= column : (*from <= column) & (*to >= column);
    k.mov_op(x[e], ptx::Op::selp, {ptx::Mod::f32}, {x[e], Val<f32>(outside), inside});
  }
}

/// The same of packed pairs of 16 bits; 0 outside.
inline void keep_packed_columns(Kernel& k, const std::vector<Val<b32>>& x, int h, const Val<s32>& from,
                                const Val<s32>* to) {
  const auto half = [&](std::int32_t column, std::uint32_t bits) {
    const auto inside = to ? (from <= column) & (*to >= column) : from <= column;
    return select(inside, Val<b32>(bits), Val<b32>(0));
  };
  for (std::size_t w = std::size_t(h); w < x.size(); w += 2) {
    const auto column = std::int32_t(8 * (w >> 1));
    k.mov_op(x[w], ptx::Op::and_, {ptx::Mod::b32},
             {x[w], half(column, 0xffffu) | half(column + 1, 0xffff0000u)});
  }
}

/// A warpgroup's sums, scaled and rounded: rows `row` and row + 8 (of this thread) of the `rows` that begin
/// at `head`.
template <class T, int N>
void store_sums(Warpgroup& wg, const Out<T>& head, const Val<u32>& row, const Val<u32>& rows,
                const Val<u64>& pitch, const Val<u32>& cols, const Val<f32>& scale,
                const Acc<f32, 64, N>& sum) {
  Warp w = wg.warp();
  for (int h = 0; h < 2; ++h) {
    const auto at = row + std::uint32_t(8 * h);
    store_row(w, head.at(to<u64>(at) * pitch).template as<b32>(), at < rows, cols, N / 8,
              [&](int b) { return pack<T>(sum[4 * b + 2 * h] * scale, sum[4 * b + 2 * h + 1] * scale); });
  }
}

}  // namespace cgp::kernels::attention_parts
