// SPDX-License-Identifier: Apache-2.0
#pragma once
// Parts of d_q on their way from a warpgroup to the warp that adds them to the sums in global memory, so that
// no warpgroup waits for memory: tiles in shared memory, each with a note that says where it goes.
//   PartMail mail(k, members, buffers)
//   mail.send(wg, {place, turn}, word)   word(j): registers 4 j .. 4 j + 3; by a whole warpgroup
//   mail.end(wg)                         nothing comes after it
//   mail.add(t, member, sums, turns, order)   one thread adds until the end; turns[place]: how many have
// HeldStage is what goes round a loop of a stage in shared memory.
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/pipeline/ring.h"
#include "cgp/dsl/pipeline/tma.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/kernels/attention/attention_quad.h"

namespace cgp::kernels::attention_parts {

using namespace dsl;

/// A stage of a ring that the next turn still reads.
struct HeldStage {
  Val<u32> base;
  record::StageToken token;
};

}  // namespace cgp::kernels::attention_parts

namespace cgp::dsl {
template <>
struct Carry<kernels::attention_parts::HeldStage> {
  using S = kernels::attention_parts::HeldStage;
  static S home(Kernel& k, S s) {
    auto base = Carry<Val<u32>>::home(k, s.base);
    return {base, std::move(s.token).home(k)};
  }
  static S settle(Kernel& k, S& home, S next) {
    auto base = Carry<Val<u32>>::settle(k, home.base, next.base);
    return {base, home.token.settle(k, next.token)};
  }
  static S view(S& home) { return {home.base, home.token.view()}; }
};
}  // namespace cgp::dsl

namespace cgp::kernels::attention_parts {

/// Who adds when: nobody waits; the first replaces what is there, and the others wait for it; so, in turns.
enum class PartOrder : std::uint8_t { any, first, turns };

class PartMail {
 public:
  static constexpr int kFloats = 64 * 64;
  struct Note {
    Val<u32> place, turn;
  };
  PartMail(Kernel& k, int members, int buffers)
      : k_(k),
        buffers_(buffers),
        data_(k.smem(members * buffers * 4 * kFloats, 128)),
        notes_(k.smem(members * buffers * kNote, 16)),
        bars_(k.smem(members * buffers * kPair, 16)),
        send_(k, buffers, 1),
        take_(k, buffers, 0) {
    k.require(buffers == 1 || buffers == 2, "parts have one buffer or two");
    k.if_(k.tid() == 0u, [&] {
      for (int i = 0; i < members * buffers; ++i) {
        record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * i}, Val<u32>(4), Here::now());
        record::mbarrier_init(k, {k.smem_addr(0), bars_ + kPair * i + 8}, Val<u32>(1), Here::now());
      }
      record::fence_mbarrier_init(k, Here::now());
    });
    record::sync_cluster_or_block(k, Here::now());
  }
  PartMail(const PartMail&) = delete;

  template <class Word>
  void send(Warpgroup& wg, const Note& note, Word&& word) {
    const auto slot = begin(wg);
    const auto thread = k_.tid() & 127u;
    const Ptr<shared, f32> to(data(slot) + thread * 16u);
    for (int j = 0; j < kFloats / 4 / 128; ++j) to.st<4>(128 * j, word(j));
    finish(slot, thread, note);
  }
  void end(Warpgroup& wg) { finish(begin(wg), k_.tid() & 127u, {Val<u32>(kEnd), Val<u32>(0)}); }

  void add(Thread&, const Val<u32>& member, const Out<f32>& sums, const Out<u32>& turns, PartOrder order) {
    using State = std::tuple<Val<u32>, Val<u32>, Val<u32>, Val<u32>>;  // note, and place and slot before
    const auto receive = [&](const Val<u32>& before, const Val<u32>& slot_before) {
      const auto slot = slot_of(take_, member);
      record::mbarrier_wait(k_, {bars_at(slot), 0}, take_.parity(), false, Here::now());
      const auto note = this->note(slot).ld<2>(0);
      return State(note[0], note[1], before, slot_before);
    };
    (void)k_.while_(
        receive(Val<u32>(kEnd), Val<u32>(0)), [](const State& s) { return std::get<0>(s) != kEnd; },
        [&](State s) {
          const auto [place, turn, before, slot_before] = s;
          const auto slot = slot_of(take_, member);
          if (order != PartOrder::any) {
            add_after_others(sums, turns, order, place, turn, slot);
            free(slot);
          } else {
            copy(sums, place, slot, record::StoreOp::add);
            // With two buffers the next is on its way before this one has been read.
            record::bulk_wait(k_, buffers_ - 1, true, Here::now());
            if (buffers_ == 1)
              free(slot);
            else
              k_.if_(before != kEnd, [&] { free(slot_before); });
          }
          take_.advance(Here::now());
          return receive(place, slot);
        });
    record::bulk_wait(k_, 0, false, Here::now());
  }

 private:
  static constexpr int kPair = 16, kNote = 16;  // barriers: full at +0, empty at +8
  static constexpr std::uint32_t kEnd = 0xffffffffu;

  Val<u32> slot_of(const record::PhaseCursor& c, const Val<u32>& member) const {
    return member * std::uint32_t(buffers_) + c.stage();
  }
  Val<u32> bars_at(const Val<u32>& slot) const { return k_.smem_addr(bars_) + slot * std::uint32_t(kPair); }
  Val<u32> data(const Val<u32>& slot) const {
    return k_.smem_addr(data_) + slot * std::uint32_t(4 * kFloats);
  }
  Ptr<shared, u32> note(const Val<u32>& slot) const {
    return Ptr<shared, u32>(k_.smem_addr(notes_) + slot * std::uint32_t(kNote));
  }
  Val<u32> begin(Warpgroup& wg) {
    wg.converged("sending a part", Here::now());
    const auto slot = slot_of(send_, wg.index);
    record::mbarrier_wait(k_, {bars_at(slot), 8}, send_.parity(), false, Here::now());
    return slot;
  }
  void finish(const Val<u32>& slot, const Val<u32>& thread, const Note& n) {
    k_.if_(thread == 0u, [&] { note(slot).st<2>(0, RegGroup<u32, 2>(n.place, n.turn)); });
    fence_async_shared(k_);
    k_.inst(ptx::Op::bar_warp_sync, {}, {ptx::Operand::integer(-1)});
    k_.guarded(k_.laneid() == 0u, [&] { record::mbarrier_arrive(k_, {bars_at(slot), 0}, Here::now()); });
    send_.advance(Here::now());
  }
  void copy(const Out<f32>& sums, const Val<u32>& place, const Val<u32>& slot, record::StoreOp op) {
    const auto into = sums.at(to<u64>(place) * std::uint64_t(kFloats));
    record::bulk_store(k_, {into.base(), into.offset()}, {data(slot), 0}, Val<u32>(4 * kFloats), op,
                       ptx::Mod::f32, L2Hint::none, Here::now());
    record::bulk_commit(k_, Here::now());
  }
  // The first replaces what is there; each of the others waits for its turn, or only for the first.
  void add_after_others(const Out<f32>& sums, const Out<u32>& turns, PartOrder order, const Val<u32>& place,
                        const Val<u32>& turn, const Val<u32>& slot) {
    const bool strict = order == PartOrder::turns;
    const auto at = turns.at(place);
    const auto hand_on = [&] {
      record::bulk_wait(k_, 0, false, Here::now());
      fence_async_global(k_);
      fence<acq_rel, gpu>(k_);
      red<relaxed, gpu, op::add>(at, 0, 1u);
    };
    const auto first = turn == 0u;
    k_.if_(first, [&] {
      copy(sums, place, slot, record::StoreOp::store);
      hand_on();
    });
    k_.if_(!first, [&] {
      (void)k_.while_(
          Val<u32>(0),
          [&](const Val<u32>&) {
            const auto now = at.template ld<acquire, gpu>(0);
            return strict ? now != turn : now == 0u;
          },
          [](const Val<u32>& x) { return x; });
      fence_async_global(k_);
      copy(sums, place, slot, record::StoreOp::add);
      if (strict)
        hand_on();
      else
        record::bulk_wait(k_, 0, true, Here::now());
    });
  }
  void free(const Val<u32>& slot) { record::mbarrier_arrive(k_, {bars_at(slot), 8}, Here::now()); }

  Kernel& k_;
  int buffers_, data_, notes_, bars_;
  record::PhaseCursor send_, take_;
};

/// Of row `h` (0 or 1) of a thread's two in a 64 x N accumulator: `outside` where the column, counted from
/// the thread's first, lies before `from` or behind `to`. Null: no such bound.
inline void keep_columns(Kernel& k, const std::vector<Value>& x, int h, const Val<s32>* from,
                         const Val<s32>* to, float outside = 0) {
  for (std::size_t e = 0; e < x.size(); ++e) {
    if (int(e >> 1 & 1) != h) continue;
    const auto column = std::int32_t(8 * (e >> 2) + (e & 1));
    const auto inside = !to ? *from <= column : !from ? *to >= column : (*from <= column) & (*to >= column);
    k.mov_op(x[e], ptx::Op::selp, {ptx::Mod::f32}, {x[e], Val<f32>(outside), inside});
  }
}

/// The same of packed pairs of 16 bits; 0 outside.
inline void keep_packed_columns(Kernel& k, const std::vector<Value>& x, int h, const Val<s32>& from,
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
