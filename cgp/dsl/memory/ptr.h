// SPDX-License-Identifier: Apache-2.0
#pragma once
// Pointers whose address space is a type, and the loads and stores through them. ld/st are spelled, never an
// operator: memory traffic can be counted by reading. Indices count vectors of N elements and are widened to
// 64 bits before they are scaled; a C++ integer index costs nothing (it becomes the address offset).
//   In<T>                                            read-only for the whole launch: ld.global.nc
//   Out<T>, InOut<T>                                 plain global memory
//   Disjoint<T>                                      written only at a ThreadIndex
//   Ptr<shared, T>, Ptr<local, T>, Ptr<const_, const T>   the other spaces
#include "cgp/dsl/core/flow.h"
#include "cgp/dsl/core/reg_group.h"

namespace cgp::dsl {

/// An index for memory: u32/s32/u64/s64 Val, or a C++ integer.
template <class I>
concept Index = std::integral<I> ||(IsVal<I>&& Integer<typename I::elem>&& I::elem::bits >= 32);

template <class Space>
inline constexpr bool is_narrow_space =
    std::is_same_v<Space, shared> || std::is_same_v<Space, shared_cluster>;

template <class Space>
inline constexpr bool is_global_like = std::is_same_v<Space, global> || std::is_same_v<Space, generic>;
template <class Tag>
inline constexpr bool is_cache_word =
    has_tag<Tag, nc, ca, cg, cs, lu, cv, wb, wt, evict_first, evict_last, evict_normal, evict_unchanged,
            no_allocate, L2_64B, L2_128B, L2_256B, L2_evict_first, L2_evict_last, L2_evict_normal>;

namespace record_impl {
/// An address: base register (32 or 64 bits) plus a byte offset.
struct Address {
  Value base;
  std::int64_t offset;
};
Address index_address(const Address& a, const Value& index, int stride_bytes, Here at);
ptx::Operand address_operand(Kernel& k, const Address& a, int access_bytes, Here at);
struct Access {
  ptx::Mods mods;       ///< order, space, cache words
  ptx::Mod type;        ///< element type in memory
  int count, bytes;     ///< elements, bytes of one element
  const Value* policy;  ///< L2 cache policy, or null
};
void load(Kernel& k, const Access& a, const Address& from, std::vector<Value>& out, ptx::Mod result,
          Uniform u, Here at);
void store(Kernel& k, const Access& a, const Address& to, const std::vector<Value>& v, Here at);
}  // namespace record_impl

/// An L2 cache policy made by createpolicy(); pass it to ld/st with `cache_hint(policy)`.
struct CachePolicy {
  Val<b64> bits;
};

template <class Space, class T>
class Ptr {
 public:
  using Bare = std::remove_const_t<T>;
  using space = Space;
  static constexpr bool narrow = is_narrow_space<Space>;
  using Address = Val<std::conditional_t<narrow, u32, u64>>;
  static constexpr int elem_bytes = Elem<Bare>::bytes;
  static_assert(Element<Bare> && Bare::bits >= 8,
                "a pointer points to whole bytes: use a packed type (e2m1x2, ...)");

  explicit Ptr(const Address& base, std::int64_t offset = 0, bool constant = false)
      : base_(base), offset_(offset), constant_(constant) {}
  /// Out<T> may be read through as In-less const pointer; nothing may be written through it.
  operator Ptr<Space, const T>() const requires(!std::is_const_v<T>) {  // NOLINT: adding const is safe
    return Ptr<Space, const T>(base_, offset_, false);
  }

  /// The pointer `i` elements further: one mad, or nothing for a C++ integer.
  template <Index I>
  Ptr at(const I& i, Here here = Here::now()) const {
    const auto a = indexed(i, elem_bytes, here);
    return Ptr(Address(a.base), a.offset, constant_);
  }
  /// The same bytes as elements of another type.
  template <class U>
  Ptr<Space, std::conditional_t<std::is_const_v<T>, const U, U>> as() const {
    return Ptr<Space, std::conditional_t<std::is_const_v<T>, const U, U>>(base_, offset_, constant_);
  }
  /// The address as a number (32 bits in shared memory, 64 elsewhere).
  Address address(Here at = Here::now()) const {
    if (offset_ == 0) return base_;
    return Address(record_impl::binary(ptx::Op::add, {Address::elem::mod}, Address::elem::mod, base_,
                                       Address(offset_), at));
  }

  /// Element i; tags are PTX's words in PTX order: p.ld<acquire, gpu>(i), p.ld<evict_last>(i).
  template <class... Tags, Index I = int>
  Val<Bare> ld(const I& i = 0, Here at = Here::now()) const {
    return load<1, Tags...>(i, nullptr, at).template get<0>();
  }
  /// Elements N*i .. N*i+N-1 in as few accesses as their size allows (16 bytes each; the address must be
  /// aligned).
  template <int N, class... Tags, Index I = int>
  RegGroup<Bare, N> ld(const I& i = 0, Here at = Here::now()) const {
    return load<N, Tags...>(i, nullptr, at);
  }
  template <int N, class... Tags, Index I = int>
  RegGroup<Bare, N> ld_hint(const CachePolicy& policy, const I& i = 0, Here at = Here::now()) const {
    return load<N, Tags...>(i, &policy.bits, at);
  }
  /// The load happens only where p holds; elsewhere the result is `otherwise`.
  template <int N = 1, class... Tags, Index I>
  RegGroup<Bare, N> ld_if(const Val<pred>& p, const I& i, const Val<Bare>& otherwise,
                          Here at = Here::now()) const {
    Kernel& k = *kernel();
    k.at(at);
    std::vector<Value> home;
    home.reserve(N);
    for (int j = 0; j < N; ++j) home.push_back(k.copy(otherwise).with(Uniform::thread));
    const auto a = indexed(i, elem_bytes * N, at);
    k.guarded(p, [&] {
      record_impl::load(k, access<true, Tags...>(N, nullptr), a, home, Bare::mod, Uniform::thread, at);
    });
    return RegGroup<Bare, N>::from(home);
  }

  template <class... Tags, Index I>
  void st(const I& i, const std::type_identity_t<Val<Bare>>& v, Here at = Here::now()) const
      requires(!std::is_const_v<T>) {
    store<Tags...>(i, {v}, 1, nullptr, at);
  }
  template <int N, class... Tags, Index I>
  void st(const I& i, const RegGroup<Bare, N>& v, Here at = Here::now()) const requires(!std::is_const_v<T>) {
    store<Tags...>(i, v.values(), N, nullptr, at);
  }
  template <int N, class... Tags, Index I>
  void st_hint(const CachePolicy& policy, const I& i, const RegGroup<Bare, N>& v, Here at = Here::now()) const
      requires(!std::is_const_v<T>) {
    store<Tags...>(i, v.values(), N, &policy.bits, at);
  }
  template <int N = 1, class... Tags, Index I>
  void st_if(const Val<pred>& p, const I& i, const RegGroup<Bare, N>& v, Here at = Here::now()) const
      requires(!std::is_const_v<T>) {
    Kernel& k = *kernel();
    k.at(at);
    const auto a = indexed(i, elem_bytes * N, at);
    std::vector<Value> in;
    for (const Value& x : v.values()) in.push_back(Value(&k, k.register_of(x), x.type(), x.uniform()));
    k.guarded(p, [&] { record_impl::store(k, access<false, Tags...>(N, nullptr), a, in, at); });
  }
  template <class... Tags, Index I>
  void st_if(const Val<pred>& p, const I& i, const std::type_identity_t<Val<Bare>>& v,
             Here at = Here::now()) const requires(!std::is_const_v<T>) {
    st_if<1, Tags...>(p, i, RegGroup<Bare, 1>(v), at);
  }

  Kernel* kernel() const { return base_.kernel(); }
  const Address& base() const { return base_; }
  std::int64_t offset() const { return offset_; }
  /// For instructions of the library: the address operand of element i.
  template <Index I>
  record_impl::Address indexed(const I& i, int stride, Here at) const {
    const record_impl::Address a{base_, offset_};
    if constexpr (std::integral<I>) {
      return {base_, offset_ + std::int64_t(i) * stride};
    } else {
      static_assert(!narrow || I::elem::bits == 32,
                    "shared memory has 32-bit addresses: index it with 32 bits");
      return record_impl::index_address(a, i, stride, at);
    }
  }

 private:
  template <bool IsLoad, class... Tags>
  record_impl::Access access(int n, const Value* policy) const {
    static_assert((!Element<Tags> && ...),
                  "ld/st take ordering, scope and cache words; the type follows from the pointer");
    static_assert(IsLoad || !has_tag<acquire, Tags...>,
                  "a store is never acquire: st<release, ...> or st<relaxed, ...>");
    static_assert(!IsLoad || !has_tag<release, Tags...>,
                  "a load is never release: ld<acquire, ...> or ld<relaxed, ...>");
    static_assert(IsLoad || !has_tag<nc, Tags...>, "st has no .nc: only loads of read-only data do");
    static_assert(is_global_like<Space> || (!is_cache_word<Tags> && ...),
                  "cache words are for global memory: shared and local accesses take none");
    ptx::Mods m;
    // PTX order: [order] [scope] [space] [cache words] [vector] [type]
    constexpr bool ordered =
        has_tag<acquire, Tags...> || has_tag<relaxed, Tags...> || has_tag<release, Tags...>;
    static_assert(!(ordered && has_tag<nc, Tags...>), "ld.nc is for data nobody writes: it has no order");
    const auto early = [](ptx::Mod t) {
      using enum ptx::Mod;
      return t == acquire || t == relaxed || t == release || t == volatile_ || t == weak || t == mmio ||
             t == cta || t == cluster || t == gpu || t == sys;
    };
    [[maybe_unused]] const auto add = [&](ptx::Mod t, bool first) {
      if (early(t) == first && t != ptx::Mod::nc) m.push_back(t);
    };
    (add(Tags::mod, true), ...);
    if constexpr (!std::is_same_v<Space, generic>) m.push_back(Space::mod);
    const bool can_nc =
        !ordered && !has_tag<volatile_, Tags...> && !has_tag<weak, Tags...> && !has_tag<mmio, Tags...>;
    if (IsLoad && (has_tag<nc, Tags...> || (constant_ && can_nc && std::is_same_v<Space, global>)))
      m.push_back(ptx::Mod::nc);
    (add(Tags::mod, false), ...);
    if (policy) m.push_back(ptx::Mod::L2_cache_hint);
    return {m, memory_mod(Bare::mod, Bare::bits), n, elem_bytes, policy};
  }
  template <int N, class... Tags, class I>
  RegGroup<Bare, N> load(const I& i, const Value* policy, Here at) const {
    static_assert(N >= 1 && N <= 64 && (N & (N - 1)) == 0, "vectors have 1, 2, 4, 8 ... elements");
    Kernel& k = *kernel();
    k.at(at);
    Uniform u = Uniform::thread;
    if (constant_) {  // nobody writes it: the same address gives the same value
      u = base_.uniform();
      if constexpr (IsVal<I>) u = min_of(u, i.uniform());
    }
    const auto a = indexed(i, elem_bytes * N, at);
    std::vector<Value> out;
    record_impl::load(k, access<true, Tags...>(N, policy), a, out, Bare::mod, u, at);
    return RegGroup<Bare, N>::from(out);
  }
  template <class... Tags, class I>
  void store(const I& i, const std::vector<Value>& v, int n, const Value* policy, Here at) const {
    Kernel& k = *kernel();
    k.at(at);
    const auto a = indexed(i, elem_bytes * n, at);
    record_impl::store(k, access<false, Tags...>(n, policy), a, v, at);
  }

  Address base_;
  std::int64_t offset_;
  bool constant_;  ///< not written during the launch
};

template <class T>
using In = Ptr<global, const T>;  ///< read-only for the whole launch
template <class T>
using Out = Ptr<global, T>;
template <class T>
struct InOut : Ptr<global, T> {  ///< an Out that the kernel also reads (the parameter schema says so)
  explicit InOut(const Ptr<global, T>& p) : Ptr<global, T>(p) {}
};

/// Writable only at indices that belong to this thread alone, so two threads never write one element.
template <class T>
class Disjoint {
 public:
  explicit Disjoint(const Ptr<global, T>& p) : p_(p) {}
  template <int N, class... Tags, class I>
  void st(const ThreadIndexOf<I>& i, const RegGroup<T, N>& v, Here at = Here::now()) const {
    p_.template st<N, Tags...>(static_cast<const Val<I>&>(i), v, at);
  }
  template <class... Tags, class I>
  void st(const ThreadIndexOf<I>& i, const std::type_identity_t<Val<T>>& v, Here at = Here::now()) const {
    p_.template st<Tags...>(static_cast<const Val<I>&>(i), v, at);
  }
  /// A thread may read back its own element.
  template <class I>
  Val<T> ld(const ThreadIndexOf<I>& i, Here at = Here::now()) const {
    return p_.ld(static_cast<const Val<I>&>(i), at);
  }
  template <int N, class I>
  RegGroup<T, N> ld(const ThreadIndexOf<I>& i, Here at = Here::now()) const {
    return p_.template ld<N>(static_cast<const Val<I>&>(i), at);
  }

 private:
  Ptr<global, T> p_;
};

template <class T>
Ptr<mod::shared, T> Kernel::shared(int count, int align, Here at) {
  if (count < 1) throw BuildError("a shared array has at least one element", at, text::cat("got ", count));
  const int offset = smem(count * Elem<T>::bytes, align ? align : std::max(16, Elem<T>::bytes), at);
  return Ptr<mod::shared, T>(Val<u32>(Value(this, smem_reg_, ptx::Mod::u32, Uniform::grid)), offset);
}

namespace record_impl {
/// Declares a variable of the module or function and records the mov of its address.
Value variable(Kernel& k, ptx::Space space, ptx::Mod type, std::uint64_t count, int align,
               std::vector<std::uint8_t> init, std::string name, Here at);
}  // namespace record_impl

/// `count` elements in the thread's local memory: may be indexed at run time, is not fast.
template <class T>
Ptr<mod::local, T> Kernel::local_array(int count, Here at) {
  if (count < 1) throw BuildError("a local array has at least one element", at, text::cat("got ", count));
  return Ptr<mod::local, T>(Val<u64>(record_impl::variable(
      *this, ptx::Space::local, memory_mod(T::mod, T::bits), std::uint64_t(count), 16, {}, {}, at)));
}

template <class T, class H>
Ptr<mod::const_, const T> Kernel::constant(const std::vector<H>& values, Here at) {
  if (values.empty()) throw BuildError("a constant array has at least one element", at);
  std::vector<std::uint8_t> bytes;
  for (const H& h : values) {
    const std::uint64_t pattern = literal_of<T>(h).bits();
    for (int b = 0; b < Elem<T>::bytes; ++b) bytes.push_back(std::uint8_t(pattern >> 8 * b));
  }
  return Ptr<mod::const_, const T>(
      Val<u64>(record_impl::variable(*this, ptx::Space::constant, memory_mod(T::mod, T::bits), values.size(),
                                     16, std::move(bytes), {}, at)),
      0, true);
}

/// Zero-initialised global memory of the module, named so that the host can find it; it outlives launches.
template <class T>
Ptr<global, T> global_array(Kernel& k, std::string name, int count, Here at = Here::now()) {
  if (count < 1) throw BuildError("a global array has at least one element", at, text::cat("got ", count));
  return Ptr<global, T>(Val<u64>(record_impl::variable(k, ptx::Space::global, memory_mod(T::mod, T::bits),
                                                       std::uint64_t(count), 16, {}, std::move(name), at)));
}

}  // namespace cgp::dsl
