// SPDX-License-Identifier: Apache-2.0
// atom and red: all operations, types and spaces. Lanes take effect in ascending order; between blocks on
// other host threads every element is one atomic read-modify-write.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/decode_modifiers.h"
#include "cgp/emu/decode/families.h"
#include "cgp/emu/race/race.h"

namespace cgp::emu {

using ptx::Mod;
using POp = ptx::Op;
using text::cat;

namespace {
enum class Action : std::uint8_t { add, min, max, and_, or_, xor_, exch, cas, inc, dec };

struct Atomic {
  Action action = Action::add;
  Mod type = Mod::u32;
  bool ftz = false, shared = false;
  int count = 1, bytes = 4;
  bool result = false;
  std::array<Loc, 8> dest, value, swap;  ///< atom d, [a], value, swap
};

// ---------------------------------------------------------------- one element
std::uint32_t f32_result(Action a, std::uint32_t x, std::uint32_t y, bool ftz) {
  auto flush = [&](std::uint32_t u) { return ftz && !(u & 0x7f800000u) ? u & 0x80000000u : u; };
  const float p = std::bit_cast<float>(flush(x)), q = std::bit_cast<float>(flush(y));
  float r = 0;
  if (a == Action::add)
    r = p + q;
  else if (p != p || q != q)
    r = p != p ? q : p;
  else
    r = (p < q || (p == q && std::signbit(p))) == (a == Action::min) ? p : q;
  return r != r ? 0x7fffffffu : flush(std::bit_cast<std::uint32_t>(r));
}

// A NaN goes on: in global memory the operand's before the memory's, as it is; in shared memory, where the
// addition is a loop of compare-and-swap, the memory's first, made quiet (measured).
std::uint64_t f64_sum(std::uint64_t memory, std::uint64_t operand, bool shared) {
  const auto nan = [](std::uint64_t x) { return (x & ~0ull >> 1) > 0x7ff0000000000000ull; };
  const std::uint64_t first = shared ? memory : operand, second = shared ? operand : memory;
  if (nan(first) || nan(second)) return (nan(first) ? first : second) | (shared ? 1ull << 51 : 0);
  const double r = std::bit_cast<double>(memory) + std::bit_cast<double>(operand);
  return r != r ? 0xfff8000000000000ull : std::bit_cast<std::uint64_t>(r);
}

double f64_result(Action a, double p, double q) {
  if (a == Action::add) return p + q;
  if (p != p || q != q) return p != p ? q : p;
  return (p < q || (p == q && std::signbit(p))) == (a == Action::min) ? p : q;
}

template <class H>
std::uint16_t half_result(Action a, std::uint16_t x, std::uint16_t y) {
  const double p = double(H::from_bits(x)), q = double(H::from_bits(y));
  const double r = f64_result(a, p, q);
  return r != r ? 0x7fff : H(r).bits;
}

template <class S, class U>
U integer_result(Action a, U x, U b, U c) {
  switch (a) {
    case Action::add:
      return U(x + b);
    case Action::min:
      return U(std::min(S(x), S(b)));
    case Action::max:
      return U(std::max(S(x), S(b)));
    case Action::and_:
      return x & b;
    case Action::or_:
      return x | b;
    case Action::xor_:
      return x ^ b;
    case Action::exch:
      return b;
    case Action::cas:
      return x == b ? c : x;
    case Action::inc:
      return x >= b ? U(0) : U(x + 1);
    case Action::dec:
      return x == 0 || x > b ? b : U(x - 1);
  }
  return x;
}

std::uint64_t result_of(const Atomic& a, std::uint64_t x, std::uint64_t b, std::uint64_t c) {
  using u16 = std::uint16_t;
  using u32 = std::uint32_t;
  using u64 = std::uint64_t;
  switch (a.type) {
    case Mod::f32:
      if (a.action == Action::exch) return b;
      return f32_result(a.action, u32(x), u32(b), a.ftz);
    case Mod::f64:
      if (a.action == Action::add) return f64_sum(x, b, a.shared);
      return std::bit_cast<u64>(f64_result(a.action, std::bit_cast<double>(x), std::bit_cast<double>(b)));
    case Mod::f16:
      return half_result<half>(a.action, u16(x), u16(b));
    case Mod::bf16:
      return half_result<bfloat16>(a.action, u16(x), u16(b));
    case Mod::f16x2:
      return half_result<half>(a.action, u16(x), u16(b)) |
             u32(half_result<half>(a.action, u16(x >> 16), u16(b >> 16))) << 16;
    case Mod::bf16x2:
      return half_result<bfloat16>(a.action, u16(x), u16(b)) |
             u32(half_result<bfloat16>(a.action, u16(x >> 16), u16(b >> 16))) << 16;
    case Mod::s32:
      return integer_result<std::int32_t, u32>(a.action, u32(x), u32(b), u32(c));
    case Mod::s64:
      return integer_result<std::int64_t, u64>(a.action, x, b, c);
    default:
      break;
  }
  if (a.bytes == 2) return integer_result<u16, u16>(a.action, u16(x), u16(b), u16(c));
  return a.bytes == 4 ? integer_result<u32, u32>(a.action, u32(x), u32(b), u32(c))
                      : integer_result<u64, u64>(a.action, x, b, c);
}

// Replaces *p and returns the old value; `changed` when the new one differs.
template <class T>
std::uint64_t exchange(std::byte* p, const Atomic& a, std::uint64_t b, std::uint64_t c, bool& changed) {
  std::atomic_ref<T> ref(*reinterpret_cast<T*>(p));
  T old = ref.load(std::memory_order_relaxed), next;
  do next = T(result_of(a, old, b, c));
  while (!ref.compare_exchange_weak(old, next));
  changed = changed || next != old;
  return old;
}

std::uint64_t cell(const Warp& w, Loc l, int bytes, int lane) {
  return bytes == 8 ? w.row<std::uint64_t>(l)[lane] : w.row<std::uint32_t>(l)[lane];
}

// 128-bit exchange and compare-and-swap: rare, one lock for all.
void exchange128(Warp& w, const Op& op, const Atomic& a, std::byte* p, int l, bool& changed) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::uint64_t old[2], v[2], s[2];
  copy_from_device(old, p, 16);
  for (int i = 0; i < 2; ++i) {
    v[i] = w.row<std::uint64_t>(a.value[0])[i * kLanes + l];
    s[i] = a.action == Action::cas ? w.row<std::uint64_t>(a.swap[0])[i * kLanes + l] : v[i];
  }
  if (a.action == Action::exch || (old[0] == v[0] && old[1] == v[1])) {
    changed = changed || std::memcmp(old, s, 16) != 0;
    copy_to_device(p, s, 16);
  }
  if (a.result)
    for (int i = 0; i < 2; ++i) w.row<std::uint64_t>(a.dest[0])[i * kLanes + l] = old[i];
  (void)op;
}

void one_lane(Warp& w, const Op& op, const Atomic& a, std::byte* p, int l, bool& changed) {
  if (a.bytes == 16) return exchange128(w, op, a, p, l, changed);
  for (int i = 0; i < a.count; ++i) {
    const auto k = std::size_t(i);
    const std::uint64_t b = cell(w, a.value[k], a.bytes, l);
    const std::uint64_t c = a.action == Action::cas ? cell(w, a.swap[k], a.bytes, l) : 0;
    std::byte* at = p + i * a.bytes;
    const std::uint64_t old = a.bytes == 2   ? exchange<std::uint16_t>(at, a, b, c, changed)
                              : a.bytes == 4 ? exchange<std::uint32_t>(at, a, b, c, changed)
                                             : exchange<std::uint64_t>(at, a, b, c, changed);
    if (!a.result) continue;
    if (a.bytes == 8)
      w.row<std::uint64_t>(a.dest[k])[l] = old;
    else
      w.row<std::uint32_t>(a.dest[k])[l] = std::uint32_t(old);
  }
}

void count(Warp& w, const Op& op, std::uint32_t bytes, const std::uint64_t* addr, Mask ok) {
  if (!w.worker->launch->options.counters || !ok) return;
  Where where = op.where;
  if (where == Where::generic) where = classify(w, addr[std::countr_zero(ok)]);
  if (where == Where::global) return count_global(w, op, GlobalKind::atomic, bytes, addr, ok);
  std::uint32_t offset[kLanes];
  for (int l = 0; l < kLanes; ++l) offset[l] = std::uint32_t(addr[l]) & ((1u << kRankShift) - 1);
  count_shared(w, op, SharedKind::atomic, bytes, offset, ok);
}

void exec_atomic(Warp& w, const Op& op) {
  const Atomic& a = op.data_as<Atomic>();
  const auto total = std::uint32_t(a.count * a.bytes);
  alignas(64) std::uint64_t addr[kLanes];
  std::byte* at[kLanes];
  w.addresses(op, addr);
  const Access access = a.action == Action::exch ? Access::write : Access::atomic;
  const Mask ok = resolve(w, op, op.where, addr, total, access, w.active, at);
  count(w, op, total, addr, ok);
  const race::Section section(w, op);
  race::access(w, op, op.where, addr, total, race::Use::atomic, ok);
  if (w.taint)
    for (int i = 0; i < a.count; ++i)
      if (const Mask m = taint_of(w, a.value[std::size_t(i)]) & ok)
        report_taint(w, op, a.value[std::size_t(i)], m, "is an operand of an atomic");
  ++w.worker->polls;
  if (w.suspect && ok) note_poll(w, op, addr[std::countr_zero(ok)]);
  bool changed = false;
  for_lanes(ok, [&](int l) { one_lane(w, op, a, at[l], l, changed); });
  if (op.where != Where::shared) note_release(w);
  note_acquire(w);
  if (changed && w.suspect) w.changed = true;
  if (w.unwritten) {
    const Mask m = w.unwritten;
    w.unwritten = 0;
    report_origin(w, op, m & ok, "is updated by this instruction");  // also where nobody reads the old value
    for_lanes(m & ok, [&](int l) { mark_written(w, op.where, addr[l], total); });
  }
}

// ---------------------------------------------------------------- decoding
Action action_of(Decoder& d, const ptx::Inst& i) {
  for (Mod m : i.mods) switch (m) {
      case Mod::add:
        return Action::add;
      case Mod::min:
        return Action::min;
      case Mod::max:
        return Action::max;
      case Mod::and_:
        return Action::and_;
      case Mod::or_:
        return Action::or_;
      case Mod::xor_:
        return Action::xor_;
      case Mod::exch:
        return Action::exch;
      case Mod::cas:
        return Action::cas;
      case Mod::inc:
        return Action::inc;
      case Mod::dec:
        return Action::dec;
      default:
        break;
    }
  d.unsupported("without an operation");
}

void decode_atomic(Decoder& d, const ptx::Inst& i, Op& op) {
  allow(d, i, {Mod::global,  Mod::shared,  Mod::shared_cta,   Mod::shared_cluster,
               Mod::add,     Mod::min,     Mod::max,          Mod::and_,
               Mod::or_,     Mod::xor_,    Mod::exch,         Mod::cas,
               Mod::inc,     Mod::dec,     Mod::relaxed,      Mod::acquire,
               Mod::release, Mod::acq_rel, Mod::cta,          Mod::cluster,
               Mod::gpu,     Mod::sys,     Mod::noftz,        Mod::v2,
               Mod::v4,      Mod::v8,      Mod::L2_cache_hint});
  Atomic a;
  a.action = action_of(d, i);
  a.type = i.type();
  a.bytes = ptx::type_bits(a.type) / 8;
  a.result = i.op == POp::atom;
  op.where = d.where(i);
  a.shared = op.where == Where::shared || op.where == Where::shared_cluster;
  // Global and generic f32 additions flush subnormals, those on shared memory do not.
  a.ftz = a.type == Mod::f32 && a.action == Action::add && op.where == Where::global;
  if (a.bytes == 16 && a.action != Action::exch && a.action != Action::cas)
    d.unsupported("this 128-bit operation");
  std::size_t at = a.result ? 1 : 0;
  d.set_address(d.operand(i, at), op);
  const std::vector<Loc> values = d.sources(d.operand(i, at + 1), a.type);
  a.count = int(values.size());
  if (a.count > 8) d.unsupported("so many elements");
  std::copy(values.begin(), values.end(), a.value.begin());
  if (a.action == Action::cas) a.swap[0] = d.source(d.operand(i, at + 2), a.type);
  if (a.result) {
    const ptx::Operand& o = d.operand(i, 0);
    std::vector<Loc> dests;
    if (o.kind == ptx::OperandKind::sink)
      dests.assign(values.size(), d.scratch(ptx::type_bits(a.type)));
    else
      dests = d.dests(o, a.type);
    std::copy(dests.begin(), dests.end(), a.dest.begin());
  }
  op.flags |= kVolatile;
  op.data = d.keep(a);
  op.fn = exec_atomic;
}
}  // namespace

void add_atomic(Table& t) {
  t.set(POp::atom, decode_atomic);
  t.set(POp::red, decode_atomic);
}

}  // namespace cgp::emu
