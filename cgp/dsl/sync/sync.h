// SPDX-License-Identifier: Apache-2.0
#pragma once
// Barriers with a reduction, fences, hints, cache control, and rung 3: any instruction of the table.
// Barriers of blocks, warps and named groups are methods of their scopes (scope.h). PTX ISA 9.7.13.
#include "cgp/dsl/core/scope.h"
#include "cgp/dsl/memory/ptr.h"

namespace cgp::dsl {

/// bar_red<op::popc>(cta, p): a barrier that also counts; bar_red<op::and_>, bar_red<op::or_> give
/// predicates.
template <class Op>
requires(std::is_same_v<Op, op::popc>) Val<u32> bar_red(Cta& c, const Val<pred>& p, Here at = Here::now()) {
  c.converged("bar.red", at);
  c.k.at(at);
  const auto source = c.k.in_register(p);
  const auto d = c.k.fresh<u32>(Uniform::cta);
  c.k.inst(ptx::Op::bar_red, {ptx::Mod::popc, ptx::Mod::u32},
           {ptx::Operand::of(d.reg()), ptx::Operand::integer(0), source});
  return d;
}
template <class Op>
requires(has_tag<Op, op::and_, op::or_>) Val<pred> bar_red(Cta& c, const Val<pred>& p,
                                                           Here at = Here::now()) {
  c.converged("bar.red", at);
  c.k.at(at);
  const auto source = c.k.in_register(p);
  const auto d = c.k.fresh<pred>(Uniform::cta);
  c.k.inst(ptx::Op::bar_red, {Op::mod, ptx::Mod::pred},
           {ptx::Operand::of(d.reg()), ptx::Operand::integer(0), source});
  return d;
}

/// fence<acq_rel, gpu>(k), fence<sc, sys>(k).
template <class... Tags>
void fence(Kernel& k, Here at = Here::now()) {
  static_assert(sizeof...(Tags) == 2, "a fence names order and scope: fence<acq_rel, gpu>(k)");
  k.at(at);
  k.inst(ptx::Op::fence, mods_of<Tags...>(), {});
}
/// fence_proxy<mod::async>(k), fence_proxy<mod::alias>(k).
template <class... Tags>
void fence_proxy(Kernel& k, Here at = Here::now()) {
  static_assert(sizeof...(Tags) > 0, "a proxy fence names the proxy: fence_proxy<mod::async>(k)");
  k.at(at);
  k.inst(ptx::Op::fence_proxy, mods_of<Tags...>(), {});
}
/// membar<cta>(k), membar<mod::gl>(k), membar<sys>(k): the older spelling of fence<sc, ...>.
template <class Level>
void membar(Kernel& k, Here at = Here::now()) {
  k.at(at);
  k.inst(ptx::Op::membar, {Level::mod}, {});
}
/// Programmatic dependent launch (sm_90): wait for the grids before this one; let the next one start.
void griddepcontrol_wait(Kernel& k, Here at = Here::now());
void griddepcontrol_launch_dependents(Kernel& k, Here at = Here::now());
void nanosleep(Kernel& k, const Val<u32>& nanoseconds, Here at = Here::now());
void brkpt(Kernel& k, Here at = Here::now());
void pmevent(Kernel& k, int event, Here at = Here::now());

/// prefetch<L2>(p, i), prefetch<L1>(p, i), prefetch<L2_evict_last>(p, i).
template <class Level, class T, Index I>
void prefetch(const Ptr<global, T>& p, const I& i, Here at = Here::now()) {
  Kernel& k = *p.kernel();
  k.at(at);
  k.inst(ptx::Op::prefetch, {ptx::Mod::global, Level::mod},
         {record_impl::address_operand(k, p.indexed(i, p.elem_bytes, at), 1, at)});
}
/// The 128 bytes around element i need not be written back.
template <class T, Index I>
void discard(const Ptr<global, T>& p, const I& i, Here at = Here::now()) {
  Kernel& k = *p.kernel();
  k.at(at);
  k.inst(
      ptx::Op::discard, {ptx::Mod::global, ptx::Mod::L2},
      {record_impl::address_operand(k, p.indexed(i, p.elem_bytes, at), 128, at), ptx::Operand::integer(128)});
}
template <class T, Index I>
void applypriority(const Ptr<global, T>& p, const I& i, Here at = Here::now()) {
  Kernel& k = *p.kernel();
  k.at(at);
  k.inst(
      ptx::Op::applypriority, {ptx::Mod::global, ptx::Mod::L2_evict_normal},
      {record_impl::address_operand(k, p.indexed(i, p.elem_bytes, at), 128, at), ptx::Operand::integer(128)});
}
/// A cache policy for ld_hint/st_hint: createpolicy_fractional<L2_evict_last>(k, 0.5f).
template <class Primary>
CachePolicy createpolicy_fractional(Kernel& k, float fraction = 1.0f, Here at = Here::now()) {
  if (!(fraction > 0 && fraction <= 1))
    throw BuildError("a cache policy applies to a fraction between 0 and 1 of the accesses", at,
                     text::cat("got ", fraction));
  k.at(at);
  const auto d = k.fresh<b64>(Uniform::grid);
  k.inst(ptx::Op::createpolicy_fractional, {Primary::mod, ptx::Mod::b64},
         {ptx::Operand::of(d.reg()), ptx::Operand::f32(fraction)});
  return {d};
}

/// The policy for the first `primary_bytes` of `total_bytes` from p; the rest is evict_unchanged.
template <class Primary, class T>
CachePolicy createpolicy_range(const Ptr<global, T>& p, const Val<u32>& primary_bytes,
                               const Val<u32>& total_bytes, Here at = Here::now()) {
  Kernel& k = *p.kernel();
  k.at(at);
  const auto address = record_impl::address_operand(k, {p.base(), p.offset()}, 1, at);
  const auto primary = k.operand(primary_bytes), total = k.operand(total_bytes);
  const auto d = k.fresh<b64>(Uniform::grid);
  k.inst(ptx::Op::createpolicy_range, {ptx::Mod::global, Primary::mod, ptx::Mod::b64},
         {ptx::Operand::of(d.reg()), address, primary, total});
  return {d};
}

/// The same address in the generic space (cvta), for instructions and structures that need it.
template <class Space, class T>
Ptr<generic, T> to_generic(const Ptr<Space, T>& p, Here at = Here::now()) {
  Kernel& k = *p.kernel();
  const auto address = p.address(at);
  if constexpr (is_narrow_space<Space>) {
    const auto wide_address =
        k.op(ptx::Op::cvt, {ptx::Mod::u64, ptx::Mod::u32}, ptx::Mod::u64, {address}, at);
    return Ptr<generic, T>(
        Val<u64>(k.op(ptx::Op::cvta, {ptx::Mod::shared, ptx::Mod::u64}, ptx::Mod::u64, {wide_address})));
  } else {
    return Ptr<generic, T>(
        Val<u64>(k.op(ptx::Op::cvta, {Space::mod, ptx::Mod::u64}, ptx::Mod::u64, {address}, at)));
  }
}

// ---------------------------------------------------------------- rung 3: any row of opcodes.def
namespace record_impl {
ptx::Operand any_operand(Kernel&, int v);
template <IsVal A>
ptx::Operand any_operand(Kernel& k, const A& v) {
  return k.operand(v);
}
template <class Space, class T>
ptx::Operand any_operand(Kernel& k, const Ptr<Space, T>& p) {
  return ptx::Operand::at(k.register_of(p.base()), p.offset());
}
template <class T, int N>
ptx::Operand any_operand(Kernel& k, const RegGroup<T, N>& g) {
  std::vector<ptx::RegId> regs;
  for (const Value& v : g.values()) regs.push_back(k.register_of(v));
  return ptx::Operand::vec_of(regs);
}
}  // namespace record_impl

template <class R, class... A>
Val<R> Kernel::ptx(ptx::Op op, ptx::Mods mods, const A&... in) {
  std::vector<ptx::Operand> operands{ptx::Operand(), record_impl::any_operand(*this, in)...};
  const Val<R> d = fresh<R>(Uniform::thread);
  operands[0] = ptx::Operand::of(d.reg());
  inst(op, mods, std::move(operands));
  return d;
}
template <class R, int N, class... A>
RegGroup<R, N> Kernel::ptx(ptx::Op op, ptx::Mods mods, const A&... in) {
  std::vector<ptx::Operand> operands{ptx::Operand(), record_impl::any_operand(*this, in)...};
  const auto d = RegGroup<R, N>::generate([&](int) { return fresh<R>(Uniform::thread); });
  operands[0] = record_impl::any_operand(*this, d);
  inst(op, mods, std::move(operands));
  return d;
}
template <class... A>
void Kernel::ptx(ptx::Op op, ptx::Mods mods, const A&... in) {
  inst(op, mods, {record_impl::any_operand(*this, in)...});
}

}  // namespace cgp::dsl
