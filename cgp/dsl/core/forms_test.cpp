// SPDX-License-Identifier: Apache-2.0
// One line per form: what the language writes, and the PTX instruction (text from the ISA manual) it must
// record. The forms of one target make one module, which must also survive print-parse and ptxas.
#include <gtest/gtest.h>

#include <functional>

#include "cgp/dsl/core/ptxas_test.h"
#include "cgp/dsl/kernel.h"
#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"

namespace cgp::dsl {
namespace {

/// Operands of every type, and out() to keep a result alive.
struct Operands {
  Kernel& k;
  Ptr<global, u32> p;
  Val<u32> u, v;
  Val<s32> s, t;
  Val<u64> w, x;
  Val<s64> l;
  Val<f32> f, g;
  Val<f64> d, e;
  Val<f16> h, i;
  Val<bf16> b, c;
  Val<f16x2> h2;
  Val<bf16x2> b2;
  Val<f32x2> f2;
  Val<u16> u16v;
  Val<pred> q;
  template <class T>
  void out(const Val<T>& value) const {
    if constexpr (T::mod == ptx::Mod::pred)
      p.st(0, to<u32>(value));
    else
      p.template as<T>().st(0, value);
  }
};

struct Form {
  const char* target;
  const char* text;
  std::function<void(Operands&)> record;
  int line;
};

Operands operands(Kernel& k, const Ptr<global, u32>& p) {
  return {k,
          p,
          p.ld(1),
          p.ld(2),
          p.as<s32>().ld(1),
          p.as<s32>().ld(2),
          p.as<u64>().ld(1),
          p.as<u64>().ld(2),
          p.as<s64>().ld(1),
          p.as<f32>().ld(1),
          p.as<f32>().ld(2),
          p.as<f64>().ld(1),
          p.as<f64>().ld(2),
          p.as<f16>().ld(1),
          p.as<f16>().ld(2),
          p.as<bf16>().ld(1),
          p.as<bf16>().ld(2),
          p.as<f16x2>().ld(1),
          p.as<bf16x2>().ld(1),
          p.as<f32x2>().ld(1),
          p.as<u16>().ld(1),
          p.ld(3) == 7};
}

void check(const std::vector<Form>& forms) {
  ASSERT_FALSE(forms.empty());
  ModuleBuilder m(forms[0].target);
  int n = 0;
  for (const Form& f : forms)
    m.add(text::cat("form_", n++), [&f](Kernel& k, Out<u32> p) {
      auto o = operands(k, p);
      f.record(o);
    });
  const auto built = m.finish();
  const ptx::Module& module = *built[0].module;
  for (std::size_t j = 0; j < forms.size(); ++j) {
    std::string body;
    bool found = false;
    for (const auto& i : module.functions[j].body) {
      const std::string line = ptx::print(module, module.functions[j], i);
      found = found || text::cat(" ", line).find(text::cat(" ", forms[j].text)) != std::string::npos;
      body += line + "\n";
    }
    EXPECT_TRUE(found) << "line " << forms[j].line << ": no " << forms[j].text << " in\n" << body;
  }
  const std::string text = built[0].ptx();
  EXPECT_EQ(ptx::difference(ptx::parse(text), module), "");
  const std::string said = ptxas(built[0]);
  EXPECT_TRUE(said.empty() || said == "no ptxas") << said;
}

#define FORM(text, ...)   \
  {                       \
    target, text,         \
        [](Operands& o) { \
          (void)o;        \
          __VA_ARGS__;    \
        },                \
        __LINE__          \
  }

TEST(forms, integers) {
  const char* target = "sm_80";
  check({
      FORM("add.u32", o.out(o.u + o.v)),
      FORM("add.s32", o.out(o.s + 4)),
      FORM("add.u64", o.out(o.w + o.x)),
      FORM("add.u16", o.out(o.u16v + 4)),
      FORM("add.sat.s32", o.out(add<sat>(o.s, o.t))),
      FORM("sub.s64", o.out(o.l - 4)),
      FORM("mul.lo.u32", o.out(o.u * 3)),
      FORM("mul.hi.s32", o.out(mul<hi>(o.s, o.t))),
      FORM("mul.wide.u32", o.out(mul<wide>(o.u, o.v))),
      FORM("mul.wide.u16", o.out(mul<wide>(o.u16v, o.u16v))),
      FORM("mad.lo.s32", o.out(mad<lo>(o.s, o.t, 5))),
      FORM("mad.wide.s32", o.out(mad<wide>(o.s, o.t, o.l))),
      FORM("mad.hi.sat.s32", o.out(mad<hi, sat>(o.s, o.t, o.s))),
      FORM("div.s32", o.out(o.s / o.t)),
      FORM("div.u64", o.out(div(o.w, o.x))),
      FORM("rem.u32", o.out(o.u % 7)),
      FORM("shr.u64", o.out(o.w / 8)),
      FORM("and.b64", o.out(o.w % 8)),
      FORM("div.u64", o.out(o.w / 10)),
      FORM("abs.s64", o.out(abs(o.l))),
      FORM("neg.s32", o.out(-o.s)),
      FORM("min.u32", o.out(min(o.u, 4))),
      FORM("max.s64", o.out(max(o.l, 4))),
      FORM("sad.u32", o.out(sad(o.u, o.v, 4))),
      FORM("popc.b32", o.out(popc(o.u))),
      FORM("popc.b64", o.out(popc(o.w))),
      FORM("clz.b64", o.out(clz(o.w))),
      FORM("bfind.s32", o.out(bfind(o.s))),
      FORM("bfind.shiftamt.u32", o.out(bfind<mod::shiftamt>(o.u))),
      FORM("fns.b32", o.out(fns(o.u, 0, 1))),
      FORM("brev.b64", o.out(brev(o.w))),
      FORM("bfe.s32", o.out(bfe(o.s, 4, 8))),
      FORM("bfe.u64", o.out(bfe(o.w, 4, 8))),
      FORM("bfi.b32", o.out(bfi(o.u, o.v, 4, 8))),
      FORM("bmsk.clamp.b32", o.out(bmsk<clamp>(o.u, o.v))),
      FORM("szext.wrap.s32", o.out(szext<wrap>(o.s, 8))),
      FORM("dp4a.u32.u32", o.out(dp4a(o.u, o.v, 0))),
      FORM("dp4a.s32.u32", o.out(dp4a(o.s, o.v, 0))),
      FORM("dp2a.hi.s32.s32", o.out(dp2a<hi>(o.s, o.t, 0))),
      FORM("addc.u32", o.out(add_cc(o.u, o.v)), o.out(addc(o.u, 0))),
      FORM("subc.cc.s32", o.out(sub_cc(o.s, o.t)), o.out(subc_cc(o.s, 0)), o.out(subc(o.s, 0))),
  });
}

TEST(forms, logic_compare_convert) {
  const char* target = "sm_80";
  check({
      FORM("and.b32", o.out(o.u & 15)),
      FORM("or.b64", o.out(o.w | o.x)),
      FORM("xor.b32", o.out(xor_(o.s, 15))),
      FORM("not.b32", o.out(~o.u)),
      FORM("and.pred", o.out(o.q & (o.u == 1))),
      FORM("not.pred", o.out(!o.q)),
      FORM("cnot.b32", o.out(cnot(o.u))),
      FORM("shl.b32", o.out(o.u << 3)),
      FORM("shr.u64", o.out(o.w >> o.u)),
      FORM("shr.s32", o.out(o.s >> 3)),
      FORM("lop3.b32", o.out(lop3<0x96>(o.u, o.v, o.u))),
      FORM("shf.l.clamp.b32", o.out(shf<mod::l, clamp>(o.u, o.v, 3))),
      FORM("shf.r.wrap.b32", o.out(shf<mod::r, wrap>(o.u, o.v, 3))),
      FORM("prmt.b32", o.out(prmt(o.u, o.v, 0x3210))),
      FORM("prmt.b32.b4e", o.out(prmt<b4e>(o.u, o.v, o.u))),
      FORM("setp.lt.s32", o.out(o.s < o.t)),
      FORM("setp.ge.u64", o.out(o.w >= 4)),
      FORM("setp.eq.f32", o.out(o.f == 1)),
      FORM("setp.neu.f32", o.out(o.f != o.g)),
      FORM("setp.ltu.f64", o.out(setp<ltu>(o.d, o.e))),
      FORM("setp.lt.and.f32", o.out(setp<lt, op::and_>(o.f, o.g, o.q))),
      FORM("setp.gt.f16", o.out(o.h > o.i)),
      FORM("set.ge.f32.f32", o.out(set<f32, ge>(o.f, o.g))),
      FORM("set.lt.u32.s32", o.out(set<u32, lt>(o.s, o.t))),
      FORM("selp.f32", o.out(select(o.q, o.f, 0.f))),
      FORM("selp.b32", o.out(select(o.q, o.u, 0))),
      FORM("selp.b16", o.out(select(o.q, o.h, o.i))),
      FORM("slct.u32.s32", o.out(slct(o.u, o.v, o.s))),
      FORM("cvt.rn.f32.s32", o.out(to<f32>(o.s))),
      FORM("cvt.rzi.u32.f32", o.out(to<u32>(o.f))),
      FORM("cvt.u64.u32", o.out(to<u64>(o.u))),
      FORM("cvt.s64.s32", o.out(to<s64>(o.s))),
      FORM("cvt.u32.u64", o.out(to<u32>(o.w))),
      FORM("cvt.f64.f32", o.out(to<f64>(o.f))),
      FORM("cvt.rn.f32.f64", o.out(to<f32>(o.d))),
      FORM("cvt.f32.f16", o.out(to<f32>(o.h))),
      FORM("cvt.rn.f16.f32", o.out(to<f16>(o.f))),
      FORM("cvt.rn.bf16.f32", o.out(to<bf16>(o.f))),
      FORM("mov.b32", o.out(to<f32>(o.b))),
      FORM("cvt.rn.relu.bf16.f32", o.out(cvt<rn, relu, bf16>(o.f))),
      FORM("cvt.rn.bf16x2.f32", o.out(cvt<rn, bf16x2>(o.f, o.g))),
      FORM("cvt.rni.ftz.f32.f32", o.out(cvt<rni, ftz, f32>(o.f))),
      FORM("cvt.rna.tf32.f32", o.out(cvt<rna, tf32>(o.f))),
      FORM("cvt.rmi.s32.f64", o.out(cvt<rmi, s32>(o.d))),
      FORM("cvt.sat.u8.s32", o.out(cvt<sat, u8>(o.s))),
      FORM("mov.b64", o.out(pack<f64>(o.u, o.v))),
      FORM("mov.b32", o.out(unpack<f16>(o.h2)[1])),
      FORM("mov.b32", o.out(bits<u32>(o.f))),
  });
}

TEST(forms, floats) {
  const char* target = "sm_90";
  check({
      FORM("add.f32", o.out(o.f + o.g)),
      FORM("add.rz.ftz.f32", o.out(add<rz, ftz>(o.f, o.g))),
      FORM("mul.f64", o.out(o.d * o.e)),
      FORM("sub.rm.f64", o.out(sub<rm>(o.d, o.e))),
      FORM("div.rn.f32", o.out(o.f / o.g)),
      FORM("div.approx.ftz.f32", o.out(div<approx, ftz>(o.f, o.g))),
      FORM("div.full.f32", o.out(div<full>(o.f, o.g))),
      FORM("fma.rn.f32", o.out(fma(o.f, o.g, 1.f))),
      FORM("fma.rp.sat.f32", o.out(fma<rp, sat>(o.f, o.g, o.f))),
      FORM("fma.rn.f64", o.out(fma(o.d, o.e, o.d))),
      FORM("neg.f32", o.out(-o.f)),
      FORM("abs.f64", o.out(abs(o.d))),
      FORM("min.NaN.f32", o.out(min<NaN>(o.f, o.g))),
      FORM("max.ftz.f32", o.out(max<ftz>(o.f, 0.f))),
      FORM("rcp.approx.ftz.f32", o.out(rcp<approx, ftz>(o.f))),
      FORM("rcp.rn.f64", o.out(rcp<rn>(o.d))),
      FORM("sqrt.rn.f32", o.out(sqrt<rn>(o.f))),
      FORM("rsqrt.approx.f32", o.out(rsqrt<approx>(o.f))),
      FORM("sin.approx.f32", o.out(sin<approx>(o.f))),
      FORM("cos.approx.f32", o.out(cos<approx>(o.f))),
      FORM("lg2.approx.f32", o.out(lg2<approx>(o.f))),
      FORM("ex2.approx.ftz.f32", o.out(ex2<approx, ftz>(o.f))),
      FORM("ex2.approx.f16", o.out(ex2<approx>(o.h))),
      FORM("tanh.approx.f32", o.out(tanh<approx>(o.f))),
      FORM("tanh.approx.bf16", o.out(tanh<approx>(o.b))),
      FORM("copysign.f32", o.out(copysign(o.f, o.g))),
      FORM("testp.notanumber.f32", o.out(testp<mod::notanumber>(o.f))),
      FORM("add.f16", o.out(o.h + o.i)),
      FORM("mul.bf16", o.out(o.b * o.c)),
      FORM("fma.rn.f16", o.out(fma(o.h, o.i, o.h))),
      FORM("fma.rn.relu.bf16", o.out(fma<rn, relu>(o.b, o.c, o.b))),
      FORM("fma.rn.f16x2", o.out(fma(o.h2, o.h2, o.h2))),
      FORM("add.bf16x2", o.out(o.b2 + 1.5f)),
      FORM("max.NaN.f16x2", o.out(max<NaN>(o.h2, o.h2))),
      FORM("neg.bf16x2", o.out(-o.b2)),
      FORM("cvt.f32.bf16", o.out(to<f32>(o.b))),
      FORM("cvt.rn.satfinite.e4m3x2.f32", o.out(cvt<rn, satfinite, e4m3x2>(o.f, o.g))),
      FORM("cvt.rn.satfinite.e5m2x2.f16x2", o.out(cvt<rn, satfinite, e5m2x2>(o.h2))),
      FORM("cvt.rn.f16x2.e4m3x2", o.out(cvt<rn, f16x2>(bits<e4m3x2>(o.u16v)))),
  });
}

TEST(forms, memory) {
  const char* target = "sm_90";
  check({
    FORM("ld.global.v4.f32", o.p.as<f32>().st<4>(0, o.p.as<f32>().ld<4>(1))),
        FORM("st.global.v2.u64", o.p.as<u64>().st<2>(0, o.p.as<u64>().ld<2>(1))),
        FORM("ld.global.v2.b16", o.p.as<f16>().st<2>(0, o.p.as<f16>().ld<2>(1))),
        FORM("ld.global.v4.b32", o.p.as<bf16>().st<8>(0, o.p.as<bf16>().ld<8>(1))),
        FORM("ld.global.v4.u8", o.p.as<u8>().st<4>(0, o.p.as<u8>().ld<4>(1))),
        FORM("st.global.v4.b32", o.p.as<s8>().st<16>(0, o.p.as<s8>().ld<16>(1))),
        FORM("mov.b32", o.p.as<s8>().st<16>(0, o.p.as<s8>().ld<16>(1))),
        FORM("cvt.u8.u32", o.p.as<u8>().st(0, 7)),
        FORM("cvt.u8.u8", auto b = o.p.as<u8>().ld(0);
             o.p.as<u8>().st(0, o.k.loop(o.u, b, [&](Val<u32>, Val<u8>) { return o.p.as<u8>().ld(1); }))),
        FORM("ld.acquire.gpu.global.u32", o.out(o.p.ld<acquire, gpu>(5))),
        FORM("ld.relaxed.sys.global.u32", o.out(o.p.ld<relaxed, sys>(5))),
        FORM("ld.volatile.global.u32", o.out(o.p.ld<volatile_>(5))),
        FORM("ld.global.nc.u32", o.out(o.p.ld<nc>(5))), FORM("ld.global.cg.u32", o.out(o.p.ld<cg>(5))),
        FORM("ld.global.L1::evict_last.L2::128B.v4.u32", o.p.st<4>(0, o.p.ld<4, evict_last, L2_128B>(1))),
        FORM("ld.global.nc.L1::no_allocate.u32", o.out(o.p.ld<nc, no_allocate>(5))),
        FORM("st.release.gpu.global.u32", o.p.st<release, gpu>(0, 1)),
        FORM("ld.acquire.sys.global.u32", o.out(o.p.ld<acquire, sys>(5))),
        FORM("st.release.sys.global.u32", o.p.st<release, sys>(0, 1)),
        FORM("st.relaxed.sys.global.u32", o.p.st<relaxed, sys>(0, 1)),
        FORM("st.global.cs.u32", o.p.st<cs>(0, 1)),
        FORM("st.global.L1::evict_first.u32", o.p.st<evict_first>(0, 1)),
        FORM("createpolicy.fractional.L2::evict_last.b64",
             o.p.st<4>(0, o.p.ld_hint<4>(createpolicy_fractional<L2_evict_last>(o.k, 0.5f), 1))),
        FORM("ld.global.L2::cache_hint.v4.u32",
             o.p.st<4>(0, o.p.ld_hint<4>(createpolicy_fractional<L2_evict_first>(o.k), 1))),
        FORM("st.global.L2::cache_hint.v4.u32",
             o.p.st_hint<4>(createpolicy_fractional<L2_evict_first>(o.k), 0, o.p.ld<4>(1))),
        FORM("ld.shared.f32", auto s = o.k.shared<f32>(32); o.out(s.ld(o.u))),
        FORM("st.shared.v4.f32", auto s = o.k.shared<f32>(32); s.st<4>(o.u, o.p.as<f32>().ld<4>(1))),
        FORM("mad.lo.u32", auto s = o.k.shared<f32>(32); o.out(s.ld(o.u))),
        FORM("ld.local.u32", auto a = o.k.local_array<u32>(8); a.st(o.u, 1); o.out(a.ld(o.v))),
        FORM("ld.const.f32", auto c = o.k.constant<f32>(std::vector<float>{1, 2}); o.out(c.ld(o.u))),
        FORM("mad.wide.u32", o.out(o.p.ld(o.u))), FORM("mad.wide.s32", o.out(o.p.ld(o.s))),
        FORM("mad.lo.u64", o.out(o.p.ld(o.w))), FORM("mad.lo.s64", o.out(o.p.ld(o.l))),
        FORM("ld.global.u32", o.out(o.p.ld_if(o.q, o.u, 0)[0])),
        FORM("prefetch.global.L2", prefetch<L2>(o.p, o.u)),
        FORM("prefetch.global.L2::evict_last", prefetch<L2_evict_last>(o.p, o.u)),
        FORM("discard.global.L2", discard(o.p, 32)),
        FORM("applypriority.global.L2::evict_normal", applypriority(o.p, 0)),
        FORM("cvta.shared.u64", o.out(to_generic(o.k.shared<u32>(32)).ld(3))),
        FORM("ld.u32", o.out(to_generic(o.p).ld(3))),
        FORM("atom.global.add.u32", o.out(atom<op::add>(o.p, 1, 2))),
        FORM("atom.relaxed.gpu.global.add.f32", o.out(atom<relaxed, gpu, op::add>(o.p.as<f32>(), 1, 2))),
        FORM("atom.acq_rel.cta.shared.min.s32", o.out(atom<acq_rel, cta, op::min>(o.k.shared<s32>(4), 1, 2))),
        FORM("atom.global.inc.u32", o.out(atom<inc>(o.p, 1, 7))),
        FORM("atom.global.cas.b32", o.out(atom<cas>(o.p, 1, 2, 3))),
        FORM("atom.global.cas.b16", o.out(atom<cas>(o.p.as<u16>(), 1, 2, 3))),
        FORM("atom.release.sys.global.exch.b64", o.out(atom<release, sys, exch>(o.p.as<u64>(), 1, 2))),
        FORM("atom.global.and.b32", o.out(atom<op::and_>(o.p, 1, 2))),
        FORM("atom.global.add.u64", o.out(atom<op::add>(o.p.as<s64>(), 1, 2))),
        FORM("red.global.add.noftz.f16x2", red<op::add>(o.p.as<f16x2>(), 1, o.h2)),
        FORM("red.global.add.noftz.bf16", red<op::add>(o.p.as<bf16>(), 1, o.b)),
        FORM("atom.acq_rel.sys.global.add.u32", o.out(atom<acq_rel, sys, op::add>(o.p, 1, 2))),
        FORM("red.release.sys.global.add.u32", red<release, sys, op::add>(o.p, 1, o.u)),
        FORM("red.relaxed.gpu.global.max.s64", red<relaxed, gpu, op::max>(o.p.as<s64>(), 1, o.l)),
        FORM("red.global.add.v4.f32", red<op::add>(o.p.as<f32>(), 1, o.p.as<f32>().ld<4>(0))),
        FORM("red.global.add.noftz.v4.bf16x2", red<op::add>(o.p.as<bf16x2>(), 1, o.p.as<bf16x2>().ld<4>(0))),
  });
}

TEST(forms, warp_and_barriers) {
  const char* target = "sm_90";
  check({
    FORM("shfl.sync.bfly.b32", auto w = o.k.warp(); o.out(shfl<bfly>(w, o.f, 16))),
        FORM("shfl.sync.up.b32", auto w = o.k.warp(); o.out(shfl<up>(w, o.u, 1))),
        FORM("shfl.sync.down.b32", auto w = o.k.warp(); o.out(shfl<down>(w, o.d, o.u & 31))),
        FORM("shfl.sync.idx.b32", auto w = o.k.warp(); o.out(shfl<idx>(w, o.h, 0, 16))),
        FORM("shfl.sync.bfly.b32", auto w = o.k.warp(); o.out(to<u32>(shfl<bfly>(w, o.p.as<u8>().ld(3), 1)))),
        FORM("vote.sync.all.pred", auto w = o.k.warp(); o.out(vote<all>(w, o.q))),
        FORM("vote.sync.any.pred", auto w = o.k.warp(); o.out(vote<any>(w, o.q))),
        FORM("vote.sync.uni.pred", auto w = o.k.warp(); o.out(vote<uni>(w, o.q))),
        FORM("vote.sync.ballot.b32", auto w = o.k.warp(); o.out(vote<ballot>(w, o.q))),
        FORM("match.any.sync.b64", auto w = o.k.warp(); o.out(match_any(w, o.w))),
        FORM("match.all.sync.b32", auto w = o.k.warp(); o.out(match_all(w, o.f).mask)),
        FORM("activemask.b32", o.out(activemask(o.k))),
        FORM("redux.sync.add.s32", auto w = o.k.warp(); o.out(redux<op::add>(w, o.s))),
        FORM("redux.sync.max.u32", auto w = o.k.warp(); o.out(redux<op::max>(w, o.u))),
        FORM("redux.sync.xor.b32", auto w = o.k.warp(); o.out(redux<op::xor_>(w, o.u))),
        FORM("elect.sync", auto w = o.k.warp(); w.one_thread([&](Thread&) { o.out(o.u); })),
        FORM("bar.warp.sync", o.k.warp().sync()), FORM("bar.sync 0;", o.k.sync()),
        FORM("bar.sync 1, 64;", o.k.named_barrier(64).sync()),
        FORM("bar.arrive 1, 64;", o.k.named_barrier(64).arrive()),
        FORM("bar.red.popc.u32", auto c = o.k.cta(); o.out(bar_red<op::popc>(c, o.q))),
        FORM("bar.red.and.pred", auto c = o.k.cta(); o.out(bar_red<op::and_>(c, o.q))),
        FORM("fence.acq_rel.gpu", fence<acq_rel, gpu>(o.k)), FORM("fence.sc.sys", fence<sc, sys>(o.k)),
        FORM("fence.acq_rel.sys", fence<acq_rel, sys>(o.k)),
        FORM("fence.proxy.async", fence_proxy<mod::async>(o.k)), FORM("membar.gl", membar<mod::gl>(o.k)),
        FORM("griddepcontrol.wait", griddepcontrol_wait(o.k)),
        FORM("griddepcontrol.launch_dependents", griddepcontrol_launch_dependents(o.k)),
        FORM("nanosleep.u32", nanosleep(o.k, o.u)), FORM("pmevent", pmevent(o.k, 3)),
        FORM("trap", o.k.trap()), FORM("@%p0 trap;", o.k.trap_if(o.q)),
        FORM("shfl.sync.up.b32 %r7|%p0", auto w = o.k.warp(); o.out(shfl_valid<up>(w, o.u, 1).in_range)),
        FORM("createpolicy.range.global.L2::evict_last.b64",
             o.p.st<4>(0, o.p.ld_hint<4>(createpolicy_range<L2_evict_last>(o.p, 1024, 4096), 1))),
        FORM("sub.u32", o.k.grid_stride(Val<u32>(100), [&](ThreadIndex i) { o.p.st(i, 1); })),
        FORM("exit", o.k.exit_if(o.q)), FORM("mov.u32 %r", o.out(o.k.lanemask_lt())),
        FORM("mov.u64 %rd", o.out(o.k.globaltimer())),
        FORM("tanh.approx.f32", o.out(o.k.ptx<f32>(ptx::Op::tanh, {ptx::Mod::approx, ptx::Mod::f32}, o.f))),
  });
}

TEST(forms, blackwell) {
  const char* target = "sm_100a";
  check({
    FORM("ld.global.v8.f32", o.p.as<f32>().st<8>(0, o.p.as<f32>().ld<8>(1))),
        FORM("ld.global.v4.u64", o.p.as<u64>().st<4>(0, o.p.as<u64>().ld<4>(1))),
        FORM("fma.rn.f32x2", o.out(fma(o.f2, o.f2, o.f2))), FORM("add.f32x2", o.out(o.f2 + o.f2)),
        FORM("mul.rz.f32x2", o.out(mul<rz>(o.f2, o.f2))), FORM("max.f32", o.out(max(o.f, o.g, 1.f))),
        FORM("redux.sync.max.f32", auto w = o.k.warp(); o.out(redux<op::max>(w, o.f))),
        FORM("redux.sync.min.NaN.f32", auto w = o.k.warp(); o.out(redux<op::min, NaN>(w, o.f))),
        FORM("cvt.rn.satfinite.e2m1x2.f32", auto n = cvt<rn, satfinite, e2m1x2>(o.f, o.g);
             o.out(pack<u16>(n, n))),
  });
}

}  // namespace
}  // namespace cgp::dsl
