// SPDX-License-Identifier: Apache-2.0
// See race_lanes.h. Compiled twice, see isa_begin.h. Plain 64-bit logic without branches: compilers turn the
// loops into vectors.
#include "cgp/emu/race/race_lanes.h"

#if defined(CGP_EMU_AVX512)
#include <immintrin.h>
#endif

#include "cgp/emu/core/isa_begin.h"
namespace {
using u64 = std::uint64_t;
using u32 = std::uint32_t;

// Layout of stamps: race_clock.h.
constexpr u64 kForeignBit = u64(1) << 32, kGroupMask = (u64(1) << 34) - 1;

inline u64 ordered(const LaneRun& p, u64 x, u64 lane) {
  const u64 who = x >> 17 & 0x1ffff;
  return u64(x == 0) | (u64(x < p.limit) & u64(who >> 10 == p.rank)) | u64(who == p.thread + lane) |
         (u64(who >> 5 == p.warp) & u64(x >> 34 <= p.synced));
}
inline u64 stamp(const LaneRun& p, u64 lane) {
  return p.clock << 34 | (p.party + lane * p.lane_step) << 17 | p.inst;
}

// bit[s][k] is the bit of lane k >> s: variable shifts by 64-bit counts are no vectors to compilers.
struct Bits {
  u64 bit[6][1024];
  constexpr Bits() : bit() {
    for (u32 s = 0; s < 6; ++s)
      for (u32 k = 0; k < 32u << s; ++k) bit[s][k] = u64(1) << (k >> s);
  }
};
constexpr Bits kBits;

struct OneBit {
  u64 value;
  u64 operator[](u32) const { return value; }
};

template <class BitOf>
inline bool read_words(const LaneRun& p, BitOf bit_of, const u64* __restrict write, u64* __restrict reads,
                       u64* __restrict seen, u32* __restrict inst, u32 n) {
  u64 bad = 0;
  for (u32 k = 0; k < n; ++k) {
    const u64 bit = bit_of[k];
    const u64 r = reads[k], e = seen[k], at = e >> 32;
    const u64 clean = u64(r == 0) | (u64(r < p.read_limit) & u64((r & kForeignBit) == 0));
    const u64 mine = u64((r & p.group_bit) != 0) & (clean ^ 1);
    const u64 older = mine & u64(at != p.clock) & u64(at > p.synced) & u64((e & 0xffffffff & ~bit) != 0);
    bad |= (ordered(p, write[k], p.first_lane + (k >> p.shift)) ^ 1) | older;
  }
  if (bad) return false;
  const u64 now = p.clock << 32, last = p.clock << 34 | p.group_bit;
  for (u32 k = 0; k < n; ++k) {
    const u64 r = reads[k], e = seen[k];
    const u64 clean = u64(r == 0) | (u64(r < p.read_limit) & u64((r & kForeignBit) == 0));
    const u64 merge = u64((r & p.group_bit) != 0) & (clean ^ 1) & u64(e >> 32 == p.clock);
    seen[k] = now | bit_of[k] | (e & 0xffffffff & (0 - merge));
    reads[k] = last | (r & kGroupMask & (clean - 1));
  }
  for (u32 k = 0; k < n; ++k) inst[k] = u32(p.inst);
  return true;
}
}  // namespace

bool shared_read(const LaneRun& p, const u64* __restrict write, u64* __restrict reads, u64* __restrict seen,
                 u32* __restrict inst, u32 n) {
  if (p.shift < 6 && (p.first_lane << p.shift) + n <= 32u << p.shift)
    return read_words(p, &kBits.bit[p.shift][p.first_lane << p.shift], write, reads, seen, inst, n);
  return read_words(p, OneBit{u64(1) << p.first_lane}, write, reads, seen, inst, n);
}

bool shared_write(const LaneRun& p, u64* __restrict write, u64* __restrict reads, u32 n) {
  u64 bad = 0;
  for (u32 k = 0; k < n; ++k) {
    const u64 r = reads[k];
    const u64 clean = u64(r == 0) | (u64(r < p.read_limit) & u64((r & kForeignBit) == 0));
    bad |= (ordered(p, write[k], p.first_lane + (k >> p.shift)) & clean) ^ 1;
  }
  if (bad) return false;
  for (u32 k = 0; k < n; ++k) {
    write[k] = stamp(p, p.first_lane + (k >> p.shift));
    reads[k] = 0;
  }
  return true;
}

bool shared_read_at(const LaneRun& p, const u64* __restrict write, u64* __restrict reads,
                    u64* __restrict seen, u32* __restrict inst, const u32* __restrict at) {
  u64 r[32], e[32], bad = 0;
  for (u32 k = 0; k < 32; ++k) r[k] = reads[at[k]], e[k] = seen[at[k]];
  for (u32 k = 0; k < 32; ++k) {
    const u64 clean = u64(r[k] == 0) | (u64(r[k] < p.read_limit) & u64((r[k] & kForeignBit) == 0));
    const u64 mine = u64((r[k] & p.group_bit) != 0) & (clean ^ 1), when = e[k] >> 32;
    const u64 older =
        mine & u64(when != p.clock) & u64(when > p.synced) & u64((e[k] & 0xffffffff & ~kBits.bit[0][k]) != 0);
    bad |= (ordered(p, write[at[k]], k) ^ 1) | older;
  }
  if (bad) return false;
  const u64 now = p.clock << 32, last = p.clock << 34 | p.group_bit;
  for (u32 k = 0; k < 32; ++k) {
    const u64 clean = u64(r[k] == 0) | (u64(r[k] < p.read_limit) & u64((r[k] & kForeignBit) == 0));
    const u64 merge = u64((r[k] & p.group_bit) != 0) & (clean ^ 1) & u64(e[k] >> 32 == p.clock);
    e[k] = now | kBits.bit[0][k] | (e[k] & 0xffffffff & (0 - merge));
    r[k] = last | (r[k] & kGroupMask & (clean - 1));
  }
  for (u32 k = 0; k < 32; ++k) seen[at[k]] = e[k], reads[at[k]] = r[k], inst[at[k]] = u32(p.inst);
  return true;
}

bool shared_write_at(const LaneRun& p, u64* __restrict write, u64* __restrict reads,
                     const u32* __restrict at) {
  u64 bad = 0;
  for (u32 k = 0; k < 32; ++k) {
    const u64 r = reads[at[k]];
    const u64 clean = u64(r == 0) | (u64(r < p.read_limit) & u64((r & kForeignBit) == 0));
    bad |= (ordered(p, write[at[k]], k) & clean) ^ 1;
  }
  if (bad) return false;
  for (u32 k = 0; k < 32; ++k) write[at[k]] = stamp(p, k), reads[at[k]] = 0;
  return true;
}

namespace {
// Bit k of the answers: whether lane k's word is in range, or is one word.
#if defined(CGP_EMU_AVX512)
struct Words {
  __m512i low, high;
  explicit Words(const u32* from) : low(_mm512_loadu_si512(from)), high(_mm512_loadu_si512(from + 16)) {}
  u32 in_range(u32 base, u32 size, u32 bytes) {
    const __m512i b = _mm512_set1_epi32(int(base)), n = _mm512_set1_epi32(int(size)),
                  odd = _mm512_set1_epi32(int(bytes - 1));
    low = _mm512_sub_epi32(low, b), high = _mm512_sub_epi32(high, b);
    const auto fine = [&](__m512i v) {
      return u32(_mm512_mask_testn_epi32_mask(_mm512_cmplt_epu32_mask(v, n), v, odd));
    };
    return fine(low) | fine(high) << 16;
  }
  u32 equal(u32 x) const {
    const __m512i v = _mm512_set1_epi32(int(x));
    return u32(_mm512_cmpeq_epi32_mask(low, v)) | u32(_mm512_cmpeq_epi32_mask(high, v)) << 16;
  }
};
#else
struct Words {
  u32 at[32];
  explicit Words(const u32* from) {
    for (u32 k = 0; k < 32; ++k) at[k] = from[k];
  }
  u32 in_range(u32 base, u32 size, u32 bytes) {
    u32 m = 0;
    for (u32 k = 0; k < 32; ++k) {
      at[k] -= base;
      m |= u32((at[k] < size) & ((at[k] & (bytes - 1)) == 0)) << k;
    }
    return m;
  }
  u32 equal(u32 x) const {
    u32 m = 0;
    for (u32 k = 0; k < 32; ++k) m |= u32(at[k] == x) << k;
    return m;
  }
};
#endif
}  // namespace

u32 group_lanes(const u32* offset, u32 base, u32 size, u32 bytes, u32& mask, u32* distinct, u32* lanes) {
  Words words(offset);
  mask &= words.in_range(base, size, bytes);
  u32 n = 0;
  for (u32 left = mask; left; ++n) {
    distinct[n] = offset[__builtin_ctz(left)] - base;
    const u32 same = words.equal(distinct[n]) & left;
    lanes[n] = same;
    left &= ~same;
  }
  return n;
}

bool apart_by(const u32* __restrict offset, const u32* __restrict apart) {
  u32 wrong = 0;
  for (u32 k = 0; k < 32; ++k) wrong |= (offset[k] - offset[0]) ^ apart[k];
  return wrong == 0;
}

bool shared_read_by(const LaneRun& p, const u64* __restrict write, u64* __restrict reads,
                    u64* __restrict seen, u32* __restrict inst, const u32* __restrict at,
                    const u32* __restrict lanes, u32 n) {
  constexpr u64 kSeveral = u64(1) << 20;  // no lane's number: of several none wrote it alone
  u64 w[128], r[128], e[128], alone[128], bad = 0;
  for (u32 k = 0; k < n; ++k)  // apart: it is no vector, what follows is
    alone[k] = lanes[k] & (lanes[k] - 1) ? kSeveral : u64(__builtin_ctz(lanes[k]));
  for (u32 k = 0; k < n; ++k) w[k] = write[at[k]], r[k] = reads[at[k]], e[k] = seen[at[k]];
  for (u32 k = 0; k < n; ++k) {
    // Lane by lane, the first would have to be alone in an older read.
    const u64 bits = lanes[k], first = bits & (0 - bits);
    const u64 clean = u64(r[k] == 0) | (u64(r[k] < p.read_limit) & u64((r[k] & kForeignBit) == 0));
    const u64 mine = u64((r[k] & p.group_bit) != 0) & (clean ^ 1), when = e[k] >> 32;
    const u64 older =
        mine & u64(when != p.clock) & u64(when > p.synced) & u64((e[k] & 0xffffffff & ~first) != 0);
    bad |= (ordered(p, w[k], alone[k]) ^ 1) | older;
  }
  if (bad) return false;
  const u64 now = p.clock << 32, last = p.clock << 34 | p.group_bit;
  for (u32 k = 0; k < n; ++k) {
    const u64 clean = u64(r[k] == 0) | (u64(r[k] < p.read_limit) & u64((r[k] & kForeignBit) == 0));
    const u64 merge = u64((r[k] & p.group_bit) != 0) & (clean ^ 1) & u64(e[k] >> 32 == p.clock);
    e[k] = now | lanes[k] | (e[k] & 0xffffffff & (0 - merge));
    r[k] = last | (r[k] & kGroupMask & (clean - 1));
  }
  for (u32 k = 0; k < n; ++k) seen[at[k]] = e[k], reads[at[k]] = r[k], inst[at[k]] = u32(p.inst);
  return true;
}

namespace {
// 1: who is ordered behind the read of unit k by `p` may not be behind the read `x` of cluster `of`.
inline u64 open_read(const LaneRun& p, u32 k, u64 x, u64 of) {
  const u64 lane = p.first_lane + (k >> p.shift),
            own = u64((x >> 17 & 0x1ffff) == p.party + lane * p.lane_step);
  const u64 covered = own | (u64(p.party == p.thread) & ordered(p, x, lane));
  return u64(x != 0) & ((covered & u64(of == p.me)) ^ 1);
}
}  // namespace

bool global_read(const LaneRun& p, const u64* __restrict write, const u32* __restrict writer,
                 u64* __restrict read, u32* __restrict reader, u64* __restrict older,
                 u32* __restrict older_reader, u32 n) {
  if (write) {
    u64 bad = 0;
    for (u32 k = 0; k < n; ++k) {
      const u64 x = write[k];
      bad |= (ordered(p, x, p.first_lane + (k >> p.shift)) & (u64(writer[k] == p.me) | u64(x == 0))) ^ 1;
    }
    if (bad) return false;
  }
  u64 lost = 0;  // a reader that this one does not cover, and no place for it
  for (u32 k = 0; k < n; ++k)
    lost |= open_read(p, k, read[k], reader[k]) & (older ? open_read(p, k, older[k], older_reader[k]) : 1);
  if (lost) return false;
  for (u32 k = 0; older && k < n; ++k) {
    const u64 x = read[k], keep = 0 - open_read(p, k, x, reader[k]);
    older[k] = (x & keep) | (older[k] & ~keep);
    older_reader[k] = (reader[k] & u32(keep)) | (older_reader[k] & ~u32(keep));
  }
  for (u32 k = 0; k < n; ++k) read[k] = stamp(p, p.first_lane + (k >> p.shift));
  for (u32 k = 0; k < n; ++k) reader[k] = p.me;
  return true;
}

bool global_write(const LaneRun& p, u64* __restrict write, u32* __restrict writer, u64* __restrict read,
                  const u32* __restrict reader, u64* __restrict older, const u32* __restrict older_reader,
                  u32 n) {
  u64 bad = 0;
  for (u32 k = 0; k < n; ++k) {
    const u64 lane = p.first_lane + (k >> p.shift), x = write[k], r = read[k];
    bad |= (ordered(p, x, lane) & (u64(writer[k] == p.me) | u64(x == 0)) & ordered(p, r, lane) &
            (u64(reader[k] == p.me) | u64(r == 0))) ^
           1;
  }
  if (older)
    for (u32 k = 0; k < n; ++k) {
      const u64 lane = p.first_lane + (k >> p.shift), x = older[k];
      bad |= (ordered(p, x, lane) & (u64(older_reader[k] == p.me) | u64(x == 0))) ^ 1;
    }
  if (bad) return false;
  for (u32 k = 0; k < n; ++k) write[k] = stamp(p, p.first_lane + (k >> p.shift));
  for (u32 k = 0; k < n; ++k) writer[k] = p.me;
  for (u32 k = 0; k < n; ++k) read[k] = 0;
  if (older)
    for (u32 k = 0; k < n; ++k) older[k] = 0;
  return true;
}
#include "cgp/emu/core/isa_end.h"
