// SPDX-License-Identifier: Apache-2.0
#include "cgp/cpu/dispatch.h"

#include <array>
#include <cstdlib>
#include <new>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::cpu {
namespace {

constexpr std::array<std::string_view, 8> kNames{"scalar", "sse2",        "avx2",        "avx_vnni",
                                                 "avx512", "avx512_vnni", "avx512_bf16", "amx"};

#if defined(__x86_64__)
/// Leaf 4 and AMD's 0x8000001D describe one cache per subleaf in the same words.
void read_caches(unsigned leaf, Caches& into) {
  for (unsigned i = 0; i < 16; ++i) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    __cpuid_count(leaf, i, a, b, c, d);
    const unsigned type = a & 31, level = a >> 5 & 7;
    if (type == 0) return;
    if (type == 2) continue;  // instructions
    const std::int64_t bytes =
        std::int64_t((b >> 22) + 1) * ((b >> 12 & 1023) + 1) * ((b & 4095) + 1) * (std::int64_t(c) + 1);
    if (level == 1) into.l1 = bytes;
    if (level == 2) into.l2 = bytes;
    if (level == 3) into.l3 = bytes;
  }
}
#endif

#if defined(__x86_64__)
/// Leaf 7: bits of EDX of subleaf 0, of EAX of subleaf 1.
struct Leaf7 {
  unsigned edx = 0, eax1 = 0;
};
Leaf7 leaf_7() {
  Leaf7 found;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  found.edx = d;
  if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) found.eax1 = a;
  return found;
}

/// A bit that clang's __builtin_cpu_supports() does not know.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1);
}

/// The tile registers belong to a process only after it has asked for them (arch_prctl, ARCH_REQ_XCOMP_PERM of XTILEDATA).
bool tiles_granted() {
#if defined(__linux__)
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr unsigned kTiles = 3u << 17;
  return (low & kTiles) == kTiles && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}
bool has_amx() {
  constexpr unsigned kTileAndBf16 = 1u << 24 | 1u << 22;
  return (leaf_7().edx & kTileAndBf16) == kTileAndBf16 && tiles_granted();
}
#endif

Caches find_caches() {
  Caches found;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000000u, &a, &b, &c, &d) && a >= 0x8000001Du) {
    unsigned features = 0;
    __get_cpuid(0x80000001u, &a, &b, &features, &d);
    if (features >> 22 & 1) return read_caches(0x8000001Du, found), found;  // topology extensions
  }
  if (__get_cpuid(0, &a, &b, &c, &d) && a >= 4) read_caches(4, found);
#endif
  return found;
}

/// `has` holds the answers for the narrower ones.
bool ask(Isa isa, const std::array<bool, kNames.size()>& has) {
#if defined(__x86_64__)
  const auto with = [&](Isa narrower) { return has[std::size_t(narrower)]; };
  switch (isa) {
    case Isa::scalar:
    case Isa::sse2:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
    case Isa::avx_vnni:
      return with(Isa::avx2) && (leaf_7().eax1 >> 4 & 1);
    case Isa::avx512:
      return with(Isa::avx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Isa::avx512_vnni:
      return with(Isa::avx512) && __builtin_cpu_supports("avx512vnni");
    case Isa::avx512_bf16:
      return with(Isa::avx512_vnni) && (leaf_7().eax1 >> 5 & 1);
    case Isa::amx:
      return with(Isa::avx512_bf16) && has_amx();
  }
  return false;
#else
  (void)has;
  return isa == Isa::scalar;
#endif
}

}  // namespace

std::string_view name(Isa isa) { return kNames[std::size_t(isa)]; }

std::vector<Isa> all_isas() {
  return {Isa::scalar, Isa::sse2,        Isa::avx2,        Isa::avx_vnni,
          Isa::avx512, Isa::avx512_vnni, Isa::avx512_bf16, Isa::amx};
}

bool has(Isa isa) {
  // cpuid takes microseconds in a virtual machine: it is asked once
  static const auto known = [] {
    std::array<bool, kNames.size()> out{};
    for (Isa i : all_isas()) out[std::size_t(i)] = ask(i, out);
    return out;
  }();
  return known[std::size_t(isa)];
}

Isa widest_isa() {
  static const Isa widest = [] {
    Isa best = Isa::scalar;
    for (Isa i : all_isas())
      if (has(i)) best = i;
    return best;
  }();
  return widest;
}

Isa isa_of(std::string_view wanted) {
  for (Isa i : all_isas())
    if (name(i) == wanted) return i;
  throw ArgumentError(
      ErrorText{text::cat("the instruction set is ", text::join({kNames.begin(), kNames.end()}, ", ")),
                {},
                std::string(wanted),
                {}});
}

void require(Isa isa) {
  if (has(isa)) return;
  throw Unsupported(ErrorText{
      text::cat("this processor has no ", name(isa)), {}, text::cat("it has ", name(widest_isa())), {}});
}

Isa chosen_isa() {
  const char* wanted = std::getenv("CGP_SIMD");
  if (!wanted || !*wanted) return widest_isa();
  const Isa isa = isa_of(wanted);
  require(isa);
  return isa;
}

const Caches& caches() {
  static const Caches found = find_caches();
  return found;
}

AlignedBuffer::AlignedBuffer(std::size_t bytes) { at_least(bytes); }
AlignedBuffer::~AlignedBuffer() { std::free(data_); }

void* AlignedBuffer::at_least(std::size_t bytes) {
  if (bytes <= bytes_) return data_;
  std::free(data_);
  bytes_ = 0;
  // Panels are read in order but written all over: with large pages the address tables of the core suffice.
  constexpr std::size_t kLargePage = 2 << 20;
  const std::size_t align = bytes >= kLargePage / 8 ? kLargePage : 64;
  data_ = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  if (!data_) throw std::bad_alloc();
#if defined(__linux__)
  if (align == kLargePage) madvise(data_, (bytes + align - 1) / align * align, MADV_HUGEPAGE);
#endif
  bytes_ = bytes;
  return data_;
}

}  // namespace cgp::cpu
