// SPDX-License-Identifier: Apache-2.0
// ld and st of all widths and spaces, and the cache instructions that change nothing but are checked.
#include <atomic>

#include "cgp/base/text.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/core/local_memory.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/core/memory_elements.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
template <class M, class C>
void gather(std::byte* const* from, int offset, C* to, Mask m, bool strong) {
  using Raw = std::make_unsigned_t<M>;
  for_lanes(m, [&](int l) {
    if (strong)
      to[l] = C(
          M(std::atomic_ref<Raw>(*reinterpret_cast<Raw*>(from[l] + offset)).load(std::memory_order_acquire)));
    else
      to[l] = C(load_plain<M>(from[l] + offset));
  });
}
template <class M, class C>
void scatter(std::byte* const* to, int offset, const C* from, Mask m, bool strong) {
  for_lanes(m, [&](int l) {
    const M v = M(from[l]);
    if (strong)
      std::atomic_ref<M>(*reinterpret_cast<M*>(to[l] + offset)).store(v, std::memory_order_release);
    else
      store_plain(to[l] + offset, v);
  });
}

template <class C>
void load_element(const Elements& e, std::byte* const* from, int offset, C* to, Mask m, bool strong) {
  switch (e.bytes) {
    case 1:
      return e.sign ? gather<std::int8_t, C>(from, offset, to, m, strong)
                    : gather<std::uint8_t, C>(from, offset, to, m, strong);
    case 2:
      return e.sign ? gather<std::int16_t, C>(from, offset, to, m, strong)
                    : gather<std::uint16_t, C>(from, offset, to, m, strong);
    case 4:
      return e.sign ? gather<std::int32_t, C>(from, offset, to, m, strong)
                    : gather<std::uint32_t, C>(from, offset, to, m, strong);
    default:
      return gather<std::uint64_t, C>(from, offset, to, m, strong);
  }
}
template <class C>
void store_element(const Elements& e, std::byte* const* to, int offset, const C* from, Mask m, bool strong) {
  switch (e.bytes) {
    case 1:
      return scatter<std::uint8_t, C>(to, offset, from, m, strong);
    case 2:
      return scatter<std::uint16_t, C>(to, offset, from, m, strong);
    case 4:
      return scatter<std::uint32_t, C>(to, offset, from, m, strong);
    default:
      return scatter<std::uint64_t, C>(to, offset, from, m, strong);
  }
}

// Which counter an access belongs to, decided by where the first lane's address points.
Where counted_space(const Warp& w, const Op& op, const std::uint64_t* addr) {
  if (op.where != Where::generic) return op.where;
  return classify(w, addr[std::countr_zero(w.active)]);
}

void count(Warp& w, const Op& op, bool store, std::uint32_t bytes, const std::uint64_t* addr, Mask lanes) {
  if (!w.worker->launch->options.counters || !lanes) return;
  switch (counted_space(w, op, addr)) {
    case Where::shared:
    case Where::shared_cluster: {
      std::uint32_t offset[kLanes];
      for (int l = 0; l < kLanes; ++l) offset[l] = std::uint32_t(addr[l]) & ((1u << kRankShift) - 1);
      return count_shared(w, op, store ? SharedKind::store : SharedKind::load, bytes, offset, lanes);
    }
    case Where::global:
      return count_global(w, op, store ? GlobalKind::store : GlobalKind::load, bytes, addr, lanes);
    case Where::local: {
      Counters& t = w.worker->totals;
      ++(store ? t.local_store_requests : t.local_load_requests);
      ++w.worker->pc[op.inst].requests;
      return;
    }
    default:
      return;  // const and param
  }
}

// Rows of consecutive 4- or 8-byte elements move as one block.
bool contiguous(std::byte* const* at, std::uint32_t bytes, Mask lanes) {
  if (lanes != ~Mask(0) || at[kLanes - 1] != at[0] + (kLanes - 1) * bytes) return false;
  std::uint64_t wrong = 0;
  for (int l = 0; l < kLanes; ++l) wrong |= std::uint64_t(at[l] - at[0]) ^ (std::uint64_t(l) * bytes);
  return wrong == 0;
}

void note_unwritten(Warp& w, const Op& op, const Elements& e, const std::uint64_t* addr) {
  const Mask lanes = w.unwritten;
  w.unwritten = 0;
  for (int i = 0; i < e.count; ++i) {
    Mask m = 0;
    for_lanes(lanes, [&](int l) {
      if (!is_written_for(w, l, op.where, addr[l] + std::uint64_t(i * e.bytes), std::uint64_t(e.bytes)))
        m |= lane_bit(l);
    });
    if (!m) continue;
    const std::uint64_t first = addr[std::countr_zero(m)] + std::uint64_t(i * e.bytes);
    taint_loaded(w, op, e.at[std::size_t(i)], m, stored_origin(w, op.where, first));
  }
}

}  // namespace

void exec_load(Warp& w, const Op& op) {
  const Elements& e = op.data_as<Elements>();
  const std::uint32_t total = std::uint32_t(e.count * e.bytes);
  alignas(64) std::uint64_t addr[kLanes];
  std::byte* at[kLanes];
  w.addresses(op, addr);
  const Mask ok = resolve(w, op, op.where, addr, total, Access::read, w.active, at);
  count(w, op, false, total, addr, ok);
  const race::Section section(w, op);
  race::access(w, op, op.where, addr, total, race::Use::read, ok);
  const bool strong = op.flags & kVolatile;
  if (strong) ++w.worker->polls, note_acquire(w);
  if (w.suspect && ok) note_poll(w, op, addr[std::countr_zero(ok)]);
  if (e.cell == 32 && e.count == 1 && e.bytes == 4 && !strong && contiguous(at, 4, ok)) {
    copy_from_device(w.row<std::uint32_t>(e.at[0]), at[0], kRow32);
  } else {
    for (int i = 0; i < e.count; ++i) {
      const Loc d = e.at[std::size_t(i)];
      const int offset = i * e.bytes;
      if (e.cell == 32) {
        load_element(e, at, offset, w.row<std::uint32_t>(d), ok, strong);
      } else if (e.cell == 64) {
        load_element(e, at, offset, w.row<std::uint64_t>(d), ok, strong);
      } else {
        gather<std::uint64_t>(at, offset, w.row<std::uint64_t>(d), ok, strong);
        gather<std::uint64_t>(at, offset + 8, w.row<std::uint64_t>(d) + kLanes, ok, strong);
      }
    }
  }
  if (w.unwritten) note_unwritten(w, op, e, addr);
}

namespace {
// Lanes that store a register with never-written data: into shared memory the bytes stay never written; into
// global memory it is the use that gets reported.
void store_taint(Warp& w, const Op& op, const Elements& e, const std::uint64_t* addr, Mask ok) {
  for (int i = 0; i < e.count; ++i) {
    const Mask m = taint_of(w, e.at[std::size_t(i)]) & ok;
    if (!m) continue;
    const Where where = counted_space(w, op, addr);
    if (where == Where::shared || where == Where::shared_cluster)
      for_lanes(m, [&](int l) {
        store_unwritten(w, op.where, addr[l] + std::uint64_t(i * e.bytes), std::uint64_t(e.bytes),
                        taint_origin(w, e.at[std::size_t(i)]));
      });
    else if (where == Where::global)
      report_taint(w, op, e.at[std::size_t(i)], m, "is stored to global memory");
  }
}

}  // namespace

bool same_stored_value(Warp& w, const Op& op, int lane, int other, const std::byte* at) {
  const Elements& e = op.data_as<Elements>();
  const auto cell = std::size_t(e.cell == 32 ? 4 : 8);
  const auto part = [&](Loc l, int in, std::size_t half) {
    return reinterpret_cast<const std::byte*>(w.row<std::byte>(l)) + half * kRow64 + std::size_t(in) * cell;
  };
  for (int i = 0; i < e.count; ++i)
    for (std::size_t half = 0; half < (e.cell == 128 ? 2 : 1); ++half) {
      const Loc l = e.at[std::size_t(i)];
      const std::size_t bytes = e.cell == 128 ? 8 : std::size_t(e.bytes);
      std::uint64_t there = 0;
      if (other < 0)  // perhaps while another host thread writes it
        copy_from_device(&there, at + i * e.bytes + int(half) * 8, bytes);
      else
        std::memcpy(&there, part(l, other, half), bytes);
      if (std::memcmp(part(l, lane, half), &there, bytes) != 0) return false;
    }
  return true;
}

void exec_store(Warp& w, const Op& op) {
  const Elements& e = op.data_as<Elements>();
  const std::uint32_t total = std::uint32_t(e.count * e.bytes);
  alignas(64) std::uint64_t addr[kLanes];
  std::byte* at[kLanes];
  w.addresses(op, addr);
  const Mask ok = resolve(w, op, op.where, addr, total, Access::write, w.active, at);
  count(w, op, true, total, addr, ok);
  const race::Section section(w, op);
  race::access(w, op, op.where, addr, total, race::Use::write, ok, at, same_stored_value);
  const bool strong = op.flags & kVolatile;
  if (strong) note_release(w);
  if (w.suspect) note_changes(w, e.count, e.bytes, e.cell, e.at.data(), at, ok);
  if (e.cell == 32 && e.count == 1 && e.bytes == 4 && !strong && contiguous(at, 4, ok)) {
    copy_to_device(at[0], w.row<std::uint32_t>(e.at[0]), kRow32);
  } else {
    for (int i = 0; i < e.count; ++i) {
      const Loc s = e.at[std::size_t(i)];
      const int offset = i * e.bytes;
      if (e.cell == 32) {
        store_element(e, at, offset, w.row<std::uint32_t>(s), ok, strong);
      } else if (e.cell == 64) {
        store_element(e, at, offset, w.row<std::uint64_t>(s), ok, strong);
      } else {
        scatter<std::uint64_t>(at, offset, w.row<std::uint64_t>(s), ok, strong);
        scatter<std::uint64_t>(at, offset + 8, w.row<std::uint64_t>(s) + kLanes, ok, strong);
      }
    }
  }
  if (w.taint) store_taint(w, op, e, addr, ok);
}

// ---------------------------------------------------------------- decoding
namespace {
constexpr std::initializer_list<Mod> kMemoryModifiers = {Mod::global,
                                                         Mod::shared,
                                                         Mod::shared_cta,
                                                         Mod::shared_cluster,
                                                         Mod::local,
                                                         Mod::const_,
                                                         Mod::param,
                                                         Mod::param_entry,
                                                         Mod::param_func,
                                                         Mod::volatile_,
                                                         Mod::relaxed,
                                                         Mod::acquire,
                                                         Mod::release,
                                                         Mod::weak,
                                                         Mod::mmio,
                                                         Mod::nc,
                                                         Mod::ca,
                                                         Mod::cg,
                                                         Mod::cs,
                                                         Mod::lu,
                                                         Mod::cv,
                                                         Mod::wb,
                                                         Mod::wt,
                                                         Mod::cta,
                                                         Mod::cluster,
                                                         Mod::gpu,
                                                         Mod::sys,
                                                         Mod::v2,
                                                         Mod::v4,
                                                         Mod::v8,
                                                         Mod::unified,
                                                         Mod::L1_evict_normal,
                                                         Mod::L1_evict_unchanged,
                                                         Mod::L1_evict_first,
                                                         Mod::L1_evict_last,
                                                         Mod::L1_no_allocate,
                                                         Mod::L2_evict_normal,
                                                         Mod::L2_evict_first,
                                                         Mod::L2_evict_last,
                                                         Mod::L2_evict_unchanged,
                                                         Mod::L2_cache_hint,
                                                         Mod::L2_64B,
                                                         Mod::L2_128B,
                                                         Mod::L2_256B};

Elements describe_elements(Decoder& d, const ptx::Inst& i, const ptx::Operand& o, bool load) {
  const Mod t = i.type();
  const int bits = ptx::type_bits(t);
  Elements e;
  e.bytes = bits / 8;
  e.sign = ptx::is_signed(t);
  const bool vector = o.kind == ptx::OperandKind::vector;
  e.count = vector ? int(o.elems.size()) : 1;
  if (e.count > int(e.at.size())) d.unsupported("so many elements");
  e.cell = bits == 128 ? 128 : bits > 32 ? 64 : 32;
  // Registers may be wider than the type; all elements then have one width, that of the first register.
  for (int k = 0; k < e.count; ++k) {
    const int have = d.cell_bits(vector ? o.elems[std::size_t(k)] : o);
    if (have > e.cell && have <= 64) e.cell = have;
  }
  const Mod as = e.cell == 128  ? Mod::b128
                 : e.cell == 64 ? (bits == 64 ? t : Mod::b64)
                                : (bits < 32 ? t : Mod::b32);
  for (int k = 0; k < e.count; ++k) {
    const ptx::Operand& x = vector ? o.elems[std::size_t(k)] : o;
    e.at[std::size_t(k)] = load ? d.dest(x, as) : d.source(x, x.kind == ptx::OperandKind::reg ? as : t);
  }
  return e;
}

void common(Decoder& d, const ptx::Inst& i, Op& op, const ptx::Operand& address) {
  allow(d, i, kMemoryModifiers);
  op.where = d.where(i);
  d.set_address(address, op);
  // An address that names a variable of the frame goes to the locals, whatever .param would say.
  if (op.flags & kFrameLocal) op.where = Where::local;
  for (Mod m : {Mod::volatile_, Mod::relaxed, Mod::acquire, Mod::release, Mod::mmio})
    if (i.has(m)) op.flags |= kVolatile;
}

// Whole words of global and shared memory have handlers of their own where the machine has AVX-512.
void use_words([[maybe_unused]] const Decoder& d, [[maybe_unused]] Op& op, [[maybe_unused]] bool store) {
#if defined(__x86_64__) && !defined(CGP_EMU_PORTABLE_ONLY)
  const Elements& e = op.data_as<Elements>();
  if (!d.avx512() || e.cell != 32 || e.bytes != 4 || (op.flags & (kVolatile | kFrameLocal))) return;
  const Handler fn = isa_avx512::word_handler(op, store, e.count);
  if (!fn) return;
  op.fn = fn;
  op.kind = store ? kStoreWords : kLoadWords;
  op.d = e.at[0], op.b = e.at[1], op.c = e.at[2], op.e = e.at[3];
#endif
}

void decode_ld(Decoder& d, const ptx::Inst& i, Op& op) {
  common(d, i, op, d.operand(i, 1));
  const Elements e = describe_elements(d, i, d.operand(i, 0), true);
  op.data = d.keep(e);
  op.fn = exec_load;
  use_words(d, op, false);
}

void decode_st(Decoder& d, const ptx::Inst& i, Op& op) {
  common(d, i, op, d.operand(i, 0));
  const Elements e = describe_elements(d, i, d.operand(i, 1), false);
  op.data = d.keep(e);
  op.fn = exec_store;
  use_words(d, op, true);
}

// ---------------------------------------------------------------- cache control
void exec_touch(Warp& w, const Op& op) {
  alignas(64) std::uint64_t addr[kLanes];
  std::byte* at[kLanes];
  w.addresses(op, addr);
  resolve(w, op, op.where, addr, op.bytes, Access::address_only, w.active, at);
}
// A weak write of a value that is not even the same at every read: memory never written, and no longer what
// it was.
void exec_discard(Warp& w, const Op& op) {
  alignas(64) std::uint64_t addr[kLanes];
  std::byte* at[kLanes];
  w.addresses(op, addr);
  const Mask ok = resolve(w, op, op.where, addr, op.bytes, Access::write, w.active, at);
  race::access(w, op, op.where, addr, op.bytes, race::Use::write, ok);
  for_lanes(ok, [&](int l) {
    std::memset(at[l], 0xd5, op.bytes);
    if (Allocation* a = w.worker->heap->find(addr[l], op.bytes)) a->unmark(addr[l] - a->base, op.bytes);
  });
}
void exec_nothing(Warp&, const Op&) {}

// prefetch of an address outside every allocation is harmless on hardware: only discard and applypriority
// check.
void decode_prefetch(Decoder& d, const ptx::Inst& i, Op& op) {
  op.where = d.where(i);
  if (!i.operands.empty()) d.set_address(d.operand(i, 0), op);
  op.fn = exec_nothing;
}
void decode_line(Decoder& d, const ptx::Inst& i, Op& op) {
  op.where = d.where(i);
  d.set_address(d.operand(i, 0), op);
  op.bytes = 128;
  op.fn = i.op == POp::discard ? exec_discard : exec_touch;
}

// A cache policy is opaque; any constant will do.
void exec_policy(Warp& w, const Op& op) {
  for_lanes(w.active, [&](int l) { w.row<std::uint64_t>(op.d)[l] = 0x12f0000000000000ull; });
}
void decode_policy(Decoder& d, const ptx::Inst& i, Op& op) {
  op.d = d.dest(d.operand(i, 0), Mod::b64);
  op.fn = exec_policy;
}

// ---------------------------------------------------------------- bulk zeroing and the stack
void exec_st_bulk(Warp& w, const Op& op) {
  alignas(64) std::uint64_t addr[kLanes];
  w.addresses(op, addr);
  const auto* size = w.row<std::uint64_t>(op.b);
  for_lanes(w.active, [&](int l) {
    if (std::byte* p = resolve_one(w, op, op.where, addr[l], size[l], Access::write, l, 8)) {
      race::access(w, op, op.where, addr, std::uint32_t(size[l]), race::Use::write, lane_bit(l));
      std::memset(p, 0, size[l]);
    }
  });
}
void decode_st_bulk(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::weak, Mod::shared, Mod::shared_cta});
  op.where = d.where(i);
  d.set_address(d.operand(i, 0), op);
  op.b = d.source(d.operand(i, 1), Mod::u64);
  op.fn = exec_st_bulk;
}

void exec_alloca(Warp& w, const Op& op) {
  const std::uint64_t align = std::uint64_t(op.imm);
  for_lanes(w.active, [&](int l) {
    std::uint32_t& top = w.frame->local_top[std::size_t(l)];
    const std::uint64_t at = (top + align - 1) / align * align;
    std::uint64_t bytes = op.bytes == 8 ? w.row<std::uint64_t>(op.a)[l] : w.row<std::uint32_t>(op.a)[l];
    bytes = std::min<std::uint64_t>(bytes, 1u << 30);  // grow_local refuses with its own message
    top = std::uint32_t(at + bytes);
    grow_local(w, top);
    mark_local(w, l, at, bytes, false);
    if (op.bytes == 8)
      w.row<std::uint64_t>(op.d)[l] = at;
    else
      w.row<std::uint32_t>(op.d)[l] = std::uint32_t(at);
  });
}
void decode_alloca(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  op.bytes = ptx::type_bits(t) == 64 ? 8 : 4;
  op.a = d.source(d.operand(i, 1), t);
  op.imm = i.operands.size() > 2 ? std::int64_t(d.immediate(d.operand(i, 2))) : 8;
  op.d = d.dest(d.operand(i, 0), t);
  op.fn = exec_alloca;
}
void exec_stack(Warp& w, const Op& op) {
  for_lanes(w.active, [&](int l) {
    std::uint32_t& top = w.frame->local_top[std::size_t(l)];
    if (op.kind == 0) {
      if (op.bytes == 8)
        w.row<std::uint64_t>(op.d)[l] = top;
      else
        w.row<std::uint32_t>(op.d)[l] = top;
    } else {
      const std::uint64_t to = op.bytes == 8 ? w.row<std::uint64_t>(op.a)[l] : w.row<std::uint32_t>(op.a)[l];
      if (to >= w.frame->local_base && to <= top) top = std::uint32_t(to);
    }
  });
}
void decode_stack(Decoder& d, const ptx::Inst& i, Op& op) {
  const Mod t = i.type();
  op.bytes = ptx::type_bits(t) == 64 ? 8 : 4;
  op.kind = i.op == POp::stackrestore;
  if (op.kind)
    op.a = d.source(d.operand(i, 0), t);
  else
    op.d = d.dest(d.operand(i, 0), t);
  op.fn = exec_stack;
}
}  // namespace

void add_memory(Table& t) {
  t.set(POp::ld, decode_ld);
  t.set(POp::ldu, decode_ld);
  t.set(POp::st, decode_st);
  t.set(POp::st_bulk, decode_st_bulk);
  t.set(POp::prefetch, decode_prefetch);
  t.set(POp::prefetchu, decode_prefetch);
  t.set(POp::applypriority, decode_line);
  t.set(POp::discard, decode_line);
  for (POp o : {POp::createpolicy_fractional, POp::createpolicy_range, POp::createpolicy_cvt})
    t.set(o, decode_policy);
  t.set(POp::alloca, decode_alloca);
  t.set(POp::stacksave, decode_stack);
  t.set(POp::stackrestore, decode_stack);
}

}  // namespace cgp::emu
