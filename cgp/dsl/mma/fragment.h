// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrices spread over the registers of a warp or warpgroup. Element type and shape fix the register count;
// accumulators are move-only, since mma and wgmma update their registers in place.
//   Fragment<Use, T, Rows, Cols>   one operand of one mma.sync      FragA FragB FragC
//   WarpAcc<T, M, N>               the accumulator of a warp        (blocks of 16 x 8)
//   Acc<T, M, N>                   the accumulator of a warpgroup   (blocks of 64 x N, wgmma)
// Layouts: PTX ISA, "Matrix fragments for mma.m16n8k16" and "wgmma register fragments".
#include <vector>

#include "cgp/dsl/core/carry.h"
#include "cgp/dsl/core/scope.h"
#include "cgp/dsl/core/val.h"

namespace cgp::dsl {

enum class Use : std::uint8_t { a, b, c };

/// The register type that holds elements of T: packed 32-bit words except for f32, s32 and f64.
template <class T, Use U>
struct FragmentRegister {
  using type = b32;
};
template <Use U>
struct FragmentRegister<f64, U> {
  using type = f64;
};
template <>
struct FragmentRegister<f32, Use::c> {
  using type = f32;
};
template <>
struct FragmentRegister<s32, Use::c> {
  using type = s32;
};

template <Use U, class T, int Rows, int Cols>
class Fragment {
 public:
  using elem = T;
  using reg = typename FragmentRegister<T, U>::type;
  static constexpr int rows = Rows, cols = Cols;
  static constexpr int count = Rows * Cols * T::bits / (32 * reg::bits);
  static_assert(Rows * Cols * T::bits % (32 * reg::bits) == 0,
                "a fragment fills whole registers of all 32 lanes");

  explicit Fragment(std::vector<Value> regs, Here at = Here::now()) : regs_(std::move(regs)) {
    if (int(regs_.size()) != count)
      throw BuildError(
          "a fragment has the registers its shape says", at,
          text::cat(regs_.size(), " given, ", Rows, "x", Cols, " of ", ptx::name(T::mod), " has ", count));
  }
  Val<reg> operator[](int i) const { return Val<reg>(regs_.at(std::size_t(i))); }
  const std::vector<Value>& values() const { return regs_; }

 private:
  std::vector<Value> regs_;
};
template <class T, int M, int K>
using FragA = Fragment<Use::a, T, M, K>;
template <class T, int K, int N>
using FragB = Fragment<Use::b, T, K, N>;
template <class T, int M, int N>
using FragC = Fragment<Use::c, T, M, N>;

/// The registers of an accumulator, owned: nobody else holds them, so instructions update them in place.
class AccRegs {
 public:
  explicit AccRegs(std::vector<Value> regs) : regs_(std::move(regs)) {}
  AccRegs(AccRegs&&) = default;
  AccRegs& operator=(AccRegs&&) = delete;
  const std::vector<Value>& values() const { return regs_; }
  AccRegs alias() const { return AccRegs(regs_); }  ///< for Carry only

 private:
  std::vector<Value> regs_;
};

namespace record {
std::vector<Value> fresh_registers(Kernel& k, ptx::Mod type, int count);
std::vector<Value> zero_registers(Kernel& k, ptx::Mod type, int count, Here at);
/// `next` where it was made after register number `mark` (then nobody else can hold it), else a copy.
Value own(Kernel& k, const Value& next, std::size_t mark);
std::vector<Value> carry_home(Kernel& k, const std::vector<Value>& v);
void carry_settle(Kernel& k, const std::vector<Value>& home, const std::vector<Value>& next);
/// Thread in the group, its row and first column inside a 16x8 (warp) or 64x8 (warpgroup) block.
struct AccOrigin {
  Val<u32> row, col;
};
AccOrigin warp_origin(Kernel& k);
AccOrigin warpgroup_origin(Kernel& k);
Value pack_pair(Kernel& k, ptx::Mod packed, const Value& low, const Value& high, Here at);
}  // namespace record

/// Row and column of this thread's first element in an accumulator of a warp or warpgroup. Its other elements:
/// Accumulator::operator[].
using AccOrigin = record::AccOrigin;
inline AccOrigin accumulator_origin(Warp& w) { return record::warp_origin(w.k); }
inline AccOrigin accumulator_origin(Warpgroup& wg) { return record::warpgroup_origin(wg.k); }

/// Two f32 -> one register of two T, `low` in the low half.
template <class T>
Val<b32> pack(const Val<f32>& low, const Val<f32>& high, Here at = Here::now()) {
  static_assert(std::is_same_v<T, bf16> || std::is_same_v<T, f16>, "pack<T>(low, high): T is bf16 or f16");
  return Val<b32>(record::pack_pair(*(low.kernel() ? low.kernel() : high.kernel()),
                                    std::is_same_v<T, bf16> ? ptx::Mod::bf16x2 : ptx::Mod::f16x2, low, high,
                                    at));
}

/// What Acc and WarpAcc share. `Block` rows x 8 columns is the unit whose two (row, row + 8) pairs a thread
/// holds.
template <class Self, class T, int M, int N, int BlockRows>
class Accumulator {
 public:
  using elem = T;
  using reg = typename FragmentRegister<T, Use::c>::type;
  static constexpr int rows = M, cols = N;
  static constexpr int threads = BlockRows == 64 ? 128 : 32;
  static constexpr int count = M * N * T::bits / (threads * reg::bits);
  static constexpr bool packed = T::bits == 16;

  explicit Accumulator(AccRegs regs) : regs_(std::move(regs)) {}
  const std::vector<Value>& values() const { return regs_.values(); }
  const AccRegs& owned() const { return regs_; }

  /// f(row, col, value, value at col + 1) for every pair this thread holds; row and col are relative to the
  /// accumulator's first element. Pairs come column block by column block.
  template <class S, class F>
      void each_pair(S& scope, F&& f) && requires(!packed) {
    const auto origin = Self::origin(scope);
    for (int mi = 0; mi < M / BlockRows; ++mi)
      for (int nj = 0; nj < N / 8; ++nj)
        for (int h = 0; h < 2; ++h) {
          const std::size_t i = index(mi, nj) + std::size_t(2 * h);
          f(origin.row + Val<u32>(mi * BlockRows + 8 * h), origin.col + Val<u32>(8 * nj),
            Val<reg>(values()[i]), Val<reg>(values()[i + 1]));
        }
  }
  /// The same with both elements in one register (f16 accumulators).
  template <class S, class F>
      void each_packed(S& scope, F&& f) && requires packed {
    const auto origin = Self::origin(scope);
    for (int mi = 0; mi < M / BlockRows; ++mi)
      for (int nj = 0; nj < N / 8; ++nj)
        for (int h = 0; h < 2; ++h)
          f(origin.row + Val<u32>(mi * BlockRows + 8 * h), origin.col + Val<u32>(8 * nj),
            Val<b32>(values()[(index(mi, nj) + std::size_t(2 * h)) / 2]));
  }
  /// Every element x becomes f(x).
  template <class F>
      Self map(F&& f) && requires(!packed) {
    return std::move(*this).transform([&](int, Val<reg> x) { return f(x); });
  }
  /// Every element x becomes f(x, half): half 0 is the thread's row r, 1 its row r + 8 (of each block).
  template <class F>
      Self map_rows(F&& f) && requires(!packed) {
    return std::move(*this).transform([&](int i, Val<reg> x) { return f(x, (i >> 1) & 1); });
  }
  /// Element i of this thread: row + 8 * ((i >> 1) & 1), column 8 * (i >> 2) + (i & 1) of its first.
  Val<reg> operator[](int i) const { return Val<reg>(values().at(std::size_t(i))); }

 protected:
  static constexpr std::size_t index(int mi, int nj) { return std::size_t((mi * (N / 8) + nj) * 4); }
  template <class F>
  Self transform(F&& f) && {
    std::vector<Value> out;
    for (std::size_t i = 0; i < values().size(); ++i) {
      Kernel& k = *values()[i].kernel();
      const std::size_t mark = k.function().regs.size();
      const Val<reg> y = f(int(i), Val<reg>(values()[i]));
      out.push_back(record::own(k, y, mark));
    }
    return Self(AccRegs(std::move(out)));
  }
  AccRegs regs_;
};

/// f32, s32, f64 or f16 accumulator of one warp: mma.sync blocks of 16 x 8.
template <class T, int M, int N>
class WarpAcc : public Accumulator<WarpAcc<T, M, N>, T, M, N, 16> {
  static_assert(M % 16 == 0 && N % 8 == 0, "a warp's accumulator is made of 16 x 8 blocks");
  using Base = Accumulator<WarpAcc<T, M, N>, T, M, N, 16>;

 public:
  using Base::Base;
  static record::AccOrigin origin(Warp& w) { return record::warp_origin(w.k); }
};

/// f32, s32 or f16 accumulator of one warpgroup: wgmma blocks of 64 x N.
template <class T, int M, int N>
class Acc : public Accumulator<Acc<T, M, N>, T, M, N, 64> {
  static_assert(M % 64 == 0 && N % 8 == 0, "a warpgroup's accumulator is made of 64-row blocks, N % 8 == 0");
  using Base = Accumulator<Acc<T, M, N>, T, M, N, 64>;

 public:
  using Base::Base;
  static record::AccOrigin origin(Warpgroup& wg) { return record::warpgroup_origin(wg.k); }
};

/// An accumulator whose first product overwrites it (scale-d = 0): no register is zeroed.
template <class T, int M, int N>
struct FreshAcc {
  AccRegs regs;
};

template <class AccT>
struct AccCarry {
  static AccT home(Kernel& k, AccT s) { return AccT(AccRegs(record::carry_home(k, s.values()))); }
  static AccT settle(Kernel& k, AccT& home, AccT next) {
    record::carry_settle(k, home.values(), next.values());
    return AccT(home.owned().alias());
  }
  static AccT view(AccT& home) { return AccT(home.owned().alias()); }
};
template <class T, int M, int N>
struct Carry<WarpAcc<T, M, N>> : AccCarry<WarpAcc<T, M, N>> {};
template <class T, int M, int N>
struct Carry<Acc<T, M, N>> : AccCarry<Acc<T, M, N>> {};

/// All elements zero.
template <class T, int M, int N>
WarpAcc<T, M, N> zeros(Warp& w, Here at = Here::now()) {
  using A = WarpAcc<T, M, N>;
  return A(AccRegs(record::zero_registers(w.k, A::reg::mod, A::count, at)));
}
template <class T, int M, int N>
Acc<T, M, N> zeros(Warpgroup& wg, Here at = Here::now()) {
  using A = Acc<T, M, N>;
  return A(AccRegs(record::zero_registers(wg.k, A::reg::mod, A::count, at)));
}
/// Undefined elements: only a product that overwrites may come first.
template <class T, int M, int N>
FreshAcc<T, M, N> fresh(Warpgroup& wg) {
  using A = Acc<T, M, N>;
  return {AccRegs(record::fresh_registers(wg.k, A::reg::mod, A::count))};
}

}  // namespace cgp::dsl
