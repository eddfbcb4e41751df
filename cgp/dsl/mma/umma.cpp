// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/umma.h"

#include <map>

namespace cgp::dsl::record {
using ptx::Mod;
using ptx::Op;
using ptx::Operand;

namespace {
Mod group_mod(bool pair) { return pair ? Mod::cta_group_2 : Mod::cta_group_1; }
Mod kind_mod(UmmaKind k) {
  constexpr Mod mods[] = {Mod::kind_f16,      Mod::kind_tf32, Mod::kind_f8f6f4,  Mod::kind_i8,
                          Mod::kind_mxf8f6f4, Mod::kind_mxf4, Mod::kind_mxf4nvf4};
  return mods[int(k)];
}

/// The descriptors of one operand in shared memory: address and constant part are combined once.
class SharedOperand {
 public:
  SharedOperand(Kernel& k, const UmmaOperand& o) : k_(k), tile_(o.tile), major_(o.major) {
    const Swizzle s = tile_.swizzle == Swizzle::none ? Swizzle::b16 : tile_.swizzle;
    layout_ = operand_layout(major_, s, std::uint32_t(tile_.panel_rows));
    // K-major instructions take 32 bytes of each row, MN-major ones as many rows of K as that is elements.
    if (major_ == Major::mn) layout_.k_step = std::uint32_t(32 / tile_.element_bytes * span_bytes(s));
    offset_ = o.shared->offset;
    const Value start = k.op(Op::bfe, {Mod::u32}, Mod::u32,
                             {o.shared->base, Value::literal(4, Mod::u32), Value::literal(14, Mod::u32)});
    const Value wide = k.op(Op::cvt, {Mod::u64, Mod::u32}, Mod::u64, {start});
    base_.emplace(k.op(Op::or_, {Mod::b64}, Mod::u64,
                       {wide, Value::literal(umma_smem_descriptor(layout_.fixed), Mod::u64)}));
  }
  Value at(int step) {
    int bytes = offset_;
    if (layout_.k_steps_per_panel == 0) {
      bytes += step * int(layout_.k_step);
    } else {
      const int per = int(layout_.k_steps_per_panel);
      bytes += step % per * int(layout_.k_step) + step / per * int(layout_.panel);
    }
    if (bytes == 0) return *base_;
    // The address field cannot carry into the next one: shared memory ends below 2^18 bytes.
    return k_.op(Op::add, {Mod::u64}, Mod::u64,
                 {*base_, Value::literal(std::uint64_t(bytes) >> 4, Mod::u64)});
  }

 private:
  Kernel& k_;
  TileLayout tile_;
  Major major_;
  OperandLayout layout_;
  int offset_ = 0;
  std::optional<Value> base_;
};

/// The words of a block-scaled kind: 'a' targets name the number of scales, families the block length.
void push_scale_words(ptx::Mods& m, const Kernel& k, UmmaKind kind, const UmmaScales& s) {
  m.push_back(Mod::block_scale);
  if (k.target().back() == 'a') {
    m.push_back(s.per_step == 1   ? Mod::scale_vec_1X
                : s.per_step == 2 ? Mod::scale_vec_2X
                                  : Mod::scale_vec_4X);
  } else if (kind == UmmaKind::mxf4nvf4) {
    m.push_back(s.per_step == 4 ? Mod::block16 : Mod::block32);
  }
}
Operand tmem_operand(Kernel& k, const Value& base, int column) {
  if (column == 0) return Operand::at(k.register_of(base));
  return Operand::at(k.register_of(Val<u32>(base) + Val<u32>(column)));
}
}  // namespace

void umma_group(Kernel& k, const UmmaGroup& g, const Value& d, const UmmaOperand& a, const UmmaOperand& b,
                const Value& accumulate, const UmmaScales* scales, Here at) {
  k.at(at);
  tmem_needs(k, at);
  if (g.kind == UmmaKind::i8 && k.target().back() != 'a')
    throw BuildError("integer umma exists on sm_100a alone", at,
                     text::cat("the kernel is built for ", k.target()));
  std::optional<SharedOperand> da;
  if (a.shared) da.emplace(k, a);
  SharedOperand db(k, b);
  ptx::Mods mods{group_mod(g.pair), kind_mod(g.kind)};
  if (scales) push_scale_words(mods, k, g.kind, *scales);
  const Operand to = Operand::at(k.register_of(d)), first = k.in_register(accumulate),
                always = g.steps > 1 ? k.in_register(Value::literal(1, Mod::pred)) : first;
  std::map<std::uint32_t, Operand> descriptors;
  for (int step = 0; step < g.steps; ++step) {
    InstructionDescriptor i = g.descriptor;
    const int scale = scales ? step * scales->per_step : 0;
    i.scale_a_id = i.scale_b_id = scale % 4;
    const auto bits = i.encode();
    const auto made = descriptors.try_emplace(
        bits, descriptors.count(bits) ? Operand{} : k.in_register(Value::literal(bits, Mod::u32)));
    std::vector<Operand> o{to};
    // A in tensor memory: one instruction takes 8 columns.
    o.push_back(da ? k.in_register(da->at(step)) : tmem_operand(k, *a.tmem, step * 8));
    o.push_back(k.in_register(db.at(step)));
    o.push_back(made.first->second);
    if (scales) {
      o.push_back(tmem_operand(k, scales->a, scale / 4 * scales->a_block_columns));
      o.push_back(tmem_operand(k, scales->b, scale / 4 * scales->b_block_columns));
    }
    o.push_back(step == 0 ? first : always);
    k.inst(Op::tcgen05_mma, mods, std::move(o));
  }
}

// ---------------------------------------------------------------- SlotsCore
namespace {
constexpr int kBarrierPair = 16;  // full at +0, empty at +8
}

SlotsCore::SlotsCore(Kernel& k, const Val<u32>& address, int slots, int columns, int drain_warps, bool pair,
                     Here at)
    : k_(k),
      slots_(slots),
      columns_(columns),
      bars_(k.smem(kBarrierPair * slots, 16, at)),
      pair_(pair),
      address_(address) {
  k.at(at);
  write_.emplace(k, slots, 1);
  read_.emplace(k, slots, 0);
  const Val<u32> mine = k.smem_addr(bars_ + 8, at);
  if (pair) {
    const Val<u32> leader = k.cluster_ctarank() & Val<u32>(0xfffffffeu);
    empty_base_.emplace(k.op(Op::mapa, {Mod::shared_cluster, Mod::u32}, Mod::u32, {mine, leader}));
    const Value mask = k.op(Op::shl, {Mod::b32}, Mod::u32, {Value::literal(3, Mod::u32), leader});
    commit_mask_.emplace(k.op(Op::cvt, {Mod::u16, Mod::u32}, Mod::u16, {mask}));
  } else {
    empty_base_.emplace(mine);
  }
  k.if_(
      k.tid() == 0,
      [&] {
        for (int s = 0; s < slots; ++s) {
          mbarrier_init(k, {k.smem_addr(0), bars_ + kBarrierPair * s}, Val<u32>(1), at);
          mbarrier_init(k, {k.smem_addr(0), bars_ + kBarrierPair * s + 8},
                        Val<u32>(drain_warps * (pair ? 2 : 1)), at);
        }
        fence_mbarrier_init(k, at);
      },
      at);
  sync_cluster_or_block(k, at);
}

SlotsCore::Slot SlotsCore::acquire(Here at) {
  k_.at(at);
  const Val<u32> slot = write_->stage(), full = k_.smem_addr(bars_) + times(slot, kBarrierPair);
  mbarrier_wait(k_, {full, 8}, write_->parity(), pair_, at);
  umma_fence_after(k_, at);
  // An address of the slot's own register: the cursor moves on.
  const Val<u32> where = slots_ == 1 ? Val<u32>(k_.copy(address_)) : address_ + times(slot, columns_);
  write_->advance(at);
  return {where, full};
}

SlotsCore::Slot SlotsCore::take(Here at) {
  k_.at(at);
  const Val<u32> slot = read_->stage(), full = k_.smem_addr(bars_) + times(slot, kBarrierPair);
  mbarrier_wait(k_, {full, 0}, read_->parity(), pair_, at);
  umma_fence_after(k_, at);
  const Val<u32> where = slots_ == 1 ? Val<u32>(k_.copy(address_)) : address_ + times(slot, columns_);
  const Val<u32> empty = Val<u32>(*empty_base_) + times(slot, kBarrierPair);
  read_->advance(at);
  return {where, empty};
}

void SlotsCore::commit(const Val<u32>& full, Here at) { umma_commit(k_, {full, 0}, commit_mask_, pair_, at); }

void SlotsCore::release(const Val<u32>& empty, Here at) {
  umma_fence_before(k_, at);
  k_.inst(Op::bar_warp_sync, {}, {Operand::integer(-1)});
  k_.guarded(k_.laneid() == Val<u32>(0), [&] {
    if (pair_)
      mbarrier_arrive_cluster(k_, {empty, 0}, at);
    else
      mbarrier_arrive(k_, {empty, 0}, at);
  });
}

}  // namespace cgp::dsl::record
