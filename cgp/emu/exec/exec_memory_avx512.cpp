// SPDX-License-Identifier: Apache-2.0
// ld and st of 4-byte elements with gathers and scatters. See memory_elements.h.
#include "cgp/emu/core/memory_elements.h"

#if defined(CGP_EMU_AVX512)
#include <immintrin.h>

#include "cgp/emu/core/host_memory.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/race/race_rows.h"

#include "cgp/emu/core/isa_begin.h"
namespace {

// What an address is made of: shared memory through 32- or 64-bit registers, global memory.
enum class Form { shared32, shared64, global };
constexpr bool is_shared(Form f) { return f != Form::global; }

// The range of memory that the accesses of an instruction lie in: the block's shared memory, or the
// allocation that it used last.
struct Range {
  std::byte* host = nullptr;
  std::uint64_t base = 0, size = 0;  // address of the start, bytes
  std::byte* written = nullptr;      // one bit per byte of the range; nullptr: not followed
};

template <Form F>
inline bool range_of(const Warp& w, const Op& op, Range& r) {
  const bool follow = w.checks & std::uint32_t(Check::uninit);
  if constexpr (is_shared(F)) {
    Cta& cta = *w.cta;
    r.host = cta.shared.get();
    r.base = cta.shared_base();
    r.size = cta.shared_bytes;
    if (follow) r.written = reinterpret_cast<std::byte*>(cta.shared_init.data());
    return true;
  } else {
    const Worker& worker = *w.worker;
    const CachedRange& c = worker.cache[op.inst];
    r.host = c.host;
    r.base = c.base;
    r.size = c.size;
    if (c.size >= 1ull << 31 || !c.allocation || worker.frees != Heap::frees()) return false;
    if (follow) r.written = reinterpret_cast<std::byte*>(c.allocation->init.get());
    return true;
  }
}

// A warp's accesses inside one range of memory: offsets from its start, 16 lanes each.
struct Lanes {
  __m512i low, high;
  Mask active;
};

inline __m512i lane_numbers() {
  return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}
inline __m512i load_half(const std::uint32_t* row, int half) { return _mm512_loadu_si512(row + 16 * half); }
inline void store_half(std::uint32_t* row, int half, __m512i v) { _mm512_storeu_si512(row + 16 * half, v); }

// Whether lane l accesses 4 * Count bytes at `first` + l * 4 * Count, inside the range and aligned.
template <Form F, int Count>
inline bool consecutive(const Warp& w, const Op& op, const Range& r, std::uint64_t& first) {
  constexpr int bytes = 4 * Count;
  if constexpr (F == Form::shared32) {
    const auto* row = w.row<std::uint32_t>(op.a);
    const __m512i step = _mm512_slli_epi32(lane_numbers(), Count == 1 ? 2 : Count == 2 ? 3 : 4);
    const __m512i low = _mm512_add_epi32(_mm512_set1_epi32(int(row[0])), step);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(16 * bytes));
    if (_mm512_cmpneq_epi32_mask(load_half(row, 0), low) | _mm512_cmpneq_epi32_mask(load_half(row, 1), high))
      return false;
    first = row[0] + std::uint32_t(op.imm) - std::uint32_t(r.base);
  } else {
    const auto* row = w.row<std::uint64_t>(op.a);
    const __m512i eight = _mm512_set1_epi64(8 * bytes);
    __m512i expect = _mm512_add_epi64(
        _mm512_set1_epi64(std::int64_t(row[0])),
        _mm512_set_epi64(7 * bytes, 6 * bytes, 5 * bytes, 4 * bytes, 3 * bytes, 2 * bytes, bytes, 0));
    unsigned differ = 0;
    for (int i = 0; i < 4; ++i) {
      differ |= _mm512_cmpneq_epi64_mask(_mm512_loadu_si512(row + 8 * i), expect);
      expect = _mm512_add_epi64(expect, eight);
    }
    if (differ) return false;
    first = row[0] + std::uint64_t(op.imm) - r.base;
  }
  return r.size >= 32 * bytes && first <= r.size - 32 * bytes && (first & (bytes - 1)) == 0;
}

// Whether every active offset is in [0, size - bytes] and aligned.
bool fits(const Lanes& a, std::uint64_t size, std::uint32_t bytes) {
  if (size < bytes) return false;
  const __m512i most = _mm512_set1_epi32(int(size - bytes)), odd = _mm512_set1_epi32(int(bytes - 1));
  const auto low = __mmask16(a.active), high = __mmask16(a.active >> 16);
  if (_mm512_mask_cmpgt_epu32_mask(low, a.low, most) | _mm512_mask_cmpgt_epu32_mask(high, a.high, most))
    return false;
  return !(_mm512_mask_test_epi32_mask(low, a.low, odd) | _mm512_mask_test_epi32_mask(high, a.high, odd));
}

inline __m512i narrow(__m512i low, __m512i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(low)), _mm512_cvtepi64_epi32(high),
                            1);
}

// The offsets of the active lanes; false when one is outside or not aligned: look at them one by one.
template <Form F>
bool offsets(const Warp& w, const Op& op, const Range& r, std::uint32_t bytes, Lanes& a) {
  a.active = w.active;
  if constexpr (F == Form::shared32) {
    const __m512i move = _mm512_set1_epi32(int(std::uint32_t(op.imm) - std::uint32_t(r.base)));
    const auto* row = w.row<std::uint32_t>(op.a);
    a.low = _mm512_add_epi32(load_half(row, 0), move);
    a.high = _mm512_add_epi32(load_half(row, 1), move);
  } else {
    const auto* row = w.row<std::uint64_t>(op.a);
    const __m512i move = _mm512_set1_epi64(std::int64_t(std::uint64_t(op.imm) - r.base));
    __m512i v[4];
    Mask far = 0;
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm512_add_epi64(_mm512_loadu_si512(row + 8 * i), move);
      far |= Mask(_mm512_cmpge_epu64_mask(v[i], _mm512_set1_epi64(std::int64_t(r.size)))) << (8 * i);
    }
    if (far & a.active) return false;
    a.low = narrow(v[0], v[1]);
    a.high = narrow(v[2], v[3]);
  }
  return fits(a, r.size, bytes);
}

// How whole warps access one line of 32 words (aligned to its size): lane l the word l ^ turn, or any words.
struct Line {
  std::uint32_t at = 0, turn = 0;
  bool swizzled = false;
};
bool one_line(const Lanes& a, const Range& r, Line& line) {
  if (a.active != ~Mask(0)) return false;
  const auto first = std::uint32_t(_mm_cvtsi128_si32(_mm512_castsi512_si128(a.low)));
  const __m512i all = _mm512_set1_epi32(int(first)), other = _mm512_set1_epi32(~(kRow32 - 1));
  if (_mm512_test_epi32_mask(_mm512_xor_si512(a.low, all), other) |
      _mm512_test_epi32_mask(_mm512_xor_si512(a.high, all), other))
    return false;
  line.at = first & ~std::uint32_t(kRow32 - 1);
  line.turn = (first - line.at) / 4;
  if (line.at + kRow32 > r.size) return false;
  const __m512i words = _mm512_slli_epi32(lane_numbers(), 2);
  line.swizzled = !(
      _mm512_cmpneq_epi32_mask(_mm512_xor_si512(a.low, words), all) |
      _mm512_cmpneq_epi32_mask(_mm512_xor_si512(a.high, _mm512_or_si512(words, _mm512_set1_epi32(64))), all));
  return true;
}

// Whether consecutive lanes fill lines, as the rows of a tile: 8 (Count 4) or 16 (Count 2) of them a line
// each.
template <int Count>
bool tile_lines(const Lanes& a, std::uint32_t* line) {
  constexpr int per = kLanes / Count;
  if (a.active != ~Mask(0)) return false;
  const __m512i in_line = _mm512_and_si512(lane_numbers(), _mm512_set1_epi32(per - 1));
  const __m512i leader = _mm512_sub_epi32(lane_numbers(), in_line);
  const __m512i step = _mm512_slli_epi32(in_line, Count == 2 ? 3 : 4);
  const __m512i low = _mm512_sub_epi32(a.low, step), high = _mm512_sub_epi32(a.high, step);
  if (_mm512_cmpneq_epi32_mask(low, _mm512_permutexvar_epi32(leader, low)) |
      _mm512_cmpneq_epi32_mask(high, _mm512_permutexvar_epi32(leader, high)))
    return false;
  if (_mm512_test_epi32_mask(_mm512_or_si512(low, high), _mm512_set1_epi32(kRow32 - 1))) return false;
  alignas(64) std::uint32_t all[kLanes];
  _mm512_store_si512(all, low);
  _mm512_store_si512(all + 16, high);
  for (int i = 0; i < Count; ++i) line[i] = all[i * per];
  return true;
}

// Whether the 128 * Count bits from `first` on, a multiple of 4, are set.
template <int Count>
inline bool row_written(const Range& r, std::uint64_t first) {
  if (!r.written) return true;
  const std::byte* const bits = r.written + first / 8;
  if constexpr (Count == 1) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bits));
    if (first % 8 == 0) return _mm_test_all_ones(v);
    return _mm_test_all_ones(_mm_or_si128(v, _mm_cvtsi32_si128(0xf))) &&
           (bits[16] & std::byte(0xf)) == std::byte(0xf);
  }
  constexpr __mmask16 words = Count == 2 ? 0xff : 0xffff;
  return !_mm512_mask_cmpneq_epi32_mask(words, _mm512_maskz_loadu_epi32(words, bits), _mm512_set1_epi32(-1));
}
// Sets them. Other host threads may set bits beside them.
template <int Count>
inline void mark_row(const Range& r, std::uint64_t first) {
  if (row_written<Count>(r, first)) return;
  std::byte* const bits = r.written + first / 8;
  if (first % 8 == 0) {
    std::memset(bits, 0xff, 16 * Count);
    return;
  }
  auto* const ends = reinterpret_cast<unsigned char*>(bits);
  __atomic_fetch_or(ends, 0xf0, __ATOMIC_RELAXED);
  std::memset(bits + 1, 0xff, 16 * Count - 1);
  __atomic_fetch_or(ends + 16 * Count, 0x0f, __ATOMIC_RELAXED);
}

// Whether all bytes of all active lanes have been written. An access lies inside one 32-bit word of the bits.
bool all_written(const Lanes& a, const Range& r, std::uint32_t bytes) {
  if (!r.written) return true;
  const __m512i ones = _mm512_set1_epi32(int((1u << bytes) - 1));
  const auto missing = [&](__m512i offset, __mmask16 m) {
    const __m512i bits =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, _mm512_srli_epi32(offset, 5), r.written, 4);
    const __m512i mine = _mm512_srlv_epi32(bits, _mm512_and_si512(offset, _mm512_set1_epi32(31)));
    return _mm512_mask_cmpneq_epi32_mask(m, _mm512_and_si512(mine, ones), ones);
  };
  return !(missing(a.low, __mmask16(a.active)) | missing(a.high, __mmask16(a.active >> 16)));
}

// Distinct 32-byte sectors; an aligned access of up to 16 bytes lies in one.
std::uint32_t count_sectors(const Lanes& a, std::uint64_t base) {
  const auto lead = std::uint32_t(base % 32);
  const __m512i add = _mm512_set1_epi32(int(lead));
  __m512i low = _mm512_srli_epi32(_mm512_add_epi32(a.low, add), 5),
          high = _mm512_srli_epi32(_mm512_add_epi32(a.high, add), 5);
  // Inactive lanes repeat an active one.
  const int one = __builtin_ctz(a.active);
  alignas(64) std::uint32_t all[kLanes];
  _mm512_store_si512(all, low);
  _mm512_store_si512(all + 16, high);
  const __m512i same = _mm512_set1_epi32(int(all[one]));
  low = _mm512_mask_mov_epi32(same, __mmask16(a.active), low);
  high = _mm512_mask_mov_epi32(same, __mmask16(a.active >> 16), high);
  const __m512i zero = _mm512_setzero_si512();
  const __mmask16 fresh_low = _mm512_cmpeq_epi32_mask(_mm512_conflict_epi32(low), zero);
  __mmask16 fresh_high = _mm512_cmpeq_epi32_mask(_mm512_conflict_epi32(high), zero);
  __m512i rotated = low;
  const __m512i next = _mm512_set_epi32(0, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
  for (int i = 0; i < 16; ++i) {
    fresh_high = __mmask16(fresh_high & ~_mm512_cmpeq_epi32_mask(high, rotated));
    rotated = _mm512_permutexvar_epi32(next, rotated);
  }
  return std::uint32_t(__builtin_popcount(fresh_low) + __builtin_popcount(fresh_high));
}

// Whether every active lane names a word in a bank of its own.
bool banks_differ(const Lanes& a) {
  const __m512i one = _mm512_set1_epi32(1), last = _mm512_set1_epi32(31);
  const auto banks = [&](__m512i offset, __mmask16 m) {
    return _mm512_maskz_sllv_epi32(m, one, _mm512_and_si512(_mm512_srli_epi32(offset, 2), last));
  };
  const __m512i low = banks(a.low, __mmask16(a.active)), high = banks(a.high, __mmask16(a.active >> 16));
  return __builtin_popcount(unsigned(_mm512_reduce_or_epi32(_mm512_or_si512(low, high)))) ==
         __builtin_popcount(a.active);
}

inline std::uint32_t sectors_of(std::uint64_t address, std::uint32_t bytes) {
  return std::uint32_t((address + bytes - 1) / 32 - address / 32 + 1);
}

// Consecutive elements, or one line: one pass of shared memory for each word of a lane.
template <Form F>
inline void count_row(Warp& w, const Op& op, std::uint32_t sectors) {
  RowCount& c = w.worker->rows[op.inst];
  ++c.rows;
  if constexpr (!is_shared(F)) c.sectors += sectors;
}

template <Form F>
void count_lanes(Warp& w, const Op& op, bool store, const Lanes& a, const Range& r, std::uint32_t bytes) {
  if (!w.worker->launch->options.counters) return;
  if constexpr (is_shared(F)) {
    if (bytes == 4 && a.active == ~Mask(0) && banks_differ(a)) return count_row<F>(w, op, 0);
    alignas(64) std::uint32_t offset[kLanes];
    _mm512_store_si512(offset, a.low);
    _mm512_store_si512(offset + 16, a.high);
    return count_shared(w, op, store ? SharedKind::store : SharedKind::load, bytes, offset, a.active);
  } else {
    const std::uint32_t n = count_sectors(a, r.base);
    const std::uint64_t total = std::uint64_t(__builtin_popcount(a.active)) * bytes;
    PcCounters& pc = w.worker->pc[op.inst];
    Counters& t = w.worker->totals;
    ++pc.requests;
    pc.sectors += n;
    pc.bytes += total;
    ++(store ? t.global_store_requests : t.global_load_requests);
    (store ? t.global_store_sectors : t.global_load_sectors) += n;
    (store ? t.global_store_bytes : t.global_load_bytes) += total;
  }
}

// Sectors of one line; the start of an allocation need not be a multiple of 32.
std::uint32_t line_sectors(const Lanes& a, const Range& r, const Line& line) {
  const auto lead = std::uint32_t((r.base + line.at) % 32);
  if (line.swizzled) return lead ? 5 : 4;
  const __m512i move = _mm512_set1_epi32(int(lead) - int(line.at)), one = _mm512_set1_epi32(1);
  const auto bits = [&](__m512i v) {
    return _mm512_sllv_epi32(one, _mm512_srli_epi32(_mm512_add_epi32(v, move), 5));
  };
  return std::uint32_t(
      __builtin_popcount(unsigned(_mm512_reduce_or_epi32(_mm512_or_si512(bits(a.low), bits(a.high))))));
}

// Whether nothing but the access itself and its race detection is wanted: no watching, no maps.
inline bool plain(const Warp& w) { return !w.suspect && !w.worker->accesses && !kThreadSanitizer; }

// ---------------------------------------------------------------- races
constexpr race::Use use_of(bool store) { return store ? race::Use::write : race::Use::read; }

void note_lanes(Warp& w, const Op& op, const Lanes& a, const Range& r, std::uint32_t bytes, bool store) {
  alignas(64) std::uint64_t addr[kLanes];
  alignas(64) std::byte* host[kLanes];
  const __m512i from = _mm512_set1_epi64(std::int64_t(r.base)),
                at = _mm512_set1_epi64(std::int64_t(reinterpret_cast<std::uintptr_t>(r.host)));
  for (int i = 0; i < 4; ++i) {
    const __m512i v = i < 2 ? a.low : a.high;
    const __m512i wide =
        _mm512_cvtepu32_epi64(i % 2 ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v));
    _mm512_store_si512(addr + 8 * i, _mm512_add_epi64(wide, from));
    _mm512_store_si512(reinterpret_cast<std::uint64_t*>(host) + 8 * i, _mm512_add_epi64(wide, at));
  }
  race::on_access(w, op, op.where, addr, bytes, use_of(store), a.active, host,
                  store ? same_stored_value : nullptr);
}

// All lanes access words of their own: without a look at single lanes, if nothing needs one.
template <Form F>
bool note_row(Warp& w, const Op& op, const Range& r, std::uint64_t first, std::uint32_t bytes, bool store) {
  if constexpr (is_shared(F)) return race::shared_row(w, op, std::uint32_t(first), bytes, use_of(store));
  const Allocation& in = *w.worker->cache[op.inst].allocation;
  return race::global_row(w, op, in, first + (r.base - in.base), bytes, use_of(store));
}
bool note_words(Warp& w, const Op& op, const Lanes& a, bool store) {
  if (a.active != ~Mask(0) || !banks_differ(a)) return false;
  alignas(64) std::uint32_t offset[kLanes];
  _mm512_store_si512(offset, a.low);
  _mm512_store_si512(offset + 16, a.high);
  return race::shared_words(w, op, offset, use_of(store));
}

// Reads of words that lanes share.
bool note_groups(Warp& w, const Op& op, const Lanes& a, std::uint32_t bytes) {
  if (a.active != ~Mask(0)) return false;
  alignas(64) std::uint32_t offset[kLanes];
  _mm512_store_si512(offset, a.low);
  _mm512_store_si512(offset + 16, a.high);
  return race::shared_groups(w, op, offset, bytes);
}

Lanes lanes_of_row(std::uint64_t first, std::uint32_t bytes) {
  const __m512i low = _mm512_add_epi32(_mm512_set1_epi32(int(first)),
                                       _mm512_mullo_epi32(lane_numbers(), _mm512_set1_epi32(int(bytes))));
  return {low, _mm512_add_epi32(low, _mm512_set1_epi32(int(16 * bytes))), ~Mask(0)};
}

// ---------------------------------------------------------------- moving rows
inline Loc element(const Op& op, int i) { return i == 0 ? op.d : i == 1 ? op.b : i == 2 ? op.c : op.e; }

// Lines of consecutive vectors of Count words, and back. lines(i): the i-th 128 bytes.
template <int Count, class Lines>
inline void load_row(const Warp& w, const Op& op, Lines&& lines) {
  std::uint32_t* to[Count];
  for (int i = 0; i < Count; ++i) to[i] = w.row<std::uint32_t>(element(op, i));
  for (int half = 0; half < 2; ++half) {
    __m512i v[Count];
    for (int i = 0; i < Count; ++i) {
      const int part = Count * half + i;
      v[i] = _mm512_loadu_si512(lines(part / 2) + 64 * (part % 2));
    }
    if constexpr (Count == 1) {
      store_half(to[0], half, v[0]);
    } else if constexpr (Count == 2) {
      const __m512i even = _mm512_slli_epi32(lane_numbers(), 1);
      store_half(to[0], half, _mm512_permutex2var_epi32(v[0], even, v[1]));
      store_half(to[1], half,
                 _mm512_permutex2var_epi32(v[0], _mm512_or_si512(even, _mm512_set1_epi32(1)), v[1]));
    } else {
      const __m512i pick = _mm512_set_epi32(29, 25, 21, 17, 13, 9, 5, 1, 28, 24, 20, 16, 12, 8, 4, 0);
      const __m512i next = _mm512_or_si512(pick, _mm512_set1_epi32(2));
      const __m512i a = _mm512_permutex2var_epi32(v[0], pick, v[1]),
                    b = _mm512_permutex2var_epi32(v[2], pick, v[3]),
                    c = _mm512_permutex2var_epi32(v[0], next, v[1]),
                    d = _mm512_permutex2var_epi32(v[2], next, v[3]);
      store_half(to[0], half, _mm512_shuffle_i64x2(a, b, 0x44));
      store_half(to[1], half, _mm512_shuffle_i64x2(a, b, 0xee));
      store_half(to[2], half, _mm512_shuffle_i64x2(c, d, 0x44));
      store_half(to[3], half, _mm512_shuffle_i64x2(c, d, 0xee));
    }
  }
}
template <int Count, class Lines>
inline void store_row(const Warp& w, const Op& op, Lines&& lines) {
  const std::uint32_t* from[Count];
  for (int i = 0; i < Count; ++i) from[i] = w.row<std::uint32_t>(element(op, i));
  for (int half = 0; half < 2; ++half) {
    __m512i v[Count];
    for (int i = 0; i < Count; ++i) v[i] = load_half(from[i], half);
    const auto out = [&](int i) { return lines((Count * half + i) / 2) + 64 * ((Count * half + i) % 2); };
    if constexpr (Count == 1) {
      _mm512_storeu_si512(out(0), v[0]);
    } else {
      const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
      const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
      const __m512i ab = _mm512_permutex2var_epi32(v[0], first, v[1]),
                    ab2 = _mm512_permutex2var_epi32(v[0], second, v[1]);
      if constexpr (Count == 2) {
        _mm512_storeu_si512(out(0), ab);
        _mm512_storeu_si512(out(1), ab2);
      } else {
        const __m512i cd = _mm512_permutex2var_epi32(v[2], first, v[3]),
                      cd2 = _mm512_permutex2var_epi32(v[2], second, v[3]);
        // Pairs of two elements of 8 lanes each, to vectors of four.
        const __m512i low = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0),
                      high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
        _mm512_storeu_si512(out(0), _mm512_permutex2var_epi64(ab, low, cd));
        _mm512_storeu_si512(out(1), _mm512_permutex2var_epi64(ab, high, cd));
        _mm512_storeu_si512(out(2), _mm512_permutex2var_epi64(ab2, low, cd2));
        _mm512_storeu_si512(out(3), _mm512_permutex2var_epi64(ab2, high, cd2));
      }
    }
  }
}

// ---------------------------------------------------------------- other patterns
// A whole warp inside one line of memory. False: nothing was done.
template <Form F>
bool load_line(Warp& w, const Op& op, const Range& r, const Lanes& a) {
  Line line;
  if (!one_line(a, r, line)) return false;
  if (!row_written<1>(r, line.at) && !all_written(a, r, 4)) return false;
  count_row<F>(w, op, is_shared(F) ? 0 : line_sectors(a, r, line));
  const race::Section section(w, op);
  if (w.race) {
    const bool done =
        is_shared(F) && (line.swizzled ? race::shared_line(w, op, line.at, line.turn, use_of(false))
                                       : note_groups(w, op, a, 4));
    if (!done) note_lanes(w, op, a, r, 4, false);
  }
  const __m512i low = _mm512_loadu_si512(r.host + line.at), high = _mm512_loadu_si512(r.host + line.at + 64);
  auto* const to = w.row<std::uint32_t>(op.d);
  store_half(to, 0, _mm512_permutex2var_epi32(low, _mm512_srli_epi32(a.low, 2), high));
  store_half(to, 1, _mm512_permutex2var_epi32(low, _mm512_srli_epi32(a.high, 2), high));
  return true;
}
template <Form F>
bool store_line(Warp& w, const Op& op, const Range& r, const Lanes& a) {
  Line line;
  if (!one_line(a, r, line) || !line.swizzled) return false;
  mark_row<1>(r, line.at);
  count_row<F>(w, op, is_shared(F) ? 0 : line_sectors(a, r, line));
  const race::Section section(w, op);
  if (w.race) {
    const bool done = is_shared(F) && race::shared_line(w, op, line.at, line.turn, use_of(true));
    if (!done) note_lanes(w, op, a, r, 4, true);
  }
  // Word k comes from lane k ^ turn.
  const __m512i from = _mm512_xor_si512(lane_numbers(), _mm512_set1_epi32(int(line.turn)));
  const auto* const row = w.row<std::uint32_t>(op.d);
  const __m512i low = load_half(row, 0), high = load_half(row, 1);
  _mm512_storeu_si512(r.host + line.at, _mm512_permutex2var_epi32(low, from, high));
  _mm512_storeu_si512(r.host + line.at + 64,
                      _mm512_permutex2var_epi32(low, _mm512_xor_si512(from, _mm512_set1_epi32(16)), high));
  return true;
}

// Rows of a tile, each a line. False: nothing was done.
template <Form F, int Count>
bool move_tile(Warp& w, const Op& op, const Range& r, const Lanes& a, bool store) {
  std::uint32_t line[Count];
  if (!tile_lines<Count>(a, line)) return false;
  if (!store)
    for (const std::uint32_t at : line)
      if (!row_written<1>(r, at)) return false;
  if (store)
    for (const std::uint32_t at : line) mark_row<1>(r, at);
  count_row<F>(w, op, is_shared(F) ? 0 : count_sectors(a, r.base));
  bool noted = !w.race;
  if (w.race) {
    if constexpr (is_shared(F))
      noted = race::shared_lines(w, op, line, 4 * Count, use_of(store));
    else
      noted = race::global_lines(w, op, *w.worker->cache[op.inst].allocation, line, 4 * Count, use_of(store));
  }
  const race::Section section(w, op);
  if (!noted) note_lanes(w, op, a, r, 4 * Count, store);
  const auto lines = [&](int i) { return r.host + line[i]; };
  if (store)
    store_row<Count>(w, op, lines);
  else
    load_row<Count>(w, op, lines);
  return true;
}

template <Form F, int Count>
void load_lanes(Warp& w, const Op& op, const Range& r) {
  constexpr std::uint32_t bytes = 4 * Count;
  Lanes a;
  if (!offsets<F>(w, op, r, bytes, a)) return exec_load(w, op);
  if constexpr (Count == 1)
    if (load_line<F>(w, op, r, a)) return;
  if constexpr (Count > 1)
    if (move_tile<F, Count>(w, op, r, a, false)) return;
  if (!all_written(a, r, bytes)) return exec_load(w, op);
  count_lanes<F>(w, op, false, a, r, bytes);
  const race::Section section(w, op);
  const bool noted =
      !w.race ||
      (is_shared(F) && ((Count == 1 && note_words(w, op, a, false)) || note_groups(w, op, a, bytes)));
  if (!noted) note_lanes(w, op, a, r, bytes, false);
  const auto low = __mmask16(a.active), high = __mmask16(a.active >> 16);
  // The address row may be one of the destinations: its offsets are in registers by now.
  for (int i = 0; i < Count; ++i) {
    auto* const to = w.row<std::uint32_t>(element(op, i));
    const std::byte* from = r.host + 4 * i;
    store_half(to, 0, _mm512_mask_i32gather_epi32(load_half(to, 0), low, a.low, from, 1));
    store_half(to, 1, _mm512_mask_i32gather_epi32(load_half(to, 1), high, a.high, from, 1));
  }
}
template <Form F, int Count>
void store_lanes(Warp& w, const Op& op, const Range& r) {
  constexpr std::uint32_t bytes = 4 * Count;
  Lanes a;
  if (!offsets<F>(w, op, r, bytes, a)) return exec_store(w, op);
  if constexpr (Count == 1)
    if (store_line<F>(w, op, r, a)) return;
  if constexpr (Count > 1)
    if (move_tile<F, Count>(w, op, r, a, true)) return;
  if (!all_written(a, r, bytes)) return exec_store(w, op);
  count_lanes<F>(w, op, true, a, r, bytes);
  const race::Section section(w, op);
  if (w.race && !(Count == 1 && is_shared(F) && note_words(w, op, a, true)))
    note_lanes(w, op, a, r, bytes, true);
  const auto low = __mmask16(a.active), high = __mmask16(a.active >> 16);
  for (int i = 0; i < Count; ++i) {
    const auto* const from = w.row<std::uint32_t>(element(op, i));
    std::byte* const to = r.host + 4 * i;
    _mm512_mask_i32scatter_epi32(to, low, a.low, load_half(from, 0), 1);
    _mm512_mask_i32scatter_epi32(to, high, a.high, load_half(from, 1), 1);
  }
}

// A row in the race detector: first as one, else lane by lane.
template <Form F, int Count>
inline void note_row_or_lanes(Warp& w, const Op& op, const Range& r, std::uint64_t first, bool store) {
  if (note_row<F>(w, op, r, first, 4 * Count, store)) return;
  const race::Section section(w, op);
  note_lanes(w, op, lanes_of_row(first, 4 * Count), r, 4 * Count, store);
}

template <Form F, int Count>
void load_words(Warp& w, const Op& op) {
  Range r;
  std::uint64_t first = 0;
  if (!plain(w) || !range_of<F>(w, op, r)) return exec_load(w, op);
  if (w.active != ~Mask(0) || !consecutive<F, Count>(w, op, r, first)) return load_lanes<F, Count>(w, op, r);
  if (!row_written<Count>(r, first)) return load_lanes<F, Count>(w, op, r);
  count_row<F>(w, op, sectors_of(r.base + first, 128 * Count));
  if (w.race) note_row_or_lanes<F, Count>(w, op, r, first, false);
  load_row<Count>(w, op, [at = r.host + first](int i) { return at + kRow32 * i; });
}
template <Form F, int Count>
void store_words(Warp& w, const Op& op) {
  Range r;
  std::uint64_t first = 0;
  if (!plain(w) || w.taint || !range_of<F>(w, op, r)) return exec_store(w, op);
  if (w.active != ~Mask(0) || !consecutive<F, Count>(w, op, r, first)) return store_lanes<F, Count>(w, op, r);
  mark_row<Count>(r, first);
  count_row<F>(w, op, sectors_of(r.base + first, 128 * Count));
  if (w.race) note_row_or_lanes<F, Count>(w, op, r, first, true);
  store_row<Count>(w, op, [at = r.host + first](int i) { return at + kRow32 * i; });
}

template <Form F>
Handler handler_of(bool store, int count) {
  switch (count) {
    case 1:
      return store ? store_words<F, 1> : load_words<F, 1>;
    case 2:
      return store ? store_words<F, 2> : load_words<F, 2>;
    case 4:
      return store ? store_words<F, 4> : load_words<F, 4>;
    default:
      return nullptr;
  }
}
}  // namespace

Handler word_handler(const Op& op, bool store, int count) {
  if (op.where == Where::global) return op.flags & kBase32 ? nullptr : handler_of<Form::global>(store, count);
  if (op.where != Where::shared) return nullptr;
  return op.flags & kBase32 ? handler_of<Form::shared32>(store, count)
                            : handler_of<Form::shared64>(store, count);
}

#include "cgp/emu/core/isa_end.h"
#endif
