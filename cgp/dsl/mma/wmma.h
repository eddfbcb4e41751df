// SPDX-License-Identifier: Apache-2.0
#pragma once
// wmma (sm_70 and newer): a warp loads, multiplies and stores fragments whose layout is the hardware's own.
// Only wmma of the same shape, type and layout may touch them; new kernels want mma.h or wgmma.h.
//   auto a = wmma_load_a<f16, 16, 16, 16>(w, p, pitch);   p: Ptr<shared or global, const f16>
//   auto acc = wmma_mma(w, a, b, wmma_zeros<f32, 16, 16, 16>(w));
//   wmma_store(w, out, acc, pitch);
// PTX ISA, "Warp-level matrix instructions: wmma".
#include "cgp/dsl/memory/ptr.h"
#include "cgp/dsl/mma/fragment.h"

namespace cgp::dsl {

enum class WmmaLayout : std::uint8_t { row, col };

namespace record {
/// Why PTX has no wmma of this shape with inputs of type t; empty = it has.
constexpr const char* wmma_reject(ptx::Mod t, int m, int n, int k) {
  using T = ptx::Mod;
  const bool k16 = k == 16 && ((m == 16 && n == 16) || (m == 8 && n == 32) || (m == 32 && n == 8));
  if (t == T::f16 || t == T::bf16 || t == T::s8 || t == T::u8)
    return k16 ? "" : "wmma of f16, bf16, s8 and u8 is m16n16k16, m8n32k16 or m32n8k16";
  if (t == T::tf32) return m == 16 && n == 16 && k == 8 ? "" : "wmma of tf32 is m16n16k8";
  if (t == T::f64) return m == 8 && n == 8 && k == 4 ? "" : "wmma of f64 is m8n8k4";
  return "wmma multiplies f16, bf16, tf32, s8, u8 or f64";
}
constexpr bool wmma_legal(ptx::Mod t, int m, int n, int k) { return !wmma_reject(t, m, n, k)[0]; }
constexpr bool wmma_accumulates(ptx::Mod in, ptx::Mod acc) {
  using T = ptx::Mod;
  if (in == T::f16) return acc == T::f32 || acc == T::f16;
  if (in == T::s8 || in == T::u8) return acc == T::s32;
  return in == T::f64 ? acc == T::f64 : acc == T::f32;
}
/// Registers of a fragment of rows x cols elements: f16 operands are held twice.
constexpr int wmma_registers(ptx::Mod t, int bits, int register_bits, int rows, int cols, bool operand) {
  return operand && t == ptx::Mod::f16 ? 8 : rows * cols * bits / (32 * register_bits);
}
struct WmmaPlace {
  WmmaLayout layout;
  int m, n, k;
  ptx::Mod space, type;  ///< space: Mod::generic for none
};
std::vector<Value> wmma_load(Kernel& k, Use use, const WmmaPlace& p, const record_impl::Address& from,
                             const Value& pitch, ptx::Mod register_type, int count, Here at);
void wmma_store(Kernel& k, const WmmaPlace& p, const record_impl::Address& to, const std::vector<Value>& v,
                const Value& pitch, Here at);
struct WmmaTypes {
  ptx::Mod a, b, c;
  WmmaLayout la, lb;
  int m, n, k;
};
void wmma_mma(Kernel& k, const WmmaTypes& t, const std::vector<Value>& a, const std::vector<Value>& b,
              const std::vector<Value>& acc, bool satfinite, Here at);
}  // namespace record

/// A fragment of an M x N x K product: A is M x K, B is K x N, the accumulator M x N.
template <Use U, class T, int M, int N, int K, WmmaLayout L = WmmaLayout::row>
class WmmaFragment {
  static constexpr int rows = U == Use::b ? K : M, cols = U == Use::a ? K : N;

 public:
  using elem = T;
  using reg = typename FragmentRegister<T, U>::type;
  static constexpr WmmaLayout layout = L;
  static constexpr int count = record::wmma_registers(T::mod, T::bits, reg::bits, rows, cols, U != Use::c);
  explicit WmmaFragment(std::vector<Value> regs) : regs_(std::move(regs)) {}
  WmmaFragment(WmmaFragment&&) = default;
  WmmaFragment(const WmmaFragment&) requires(U != Use::c) = default;
  const std::vector<Value>& values() const { return regs_; }
  /// Every element x becomes f(x); which element a register holds is not specified.
  template <class F>
      WmmaFragment map(F&& f) && requires(U == Use::c && T::bits >= 32) {
    std::vector<Value> out;
    for (const Value& v : regs_) {
      const std::size_t mark = v.kernel()->function().regs.size();
      const Val<reg> y = f(Val<reg>(v));
      out.push_back(record::own(*v.kernel(), y, mark));
    }
    return WmmaFragment(std::move(out));
  }

 private:
  std::vector<Value> regs_;
};
template <class T, int M, int N, int K, WmmaLayout L = WmmaLayout::row>
using WmmaA = WmmaFragment<Use::a, T, M, N, K, L>;
template <class T, int M, int N, int K, WmmaLayout L = WmmaLayout::col>
using WmmaB = WmmaFragment<Use::b, T, M, N, K, L>;
template <class T, int M, int N, int K>
using WmmaAcc = WmmaFragment<Use::c, T, M, N, K>;

namespace record {
template <class Space>
constexpr ptx::Mod wmma_space() {
  if constexpr (std::is_same_v<Space, generic>)
    return ptx::Mod::generic;
  else
    return Space::mod;
}
template <class F, Use U, int M, int N, int K, WmmaLayout L, class Space, class T>
F wmma_load_as(Warp& w, const Ptr<Space, T>& from, const Val<u32>& pitch, Here at) {
  using E = typename F::elem;
  static_assert(Ptr<Space, T>::elem_bytes == Elem<E>::bytes,
                "the pointer's elements have the size of the fragment's");
  return F(wmma_load(w.k, U, {L, M, N, K, wmma_space<Space>(), E::mod}, {from.base(), from.offset()}, pitch,
                     F::reg::mod, F::count, at));
}
}  // namespace record

/// M x K elements at `from`, `pitch` elements from row to row (column to column for WmmaLayout::col).
template <class T, int M, int N, int K, WmmaLayout L = WmmaLayout::row, class Space, class U>
WmmaA<T, M, N, K, L> wmma_load_a(Warp& w, const Ptr<Space, U>& from, const Val<u32>& pitch,
                                 Here at = Here::now()) {
  static_assert(record::wmma_legal(T::mod, M, N, K),
                "wmma has no such shape for this element type (wmma.h lists them)");
  return record::wmma_load_as<WmmaA<T, M, N, K, L>, Use::a, M, N, K, L>(w, from, pitch, at);
}
template <class T, int M, int N, int K, WmmaLayout L = WmmaLayout::col, class Space, class U>
WmmaB<T, M, N, K, L> wmma_load_b(Warp& w, const Ptr<Space, U>& from, const Val<u32>& pitch,
                                 Here at = Here::now()) {
  static_assert(record::wmma_legal(T::mod, M, N, K),
                "wmma has no such shape for this element type (wmma.h lists them)");
  return record::wmma_load_as<WmmaB<T, M, N, K, L>, Use::b, M, N, K, L>(w, from, pitch, at);
}
template <class T, int M, int N, int K, WmmaLayout L = WmmaLayout::row, class Space, class U>
WmmaAcc<T, M, N, K> wmma_load_c(Warp& w, const Ptr<Space, U>& from, const Val<u32>& pitch,
                                Here at = Here::now()) {
  return record::wmma_load_as<WmmaAcc<T, M, N, K>, Use::c, M, N, K, L>(w, from, pitch, at);
}
template <class T, int M, int N, int K>
WmmaAcc<T, M, N, K> wmma_zeros(Warp& w, Here at = Here::now()) {
  using A = WmmaAcc<T, M, N, K>;
  return A(record::zero_registers(w.k, A::reg::mod, A::count, at));
}
/// acc + a * b, in acc's registers.
template <class TA, class TB, class TC, int M, int N, int K, WmmaLayout LA, WmmaLayout LB>
[[nodiscard]] WmmaAcc<TC, M, N, K> wmma_mma(Warp& w, const WmmaFragment<Use::a, TA, M, N, K, LA>& a,
                                            const WmmaFragment<Use::b, TB, M, N, K, LB>& b,
                                            WmmaAcc<TC, M, N, K>&& acc, Here at = Here::now()) {
  static_assert(std::is_same_v<TA, TB>, "wmma multiplies fragments of one type");
  static_assert(record::wmma_accumulates(TA::mod, TC::mod),
                "wmma accumulates f16 in f32 or f16, bf16 and tf32 in f32, integers in s32, f64 in f64");
  record::wmma_mma(w.k, {TA::mod, TB::mod, TC::mod, LA, LB, M, N, K}, a.values(), b.values(), acc.values(),
                   false, at);
  return std::move(acc);
}
template <WmmaLayout L = WmmaLayout::row, class T, int M, int N, int K, class Space>
void wmma_store(Warp& w, const Ptr<Space, T>& to, const WmmaAcc<T, M, N, K>& acc, const Val<u32>& pitch,
                Here at = Here::now()) {
  record::wmma_store(w.k, {L, M, N, K, record::wmma_space<Space>(), T::mod}, {to.base(), to.offset()},
                     acc.values(), pitch, at);
}

template <class T, int M, int N, int K>
struct Carry<WmmaAcc<T, M, N, K>> {
  using S = WmmaAcc<T, M, N, K>;
  static S home(Kernel& k, S s) { return S(record::carry_home(k, s.values())); }
  static S settle(Kernel& k, S& home, S next) {
    record::carry_settle(k, home.values(), next.values());
    return S(home.values());
  }
  static S view(S& home) { return S(home.values()); }
};

}  // namespace cgp::dsl
