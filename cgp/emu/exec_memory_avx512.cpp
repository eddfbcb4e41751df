// SPDX-License-Identifier: Apache-2.0
// ld and st of 4-byte elements with gathers and scatters. See memory_elements.h.
#include "cgp/emu/memory_elements.h"

#if defined(CGP_EMU_AVX512)
#include <immintrin.h>

#include "cgp/emu/host_memory.h"
#include "cgp/emu/machine_impl.h"
#include "cgp/emu/race_rows.h"

#include "cgp/emu/isa_begin.h"
namespace {

// A warp's accesses inside one range of memory: offsets from its start, 16 lanes each.
struct Lanes {
  __m512i low, high;
  Mask active;
  std::byte* host;               // start of the range
  const std::uint32_t* written;  // one bit per byte of the range; nullptr: not followed
  bool dense;                    // lane l is at lane 0 + l * bytes, all lanes active
  std::uint32_t first;           // offset of lane 0 when dense
};

__m512i lane_numbers() { return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0); }

// Whether every active offset is in [0, size - bytes] and aligned; notes dense rows.
bool fits(Lanes& a, std::uint32_t size, std::uint32_t bytes) {
  if (size < bytes) return false;
  const __m512i most = _mm512_set1_epi32(int(size - bytes)), odd = _mm512_set1_epi32(int(bytes - 1));
  const auto low = __mmask16(a.active), high = __mmask16(a.active >> 16);
  if (_mm512_mask_cmpgt_epu32_mask(low, a.low, most) | _mm512_mask_cmpgt_epu32_mask(high, a.high, most))
    return false;
  if (_mm512_mask_test_epi32_mask(low, a.low, odd) | _mm512_mask_test_epi32_mask(high, a.high, odd))
    return false;
  a.first = std::uint32_t(_mm_cvtsi128_si32(_mm512_castsi512_si128(a.low)));
  const __m512i step = _mm512_mullo_epi32(lane_numbers(), _mm512_set1_epi32(int(bytes)));
  const __m512i expect = _mm512_add_epi32(_mm512_set1_epi32(int(a.first)), step);
  a.dense =
      a.active == ~Mask(0) && _mm512_cmpneq_epi32_mask(a.low, expect) == 0 &&
      _mm512_cmpneq_epi32_mask(a.high, _mm512_add_epi32(expect, _mm512_set1_epi32(int(16 * bytes)))) == 0;
  return true;
}

// Whether all bytes of all active lanes have been written. An access lies inside one 32-bit word of the bits.
bool all_written(const Lanes& a, std::uint32_t bytes) {
  if (!a.written) return true;
  if (a.dense && bytes == 4 && a.first % 32 == 0) {
    __m128i v;
    std::memcpy(&v, a.written + a.first / 32, 16);
    return _mm_test_all_ones(v);
  }
  const __m512i ones = _mm512_set1_epi32(bytes == 32 ? -1 : int((1u << bytes) - 1));
  const auto missing = [&](__m512i offset, __mmask16 m) {
    const __m512i bits =
        _mm512_mask_i32gather_epi32(_mm512_setzero_si512(), m, _mm512_srli_epi32(offset, 5), a.written, 4);
    const __m512i mine = _mm512_srlv_epi32(bits, _mm512_and_si512(offset, _mm512_set1_epi32(31)));
    return _mm512_mask_cmpneq_epi32_mask(m, _mm512_and_si512(mine, ones), ones);
  };
  return !(missing(a.low, __mmask16(a.active)) | missing(a.high, __mmask16(a.active >> 16)));
}

// The addresses of the warp as offsets into the block's shared memory. False: look at them one by one.
bool shared_lanes(Warp& w, const Op& op, std::uint32_t bytes, Lanes& a) {
  Cta& cta = *w.cta;
  const __m512i move = _mm512_set1_epi32(int(std::uint32_t(op.imm) - cta.shared_base()));
  if (op.flags & kBase32) {
    const auto* row = w.row<std::uint32_t>(op.a);
    a.low = _mm512_add_epi32(_mm512_loadu_si512(row), move);
    a.high = _mm512_add_epi32(_mm512_loadu_si512(row + 16), move);
  } else {
    const auto* row = w.row<std::uint64_t>(op.a);
    __m512i v[4], upper = _mm512_setzero_si512();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm512_add_epi64(_mm512_loadu_si512(row + 8 * i), _mm512_set1_epi64(op.imm));
      upper = _mm512_or_si512(upper, v[i]);
    }
    if (_mm512_test_epi64_mask(upper, _mm512_set1_epi64(std::int64_t(0xffffffff00000000ull)))) return false;
    const __m512i base = _mm512_set1_epi32(int(cta.shared_base()));
    a.low = _mm512_sub_epi32(_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(v[0])),
                                                _mm512_cvtepi64_epi32(v[1]), 1),
                             base);
    a.high = _mm512_sub_epi32(_mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(v[2])),
                                                 _mm512_cvtepi64_epi32(v[3]), 1),
                              base);
  }
  a.host = cta.shared.get();
  a.written = w.checks & std::uint32_t(Check::uninit)
                  ? reinterpret_cast<const std::uint32_t*>(cta.shared_init.data())
                  : nullptr;
  return fits(a, cta.shared_bytes, bytes);
}

// The same for the allocation that this instruction used last.
bool global_lanes(Warp& w, const Op& op, std::uint32_t bytes, Lanes& a) {
  Worker& worker = *w.worker;
  const CachedRange& c = worker.cache[op.inst];
  if ((op.flags & kBase32) || c.size >= 1ull << 31 || !c.allocation ||
      worker.frees != worker.launch->machine->heap.frees())
    return false;
  const auto* row = w.row<std::uint64_t>(op.a);
  const __m512i move = _mm512_set1_epi64(std::int64_t(std::uint64_t(op.imm) - c.base));
  __m512i v[4];
  Mask far = 0;
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm512_add_epi64(_mm512_loadu_si512(row + 8 * i), move);
    far |= Mask(_mm512_cmpge_epu64_mask(v[i], _mm512_set1_epi64(std::int64_t(c.size)))) << (8 * i);
  }
  if (far & a.active) return false;
  a.low =
      _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(v[0])), _mm512_cvtepi64_epi32(v[1]), 1);
  a.high =
      _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(v[2])), _mm512_cvtepi64_epi32(v[3]), 1);
  a.host = c.host;
  a.written = w.checks & std::uint32_t(Check::uninit)
                  ? reinterpret_cast<const std::uint32_t*>(c.allocation->init.get())
                  : nullptr;
  return fits(a, std::uint32_t(c.size), bytes);
}

// Distinct 32-byte sectors; an aligned access of up to 16 bytes lies in one.
std::uint32_t count_sectors(const Lanes& a, std::uint64_t base, std::uint32_t bytes) {
  const auto lead = std::uint32_t(base % 32);
  if (a.dense) return (a.first + lead + kLanes * bytes - 1) / 32 - (a.first + lead) / 32 + 1;
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
  __m512i turned = low;
  const __m512i next = _mm512_set_epi32(0, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
  for (int i = 0; i < 16; ++i) {
    fresh_high = __mmask16(fresh_high & ~_mm512_cmpeq_epi32_mask(high, turned));
    turned = _mm512_permutexvar_epi32(next, turned);
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

void count(Warp& w, const Op& op, bool store, bool shared, const Lanes& a, std::uint32_t bytes) {
  if (!w.worker->launch->options.counters) return;
  PcCounters& pc = w.worker->pc[op.inst];
  Counters& t = w.worker->totals;
  const std::uint64_t total = std::uint64_t(__builtin_popcount(a.active)) * bytes;
  if (shared) {
    if (!a.dense && !(bytes == 4 && banks_differ(a))) {
      alignas(64) std::uint32_t offset[kLanes];
      _mm512_store_si512(offset, a.low);
      _mm512_store_si512(offset + 16, a.high);
      return count_shared(w, op, store ? SharedKind::store : SharedKind::load, bytes, offset, a.active);
    }
    ++pc.requests;
    pc.wavefronts += bytes / 4;  // dense, or one pass
    pc.bytes += total;
    ++(store ? t.shared_store_requests : t.shared_load_requests);
    (store ? t.shared_store_wavefronts : t.shared_load_wavefronts) += bytes / 4;
    return;
  }
  const std::uint32_t n = count_sectors(a, w.worker->cache[op.inst].base, bytes);
  ++pc.requests;
  pc.sectors += n;
  pc.bytes += total;
  ++(store ? t.global_store_requests : t.global_load_requests);
  (store ? t.global_store_sectors : t.global_load_sectors) += n;
  (store ? t.global_store_bytes : t.global_load_bytes) += total;
}

// Whether nothing but the access itself and its race detection is wanted: no watching, no maps.
bool plain(const Warp& w) { return !w.suspect && !w.worker->accesses && !kThreadSanitizer; }

// Rows and permutations of words by whole warps, without a look at single lanes.
bool note_words(Warp& w, const Op& op, const Lanes& a, std::uint32_t bytes, bool store) {
  const auto use = store ? race::Use::write : race::Use::read;
  if (a.dense && op.where == Where::shared) return race::shared_row(w, op, a.first, bytes, use);
  if (a.dense)
    return race::global_row(
        w, op, *w.worker->cache[op.inst].allocation,
        a.first + (w.worker->cache[op.inst].base - w.worker->cache[op.inst].allocation->base), bytes, use);
  if (a.active != ~Mask(0) || bytes != 4 || op.where != Where::shared || !banks_differ(a)) return false;
  alignas(64) std::uint32_t offset[kLanes];
  _mm512_store_si512(offset, a.low);
  _mm512_store_si512(offset + 16, a.high);
  return race::shared_words(w, op, offset, use);
}

void note_race(Warp& w, const Op& op, const Lanes& a, std::uint32_t bytes, bool store) {
  if (note_words(w, op, a, bytes, store)) return;
  alignas(64) std::uint64_t addr[kLanes];
  alignas(64) std::byte* host[kLanes];
  const std::uint64_t base = op.where == Where::shared ? w.cta->shared_base() : w.worker->cache[op.inst].base;
  const __m512i from = _mm512_set1_epi64(std::int64_t(base)),
                at = _mm512_set1_epi64(std::int64_t(reinterpret_cast<std::uintptr_t>(a.host)));
  for (int i = 0; i < 4; ++i) {
    const __m512i v = i < 2 ? a.low : a.high;
    const __m512i wide =
        _mm512_cvtepu32_epi64(i % 2 ? _mm512_extracti64x4_epi64(v, 1) : _mm512_castsi512_si256(v));
    _mm512_store_si512(addr + 8 * i, _mm512_add_epi64(wide, from));
    _mm512_store_si512(reinterpret_cast<std::uint64_t*>(host) + 8 * i, _mm512_add_epi64(wide, at));
  }
  race::on_access(w, op, op.where, addr, bytes, store ? race::Use::write : race::Use::read, a.active, host,
                  store ? same_stored_value : nullptr);
}

bool locate(Warp& w, const Op& op, std::uint32_t bytes, Lanes& a) {
  a.active = w.active;
  return op.where == Where::shared ? shared_lanes(w, op, bytes, a) : global_lanes(w, op, bytes, a);
}
}  // namespace

void load_words(Warp& w, const Op& op) {
  const Elements& e = op.data_as<Elements>();
  const auto bytes = std::uint32_t(4 * e.count);
  Lanes a;
  if (!plain(w) || !locate(w, op, bytes, a) || !all_written(a, bytes)) return exec_load(w, op);
  count(w, op, false, op.where == Where::shared, a, bytes);
  const race::Section section(w, op);
  if (w.race) note_race(w, op, a, bytes, false);
  const auto low = __mmask16(a.active), high = __mmask16(a.active >> 16);
  if (a.dense && e.count == 1) {
    auto* to = w.row<std::uint32_t>(e.at[0]);
    _mm512_storeu_si512(to, _mm512_loadu_si512(a.host + a.first));
    _mm512_storeu_si512(to + 16, _mm512_loadu_si512(a.host + a.first + 64));
    return;
  }
  // The address row may be one of the destinations: its offsets are in registers by now.
  for (int i = 0; i < e.count; ++i) {
    auto* to = w.row<std::uint32_t>(e.at[std::size_t(i)]);
    const std::byte* from = a.host + 4 * i;
    _mm512_storeu_si512(to, _mm512_mask_i32gather_epi32(_mm512_loadu_si512(to), low, a.low, from, 1));
    _mm512_storeu_si512(to + 16,
                        _mm512_mask_i32gather_epi32(_mm512_loadu_si512(to + 16), high, a.high, from, 1));
  }
}

void store_words(Warp& w, const Op& op) {
  const Elements& e = op.data_as<Elements>();
  const auto bytes = std::uint32_t(4 * e.count);
  Lanes a;
  if (!plain(w) || w.taint || !locate(w, op, bytes, a) || !all_written(a, bytes)) return exec_store(w, op);
  if (op.where != Where::shared && w.worker->cache[op.inst].allocation->constant) return exec_store(w, op);
  count(w, op, true, op.where == Where::shared, a, bytes);
  const race::Section section(w, op);
  if (w.race) note_race(w, op, a, bytes, true);
  const auto low = __mmask16(a.active), high = __mmask16(a.active >> 16);
  if (a.dense && e.count == 1) {
    const auto* from = w.row<std::uint32_t>(e.at[0]);
    _mm512_storeu_si512(a.host + a.first, _mm512_loadu_si512(from));
    _mm512_storeu_si512(a.host + a.first + 64, _mm512_loadu_si512(from + 16));
    return;
  }
  for (int i = 0; i < e.count; ++i) {
    const auto* from = w.row<std::uint32_t>(e.at[std::size_t(i)]);
    std::byte* to = a.host + 4 * i;
    _mm512_mask_i32scatter_epi32(to, low, a.low, _mm512_loadu_si512(from), 1);
    _mm512_mask_i32scatter_epi32(to, high, a.high, _mm512_loadu_si512(from + 16), 1);
  }
}

#include "cgp/emu/isa_end.h"
#endif
