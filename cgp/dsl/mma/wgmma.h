// SPDX-License-Identifier: Apache-2.0
#pragma once
// wgmma (sm_90a): asynchronous products of a warpgroup, as typestates.
//   auto first = wgmma(wg, fresh<f32, 64, 256>(wg), ring.take(wg));
//       the tensor core owns accumulator and stage
//   auto next = std::move(first).then(wg, ring.take(wg));
//       issues the next product, waits for this one, frees its stage
//   auto acc = std::move(next).wait(wg);
//       only now is it readable
// Operands: a stage of a Ring (A and B, or B alone), tiles in shared memory, A in registers (RegOperand).
// Tiles are K-major ([M or N][K]) unless said otherwise: wgmma<Major::k, Major::mn>(...) reads B as [K][N].
// An InFlight may go round a loop; several may be in flight.
// PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate instructions".
#include "cgp/dsl/mma/fragment.h"
#include "cgp/dsl/pipeline/ring.h"

namespace cgp::dsl {

/// What of a product is computed, where tiles are larger than what they hold (the rest is 0); 0: all.
struct WgmmaPart {
  int depth = 0;    ///< of the summed dimension, whole instructions
  int columns = 0;  ///< of the accumulator, a multiple of 8; the others stay what they were
};

namespace record {
/// Why PTX has no such wgmma; empty = it has. `n` is the instruction's N.
constexpr const char* wgmma_reject(ptx::Mod a, ptx::Mod b, ptx::Mod d, int n, Major ma, Major mb) {
  using T = ptx::Mod;
  const bool fp8 = (a == T::e4m3 || a == T::e5m2) && (b == T::e4m3 || b == T::e5m2);
  const bool int8 = (a == T::s8 || a == T::u8) && (b == T::s8 || b == T::u8);
  const bool b16 = (a == T::f16 || a == T::bf16) && a == b, tf32 = a == T::tf32 && b == a;
  if (!fp8 && !int8 && !b16 && !tf32)
    return "wgmma multiplies f16, bf16, tf32, fp8 (any mix of e4m3, e5m2) or s8/u8";
  if (!b16 && (ma == Major::mn || mb == Major::mn))
    return "only 16-bit operands may be MN-major in shared memory";
  if (int8) {
    if (d != T::s32) return "8-bit integer wgmma accumulates s32";
    if (n % 16 != 0 && n != 8 && n != 24)
      return "8-bit integer wgmma has N = 8, 16, 24, 32 and then steps of 16";
  } else if (d != T::f32 && !(d == T::f16 && (a == T::f16 || fp8))) {
    return "wgmma accumulates f32, or f16 for f16 and fp8 operands";
  }
  return n >= 8 && n <= 256 && n % 8 == 0 ? "" : "wgmma has N = 8 to 256 in steps of 8";
}
constexpr bool wgmma_legal(ptx::Mod a, ptx::Mod b, ptx::Mod d, int n, Major ma, Major mb) {
  return !wgmma_reject(a, b, d, n, ma, mb)[0];
}
/// N of one instruction of an accumulator `n` wide: the fewest equal parts of at most 256.
constexpr int wgmma_n(int n) { return n / ((n + 255) / 256); }

struct WgmmaOperand {
  std::vector<Value> regs;               ///< A in registers: 4 per 64 rows and K step; else empty
  std::optional<SharedAddress> address;  ///< else the tile
  TileLayout tile;
  Major major = Major::k;
};
struct WgmmaGroup {
  ptx::Mod a, b, d;
  int m, n, k, k_inst;  ///< elements
  WgmmaPart part = {};
};
/// What the first product does with the accumulator.
struct ScaleD {
  bool overwrite = false;
  std::optional<Value> accumulate;  ///< a run-time predicate: false overwrites
};
/// Fence, all products of one stage, commit. Returns the group's number.
std::size_t wgmma_group(Kernel& k, const WgmmaGroup& g, const WgmmaOperand& a, const WgmmaOperand& b,
                        const std::vector<Value>& acc, const ScaleD& first, Here at);
/// Groups committed after `group` that have certainly been committed when this point is reached.
std::size_t wgmma_younger(const Kernel& k, std::size_t group);
void wgmma_wait(Kernel& k, std::size_t pending, Here at);
[[noreturn]] void wgmma_age_error(std::size_t before, std::size_t after, Here at);
std::vector<Value> to_a_registers(Kernel& k, ptx::Mod packed, const std::vector<Value>& acc, int m, int n,
                                  Here at);

template <class T>
struct IsSmemTile : std::false_type {};
template <class TileT, int P>
struct IsSmemTile<SmemTile<TileT, P>> : std::true_type {};
}  // namespace record

/// An M x K operand A in the registers of a warpgroup (wgmma's register form).
template <class T, int M, int K>
class RegOperand {
  static_assert(M % 64 == 0 && K * T::bits % 256 == 0,
                "A in registers: M % 64 == 0, K whole instructions (32 bytes)");

 public:
  using elem = T;
  static constexpr int rows = M, cols = K;
  static constexpr int count = M * K * T::bits / (128 * 32);
  explicit RegOperand(std::vector<Value> regs, Here at = Here::now()) : regs_(std::move(regs)) {
    if (int(regs_.size()) != count)
      throw BuildError("an operand in registers has the registers its shape says", at,
                       text::cat(regs_.size(), " given, ", count, " needed"));
  }
  const std::vector<Value>& values() const { return regs_; }

 private:
  std::vector<Value> regs_;
};
/// The accumulator of one product as operand A of the next (P of P*V): packed to 16 bits, no shuffles.
template <class T, int M, int N>
RegOperand<T, M, N> to_operand(const Acc<f32, M, N>& acc, Here at = Here::now()) {
  static_assert((std::is_same_v<T, bf16> || std::is_same_v<T, f16>)&&N % 16 == 0,
                "to_operand<T>(acc): T is bf16 or f16 and N a multiple of 16");
  return RegOperand<T, M, N>(
      record::to_a_registers(*acc.values()[0].kernel(),
                             std::is_same_v<T, bf16> ? ptx::Mod::bf16x2 : ptx::Mod::f16x2, acc.values(), M, N,
                             at),
      at);
}

namespace record {
/// Whether a typestate was used up or moved from.
class Spent {
 public:
  Spent() = default;
  Spent(Spent&& o) noexcept : on_(std::exchange(o.on_, true)) {}
  bool set() { return std::exchange(on_, true); }  ///< whether it was before

 private:
  bool on_ = false;
};
}  // namespace record

/// A product under way: the tensor core owns the accumulator and `Slots` ring stages.
template <class AccT, int Slots>
class [[nodiscard]] InFlight {
 public:
  using Tokens = std::vector<record::StageToken>;
  InFlight(AccT acc, Tokens slots, std::size_t group, Here at)
      : acc_(std::move(acc)), slots_(std::move(slots)), group_(group), at_(at) {}
  InFlight(InFlight&&) = default;

  /// Waits until this product is done (younger ones may go on), frees its stages, gives the accumulator back.
  [[nodiscard]] AccT wait(Warpgroup& wg, Here at = Here::now()) && {
    wg.converged("wgmma.wait_group", at);
    finish(wg, at);
    return std::move(acc_);
  }
  /// Issues the next product into the same accumulator, then waits for this one and frees its stages.
  template <Major MA = Major::k, Major MB = Major::k, class Stage>
  [[nodiscard]] InFlight then(Warpgroup& wg, Stage next, Here at = Here::now()) &&;
  template <Major MA = Major::k, Major MB = Major::k, class A, class B>
  requires(!std::is_same_v<B, Here>) [[nodiscard]] InFlight
      then(Warpgroup& wg, A a, B b, Here at = Here::now()) &&;

 private:
  friend struct Carry<InFlight>;
  void finish(Warpgroup& wg, Here at) {
    if (waited_.set())
      throw BuildError("a product is waited for once", at,
                       text::cat("it was issued at ", at_.file, ":", at_.line),
                       "use the accumulator or the product that came back");
    record::wgmma_wait(wg.k, record::wgmma_younger(wg.k, group_), at);
    for (auto& s : slots_) std::move(s).release(at);
    slots_.clear();
  }
  AccT acc_;
  Tokens slots_;
  std::size_t group_;          ///< index into Kernel::wgmma_groups
  std::size_t entry_age_ = 0;  ///< of a loop's home state: groups that were younger at entry
  record::Spent waited_;
  Here at_;
};

template <class AccT, int Slots>
struct Carry<InFlight<AccT, Slots>> {
  using S = InFlight<AccT, Slots>;
  static S home(Kernel& k, S s) {
    typename S::Tokens t;
    for (auto& x : s.slots_) t.push_back(std::move(x).home(k));
    // In the loop this group counts as the youngest but for those that were already younger at entry.
    const std::size_t age = record::wgmma_younger(k, s.group_);
    S h(Carry<AccT>::home(k, std::move(s.acc_)), std::move(t), k.wgmma_groups.size() - 1 - age, s.at_);
    h.entry_age_ = age;
    return h;
  }
  static S settle(Kernel& k, S& home, S next) {
    const std::size_t now = record::wgmma_younger(k, next.group_);
    const std::size_t entry = home.entry_age_;
    if (now < entry) record::wgmma_age_error(entry, now, next.at_);
    typename S::Tokens t;
    for (std::size_t i = 0; i < home.slots_.size(); ++i)
      t.push_back(home.slots_[i].settle(k, next.slots_[i]));
    return S(Carry<AccT>::settle(k, home.acc_, std::move(next.acc_)), std::move(t),
             k.wgmma_groups.size() - 1 - entry, next.at_);
  }
  static S view(S& home) {
    typename S::Tokens t;
    for (auto& x : home.slots_) t.push_back(x.view());
    return S(Carry<AccT>::view(home.acc_), std::move(t), home.group_, home.at_);
  }
};

namespace record {
template <class AccT>
struct AccTraits;
template <class T, int M, int N>
struct AccTraits<Acc<T, M, N>> {
  using type = Acc<T, M, N>;
  static constexpr bool is_fresh = false;
  static AccRegs regs(Acc<T, M, N>&& a) { return a.owned().alias(); }
};
template <class T, int M, int N>
struct AccTraits<FreshAcc<T, M, N>> {
  using type = Acc<T, M, N>;
  static constexpr bool is_fresh = true;
  static AccRegs regs(FreshAcc<T, M, N>&& a) { return std::move(a.regs); }
};

/// The part of a shared tile that this warpgroup multiplies: all of it, or its own share by index.
template <Major M, int Extent, class Smem>
WgmmaOperand shared_operand(Warpgroup& wg, const Smem& t) {
  using TileT = typename Smem::tile;
  constexpr TileLayout layout = Smem::layout;
  constexpr int have = M == Major::k ? TileT::rows : TileT::cols;
  static_assert(have % Extent == 0,
                "the tile must be a whole number of the accumulator's rows (A) or columns (B)");
  static_assert(layout.swizzle != Swizzle::none || layout.span() == 16,
                "wgmma reads swizzled tiles (b32, b64, b128) or 16-byte panels (b16), not plain rows");
  if constexpr (have == Extent) {
    return {{}, SharedAddress{t.base(), t.offset()}, layout, M};
  } else if constexpr (M == Major::k) {
    const auto v = t.template rows<Extent>(wg.index * Val<u32>(Extent));
    return {{}, SharedAddress{v.base(), v.offset()}, decltype(v)::layout, M};
  } else {
    const auto v = t.template cols<Extent>(wg.index * Val<u32>(Extent));
    return {{}, SharedAddress{v.base(), v.offset()}, decltype(v)::layout, M};
  }
}

/// One argument of wgmma: what it is, and what it owns.
template <class O>
struct WgmmaArg;
template <class TileT, int P>
struct WgmmaArg<SmemTile<TileT, P>> {
  using elem = typename TileT::elem;
  static constexpr bool in_registers = false;
  static constexpr int slots = 0;
  static constexpr int mn(Major m) { return m == Major::k ? TileT::rows : TileT::cols; }
  static constexpr int k(Major m) { return m == Major::k ? TileT::cols : TileT::rows; }
  template <Major M, int Extent>
  static WgmmaOperand operand(Warpgroup& wg, const SmemTile<TileT, P>& t) {
    return shared_operand<M, Extent>(wg, t);
  }
  static void take(const SmemTile<TileT, P>&, std::vector<StageToken>&) {}
};
template <class R, class TileT>
struct WgmmaArg<Filled<R, TileT>> : WgmmaArg<SmemTile<TileT>> {
  static constexpr int slots = 1;
  template <Major M, int Extent>
  static WgmmaOperand operand(Warpgroup& wg, const Filled<R, TileT>& t) {
    return shared_operand<M, Extent>(wg, t.template get<0>());
  }
  static void take(Filled<R, TileT>& t, std::vector<StageToken>& out) { out.push_back(std::move(t).token()); }
};
template <class T, int M, int K>
struct WgmmaArg<RegOperand<T, M, K>> {
  using elem = T;
  static constexpr bool in_registers = true;
  static constexpr int slots = 0;
  static constexpr int mn(Major) { return M; }
  static constexpr int k(Major) { return K; }
  template <Major, int Extent>
  static WgmmaOperand operand(Warpgroup&, const RegOperand<T, M, K>& r) {
    static_assert(Extent == M, "the operand in registers must have the accumulator's rows");
    return {r.values(), std::nullopt, {}, Major::k};
  }
  static void take(const RegOperand<T, M, K>&, std::vector<StageToken>&) {}
};

/// Checks and records one group; the accumulator it now owns, and its number.
template <Major MA, Major MB, class AccT, class A, class B>
auto issue(Warpgroup& wg, AccT acc, const A& a, const B& b, std::optional<Value> accumulate, Here at,
           const WgmmaPart& part = {}) {
  using Traits = AccTraits<AccT>;
  using Result = typename Traits::type;
  using ArgA = WgmmaArg<A>;
  using ArgB = WgmmaArg<B>;
  using TA = typename ArgA::elem;
  using TB = typename ArgB::elem;
  constexpr int k = ArgA::k(MA), n = wgmma_n(Result::cols), k_inst = 256 / TA::bits;
  static_assert(!ArgB::in_registers, "only operand A may come from registers");
  static_assert(ArgA::k(MA) == ArgB::k(MB), "A and B tiles disagree on the K extent");
  static_assert(ArgA::mn(MA) % Result::rows == 0, "accumulator rows must divide the rows of the A tile (M)");
  static_assert(ArgB::mn(MB) % Result::cols == 0,
                "accumulator width must equal the rows of the B tile (N), or divide them among warpgroups");
  static_assert(ArgA::mn(MA) == Result::rows || ArgB::mn(MB) == Result::cols,
                "both tiles are larger than the accumulator: say which part with rows<M>() or cols<N>()");
  static_assert(k % k_inst == 0, "the tiles' K extent must be whole instructions (32 bytes)");
  static_assert(wgmma_legal(TA::mod, TB::mod, Result::elem::mod, n, MA, MB),
                "wgmma has no such combination of element types, accumulator, N and major-ness");
  const WgmmaOperand oa = ArgA::template operand<MA, Result::rows>(wg, a);
  const WgmmaOperand ob = ArgB::template operand<MB, Result::cols>(wg, b);
  Result out(Traits::regs(std::move(acc)));
  const auto group =
      wgmma_group(wg.k, {TA::mod, TB::mod, Result::elem::mod, Result::rows, Result::cols, k, k_inst, part},
                  oa, ob, out.values(), {Traits::is_fresh, std::move(accumulate)}, at);
  return std::pair<Result, std::size_t>(std::move(out), group);
}

template <Major MA, Major MB, class AccT, class R, class TileA, class TileB>
auto issue_stage(Warpgroup& wg, AccT acc, Filled<R, TileA, TileB> stage, std::optional<Value> accumulate,
                 Here at) {
  auto r =
      issue<MA, MB>(wg, std::move(acc), stage.template get<0>(), stage.template get<1>(), accumulate, at);
  std::vector<StageToken> slots;
  slots.push_back(std::move(stage).token());
  return InFlight<typename AccTraits<AccT>::type, 1>(std::move(r.first), std::move(slots), r.second, at);
}
}  // namespace record

/// acc + A * B over one stage that holds both tiles; a FreshAcc is overwritten.
template <Major MA = Major::k, Major MB = Major::k, class AccT, class R, class TileA, class TileB>
auto wgmma(Warpgroup& wg, AccT acc, Filled<R, TileA, TileB> stage, Here at = Here::now()) {
  return record::issue_stage<MA, MB>(wg, std::move(acc), std::move(stage), std::nullopt, at);
}
/// acc + A * B; each operand is a SmemTile, a stage that holds it, or (A) a RegOperand.
template <Major MA = Major::k, Major MB = Major::k, class AccT, class A, class B>
requires(!std::is_same_v<B, Here>) auto wgmma(Warpgroup& wg, AccT acc, A a, B b, const WgmmaPart& part,
                                              Here at = Here::now()) {
  auto r = record::issue<MA, MB>(wg, std::move(acc), a, b, std::nullopt, at, part);
  std::vector<record::StageToken> slots;
  record::WgmmaArg<A>::take(a, slots);
  record::WgmmaArg<B>::take(b, slots);
  return InFlight<typename record::AccTraits<AccT>::type,
                  record::WgmmaArg<A>::slots + record::WgmmaArg<B>::slots>(std::move(r.first),
                                                                           std::move(slots), r.second, at);
}
template <Major MA = Major::k, Major MB = Major::k, class AccT, class A, class B>
requires(!std::is_same_v<B, Here>) auto wgmma(Warpgroup& wg, AccT acc, A a, B b, Here at = Here::now()) {
  return wgmma<MA, MB>(wg, std::move(acc), std::move(a), std::move(b), WgmmaPart{}, at);
}
/// The same as the first where `accumulate` holds; elsewhere the product overwrites the accumulator.
template <Major MA = Major::k, Major MB = Major::k, class T, int M, int N, class R, class TileA, class TileB>
auto wgmma_if(Warpgroup& wg, Acc<T, M, N> acc, Filled<R, TileA, TileB> stage, const Val<pred>& accumulate,
              Here at = Here::now()) {
  return record::issue_stage<MA, MB>(wg, std::move(acc), std::move(stage), Value(accumulate), at);
}

template <class AccT, int Slots>
template <Major MA, Major MB, class Stage>
InFlight<AccT, Slots> InFlight<AccT, Slots>::then(Warpgroup& wg, Stage next, Here at) && {
  InFlight issued = wgmma<MA, MB>(wg, std::move(acc_), std::move(next), at);
  finish(wg, at);
  return issued;
}
template <class AccT, int Slots>
template <Major MA, Major MB, class A, class B>
requires(!std::is_same_v<B, Here>) InFlight<AccT, Slots> InFlight<AccT, Slots>::then(Warpgroup& wg, A a, B b,
                                                                                     Here at) && {
  InFlight issued = wgmma<MA, MB>(wg, std::move(acc_), std::move(a), std::move(b), at);
  finish(wg, at);
  return issued;
}

}  // namespace cgp::dsl
