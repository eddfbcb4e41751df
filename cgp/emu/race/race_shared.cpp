// SPDX-License-Identifier: Apache-2.0
// The shadow of shared memory: exact for every reader. Words, or bytes in pages that saw narrow accesses.
#include <algorithm>

#include "cgp/emu/race/race_rows.h"
#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

namespace {
constexpr std::uint64_t kForeign = std::uint64_t(1) << 32;
constexpr std::uint64_t kGroups = (std::uint64_t(1) << kClockShift) - 1;

template <class T>
void spread(std::vector<T>& v, int by) {
  std::vector<T> wide(v.size() * std::size_t(by));
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = v[i / std::size_t(by)];
  v = std::move(wide);
}

SharedPage& page_of(SharedShadow& shadow, std::uint32_t offset) {
  const std::size_t index = offset / SharedPage::kBytes;
  if (index >= shadow.pages.size()) shadow.pages.resize(index + 1);
  auto& p = shadow.pages[index];
  if (!p) {
    p = std::make_unique<SharedPage>();
  }
  return *p;
}

Plane& plane_of(SharedPage& p, std::size_t group) {
  if (group >= p.planes.size()) p.planes.resize(group + 1);
  auto& plane = p.planes[group];
  if (!plane) plane = std::make_unique<Plane>();
  return *plane;
}

// With a place for each word.
Plane& words_of(SharedPage& p, std::size_t group) {
  Plane& plane = plane_of(p, group);
  if (plane.seen.empty()) plane.seen.resize(p.write.size()), plane.inst.resize(p.write.size());
  return plane;
}

std::size_t group_of(SharedShadow& shadow, std::uint32_t warp, std::uint32_t rank) {
  if (warp / kWarpsPerCta == rank && warp < kThreadWarps) return warp % kWarpsPerCta;
  const auto it = std::find(shadow.foreign.begin(), shadow.foreign.end(), warp);
  if (it != shadow.foreign.end()) return 32 + std::size_t(it - shadow.foreign.begin());
  shadow.foreign.push_back(warp);
  return 31 + shadow.foreign.size();
}

// One contiguous access of units of one page.
struct Run {
  const Accessor& a;
  CtaState& owner;
  SharedPage* page = nullptr;
  std::uint32_t page_at = 0;  // offset of the page
  std::uint32_t first = 0, count = 0;
  int lane = 0;               // of the first unit
  int lane_shift = kOneLane;  // unit k is of lane + (k >> lane_shift)
  Mask mask = 0;              // with kOneLane: who accesses
  std::size_t group = 0;
  Plane* plane = nullptr;
  std::uint64_t group_bit = 0;
  mutable Stamp last_ok = 0;                      // of one lane: passed already
  mutable std::vector<std::uint64_t> readers_ok;  // by group

  static constexpr int kOneLane = 31;

  Run(const Accessor& accessor, CtaState& o) : a(accessor), owner(o) {
    group = group_of(owner.shadow, a.id(0) >> 5, rank());
    group_bit = group < 32 ? std::uint64_t(1) << group : kForeign;
  }
  void turn_to(std::uint32_t offset) {
    const std::uint32_t start = offset / SharedPage::kBytes * SharedPage::kBytes;
    if (page && start == page_at) return;
    page_at = start;
    page = &page_of(owner.shadow, page_at);
    page->settle(~0u);
    plane = a.use == Use::read ? &words_of(*page, group) : nullptr;
  }

  int lane_of(std::uint32_t k) const { return lane + int(k >> lane_shift); }
  Mask mask_of(std::uint32_t k) const { return lane_shift == kOneLane ? mask : lane_bit(lane_of(k)); }
  Mask party_mask(std::uint32_t k) const { return a.id_step ? mask_of(k) : lane_bit(int(a.id_base & 31)); }
  std::uint32_t rank() const { return owner.cta->rank; }
  bool must_fence() const { return a.proxy == Proxy::async && a.use == Use::read; }
  Spot spot(std::uint32_t k) const {
    return {true, rank(), page_at + ((first + k) << page->shift), std::uint32_t(1) << page->shift};
  }
  bool quick(Stamp x, int l) const { return x == 0 || (a.quick(x, l) && !must_fence()); }
  bool fresh(std::uint64_t r) const { return r < a.limit && !(r & kForeign) && a.rank == rank(); }

  void go() {
    if (fast()) return;
    if (a.use == Use::read)
      read();
    else
      write();
  }
  bool passed(Stamp x) const { return x == last_ok && lane_shift == kOneLane; }
  bool fast() const;
  Mask each(const std::uint32_t* offset, Mask lanes);
  Mask each_word(const std::uint32_t* offset, Mask lanes);
  void check_write(std::uint32_t k) const;
  void read() const;
  void write() const;
  void check_readers(std::uint32_t k, std::uint64_t r) const;
  void check_reader(std::uint32_t k, std::size_t from, Mask readers, std::uint32_t clock,
                    std::uint32_t inst) const;
};

// Each lane's words, as long as they lie in the page of the first lane and nothing needs a closer look.
// Returns the lanes that are left.
Mask Run::each(const std::uint32_t* offset, Mask lanes) {
  turn_to(offset[std::countr_zero(lanes)]);
  if (page->shift != 2 || (a.bytes & 3) || must_fence()) return lanes;
  Stamp* const write = page->write.data();
  std::uint64_t* const read = page->reads.data();
  std::uint64_t* const seen = plane ? plane->seen.data() : nullptr;
  std::uint32_t* const inst = plane ? plane->inst.data() : nullptr;
  // Copies: the stores below could change what they are copies of, for all that a compiler knows.
  const std::uint64_t limit = a.limit, read_limit = a.rank == rank() ? a.limit : 0, bit_of_group = group_bit;
  const std::uint64_t synced = a.s.synced, clock = a.clock;
  const std::uint32_t own_rank = a.rank, warp = a.s.wid, start = page_at, words = a.bytes >> 2, id = a.inst;
  const bool reading = a.use == Use::read, many = a.id_step != 0;
  const Stamp first_stamp = a.stamp(0), step = std::uint64_t(a.id_step) << kInstBits;
  const Mask agent_bit = lane_bit(int(a.id_base & 31));
  const std::uint64_t now = clock << 32, last = clock << kClockShift | bit_of_group;
  Mask left = 0;
  for (Mask m = lanes; m; m &= m - 1) {
    const int l = std::countr_zero(m);
    const std::uint32_t at = offset[l] - start, begin = at >> 2;
    bool good = !(at & 3) && at < SharedPage::kBytes && at + 4 * words <= SharedPage::kBytes;
    const std::uint64_t bit = many ? lane_bit(l) : agent_bit;
    for (std::uint32_t u = begin; good && u < begin + words; ++u) {
      const Stamp x = write[u];
      const std::uint64_t r = read[u];
      const std::uint32_t who = id_of(x);
      good = x == 0 || (x < limit && who >> 10 == own_rank) || who == (warp << 5 | std::uint32_t(l)) ||
             (who >> 5 == warp && clock_of(x) <= synced);
      if (r == 0 || (r < read_limit && !(r & kForeign))) continue;
      if (!reading)
        good = false;
      else if (r & bit_of_group)
        good = good && (seen[u] >> 32 == clock || seen[u] >> 32 <= synced || !(seen[u] & 0xffffffff & ~bit));
    }
    if (!good) {
      left |= lane_bit(l);
      continue;
    }
    for (std::uint32_t u = begin; u < begin + words; ++u) {
      if (!reading) {
        write[u] = first_stamp + step * std::uint64_t(l);
        read[u] = 0;
        continue;
      }
      const std::uint64_t r = read[u];
      const bool clean = r == 0 || (r < read_limit && !(r & kForeign));
      const bool merge = !clean && (r & bit_of_group) && seen[u] >> 32 == clock;
      seen[u] = now | bit | (merge ? seen[u] & 0xffffffff : 0);
      inst[u] = id;
      read[u] = last | (clean ? 0 : r & kGroups);
    }
  }
  return left;
}

// As each(), for reads: lanes that read the same words are one. Unless all is well, nothing is done.
Mask Run::each_word(const std::uint32_t* offset, Mask lanes) {
  const bool words = a.bytes >= 4 && a.bytes <= 16 && !(a.bytes & (a.bytes - 1));
  if (!a.s.cluster->launch->together || !words || a.use != Use::read || !a.id_step || group >= 32 ||
      must_fence())
    return lanes;
  turn_to(offset[std::countr_zero(lanes)]);
  if (page->shift != 2) return lanes;
  Mask here = lanes;
  std::uint32_t first_byte[kLanes], who[kLanes], at[4 * kLanes], by[4 * kLanes], n = 0;
  const auto& all = a.s.cluster->launch->lanes;
  const std::uint32_t distinct =
      all.group_lanes(offset, page_at, SharedPage::kBytes, a.bytes, here, first_byte, who);
  for (std::uint32_t i = 0; i < distinct; ++i)
    for (std::uint32_t u = 0; u < a.bytes >> 2; ++u) at[n] = (first_byte[i] >> 2) + u, by[n++] = who[i];
  LaneRun p = a.lane_run(0, 0);
  p.read_limit = a.rank == rank() ? a.limit : 0;
  p.group_bit = group_bit;
  const bool done = n > 0 && all.shared_read_by(p, page->write.data(), page->reads.data(), plane->seen.data(),
                                                plane->inst.data(), at, by, n);
  return done ? lanes & ~here : lanes;
}

bool Run::fast() const {
  if (must_fence() || (lane_shift == kOneLane && (mask & (mask - 1)))) return false;
  LaneRun p = a.lane_run(lane, lane_shift);
  p.read_limit = a.rank == rank() ? a.limit : 0;
  p.group_bit = group_bit;
  if (a.use == Use::read)
    return group < 32 &&
           a.s.cluster->launch->lanes.shared_read(p, &page->write[first], &page->reads[first],
                                                  &plane->seen[first], &plane->inst[first], count);
  return a.s.cluster->launch->lanes.shared_write(p, &page->write[first], &page->reads[first], count);
}

void Run::check_write(std::uint32_t k) const {
  const Stamp x = page->write[first + k];
  const std::uint32_t cluster = a.s.cluster->index;
  bool fine = true;
  for_lanes(mask_of(k), [&](int l) {
    if (quick(x, l)) return;
    if (!before(a, l, cluster, x)) {
      fine = false;
      conflict(a, l, cluster, x, Use::write, spot(k));
    } else if (must_fence() && !proxied(a, l, cluster, x)) {
      fine = false;
      missing_proxy_fence(a, l, cluster, x, spot(k));
    }
  });
  if (fine) last_ok = x;
}

void Run::read() const {
  for (std::uint32_t k = 0; k < count; ++k)
    if (const Stamp x = page->write[first + k]; x && !passed(x)) check_write(k);
  const std::uint64_t last = std::uint64_t(a.clock) << kClockShift;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t u = first + k;
    const std::uint64_t r = page->reads[u], e = plane->seen[u];
    const Mask m = party_mask(k);
    const bool clean = r == 0 || fresh(r);
    Mask merged = m;
    if (!clean && (r & group_bit)) {
      const auto at = std::uint32_t(e >> 32);
      if (at == a.clock) {
        merged |= Mask(e);
      } else if (at > a.s.synced && (Mask(e) & ~m)) {
        if (plane->older.empty()) plane->older.resize(page->write.size());
        auto& older = plane->older[u];
        for (auto& x : older) x.mask &= ~Mask(e);
        std::erase_if(older, [](const Plane::Read& x) { return !x.mask; });
        older.push_back({Mask(e), at, plane->inst[u]});
      }
    }
    plane->seen[u] = std::uint64_t(a.clock) << 32 | merged;
    plane->inst[u] = a.inst;
    page->reads[u] = last | (clean ? 0 : r & kGroups) | group_bit;
  }
}

void Run::check_reader(std::uint32_t k, std::size_t from, Mask readers, std::uint32_t clock,
                       std::uint32_t inst) const {
  const std::uint32_t warp =
      from < 32 ? rank() * kWarpsPerCta + std::uint32_t(from) : owner.shadow.foreign[from - 32];
  const std::uint32_t cluster = a.s.cluster->index;
  for_lanes(mask_of(k), [&](int l) {
    const Mask unknown = readers & ~known_lanes(a.s.view[std::size_t(l)]->now.known, cluster, warp, clock);
    for_lanes(unknown, [&](int reader) {
      const Stamp x = make_stamp(clock, warp << 5 | std::uint32_t(reader), inst);
      if (!before(a, l, cluster, x)) conflict(a, l, cluster, x, Use::read, spot(k));
    });
  });
}

void Run::check_readers(std::uint32_t k, std::uint64_t r) const {
  const std::uint32_t u = first + k;
  const auto look = [&](std::size_t from) {
    if (from >= page->planes.size() || !page->planes[from]) return;
    Plane& other = *page->planes[from];
    if (other.seen.empty()) return;
    const std::uint64_t e = other.seen[u];
    if (lane_shift == kOneLane) {  // neighbours usually have the same readers
      if (from >= readers_ok.size()) readers_ok.resize(from + 1);
      if (e && readers_ok[from] != e) check_reader(k, from, Mask(e), std::uint32_t(e >> 32), other.inst[u]);
      readers_ok[from] = e;
    } else if (e) {
      check_reader(k, from, Mask(e), std::uint32_t(e >> 32), other.inst[u]);
    }
    if (other.older.empty()) return;
    auto& older = other.older[u];
    for (const auto& x : older) check_reader(k, from, x.mask, x.clock, x.inst);
    older.clear();
  };
  for_lanes(Mask(r), [&](int g) { look(std::size_t(g)); });
  if (r & kForeign)
    for (std::size_t i = 0; i < owner.shadow.foreign.size(); ++i) look(32 + i);
}

void Run::write() const {
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t u = first + k;
    if (const Stamp x = page->write[u]; x && !passed(x)) check_write(k);
    if (const std::uint64_t r = page->reads[u]; r && !fresh(r)) check_readers(k, r);
    page->write[u] = a.stamp(lane_of(k));
    page->reads[u] = 0;
  }
}

// [offset, offset + bytes) page by page, on behalf of `mask`; with lane_bytes > 0 each lane from `lane` on
// has so many of them.
void walk(Run& run, std::uint32_t offset, std::uint64_t bytes, int lane, Mask mask,
          std::uint32_t lane_bytes) {
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const std::uint64_t stop =
        std::min<std::uint64_t>(end, (at / SharedPage::kBytes + 1) * SharedPage::kBytes);
    run.turn_to(std::uint32_t(at));
    SharedPage& page = *run.page;
    if (page.shift && ((at | stop | lane_bytes) & 3)) page.to_bytes();
    run.first = std::uint32_t(at - run.page_at) >> page.shift;
    run.count = std::uint32_t(stop - at) >> page.shift;
    run.lane = lane_bytes ? lane + int((at - offset) / lane_bytes) : lane;
    run.lane_shift = lane_bytes ? std::countr_zero(lane_bytes) - page.shift : Run::kOneLane;
    run.mask = mask;
    run.go();
    at = stop;
  }
}
}  // namespace

void SharedPage::settle(std::uint32_t which) {
  which &= rows;
  if (!which) return;
  rows &= ~which;
  settled += std::uint32_t(std::popcount(which));
  if (write.empty()) write.resize(kBytes / 4), reads.resize(kBytes / 4);
  for_lanes(which, [&](int i) {
    const Line& line = lines[std::size_t(i)];
    const std::size_t first = std::size_t(i) * kLineWords;
    for (std::uint32_t k = 0; k < kLineWords; ++k) {
      write[first + k] = line.write.stamp(k);
      reads[first + k] = line.reads;
    }
    for_lanes(Mask(line.reads), [&](int group) {
      Plane& p = words_of(*this, std::size_t(group));
      const RowMark& mark = p.lines[std::size_t(i)];
      for (std::uint32_t k = 0; k < kLineWords; ++k) {
        p.seen[first + k] = std::uint64_t(mark.clock) << 32 | lane_bit(int(mark.map.lane(k)));
        p.inst[first + k] = mark.inst;
      }
    });
  });
}

void SharedPage::to_bytes() {
  settle(~0u);
  spread(write, 1 << shift);
  spread(reads, 1 << shift);
  for (auto& p : planes) {
    if (!p) continue;
    spread(p->seen, 1 << shift), spread(p->inst, 1 << shift);
    std::vector<std::vector<Plane::Read>> older(p->older.size() << shift);  // each goes with its first byte
    for (std::size_t i = 0; i < p->older.size(); ++i) older[i << shift] = std::move(p->older[i]);
    p->older = std::move(older);
  }
  shift = 0;
}

void shared_access(const Accessor& a, CtaState& owner, const std::uint32_t* offset) {
  Run run(a, owner);
  if (a.lanes == ~Mask(0)) {
    std::uint32_t apart = 0;
    for (std::uint32_t l = 0; l < kLanes; ++l) apart |= (offset[l] - offset[0]) ^ (l * a.bytes);
    if (apart == 0) return walk(run, offset[0], std::uint64_t(kLanes) * a.bytes, 0, 0, a.bytes);
  }
  Mask left = a.lanes;
  // Warps that read one address: once for all.
  if (a.use == Use::read && (left & (left - 1))) {
    const int first = std::countr_zero(left);
    bool alike = true;
    for_lanes(left, [&](int l) { alike = alike && offset[l] == offset[first]; });
    if (alike) return walk(run, offset[first], a.bytes, first, left, 0);
  }
  const auto quickly = [&] {
    const Mask rest = run.each_word(offset, left);
    return rest != left ? rest : run.each(offset, left);
  };
  left = quickly();
  while (left) {
    const int l = std::countr_zero(left);
    if (offset[l] / SharedPage::kBytes * SharedPage::kBytes != run.page_at) {
      const Mask rest = quickly();
      if (rest != left) {
        left = rest;
        continue;
      }
    }
    walk(run, offset[l], a.bytes, l, lane_bit(l), 0);
    left &= left - 1;
  }
}

namespace {
void touch(WarpState& s) { s.touched = s.touched_part = ~Mask(0); }

// Whole lines of a page of the own block, as rows. The map is that of the first line. False: nothing was
// done.
bool access_lines(SharedPage& page, std::uint32_t first, std::uint32_t n, const RowParty& p, LaneMap map,
                  std::size_t group, Use use) {
  const std::uint32_t which = lines_of(first * kLineBytes, n * kLineBytes);
  if ((page.rows & which) != which) return false;
  const std::uint64_t limit = std::uint64_t(p.base + 1) << kClockShift, bit = std::uint64_t(1) << group;
  const auto step = std::uint8_t(kLineWords >> map.shift);
  Plane* const plane = use == Use::read ? &plane_of(page, group) : nullptr;
  LaneMap at = map;
  for (std::uint32_t i = first; i < first + n; ++i, at.first = std::uint8_t(at.first + step)) {
    const SharedPage::Line& line = page.lines[i];
    if (!ordered(p, line.write, at)) return false;
    if (line.reads < limit) continue;
    if (!plane) return false;
    const RowMark& mine = plane->lines[i];
    if ((line.reads & bit) && !(mine.map == at) && (mine.clock == p.clock || mine.clock > p.synced))
      return false;
  }
  at = map;
  for (std::uint32_t i = first; i < first + n; ++i, at.first = std::uint8_t(at.first + step)) {
    SharedPage::Line& line = page.lines[i];
    if (plane) {
      plane->lines[i] = p.mark(at);
      line.reads =
          std::uint64_t(p.clock) << kClockShift | bit | (line.reads < limit ? 0 : line.reads & kGroups);
    } else {
      line = {p.mark(at), 0};
    }
  }
  return true;
}

// After a write of words that are all the words of these lines.
void back_to_rows(SharedPage& page, std::uint32_t first, std::uint32_t n, const RowParty& p, LaneMap map) {
  if (page.settled > kSettleOften) return;
  for (std::uint32_t i = first; i < first + n; ++i) {
    page.lines[i] = {p.mark(map), 0};
    map.first = std::uint8_t(map.first + (kLineWords >> map.shift));
  }
  page.rows |= lines_of(first * kLineBytes, n * kLineBytes);
}

// The words at[l] of lanes l.
bool access_words(Warp& w, SharedPage& page, const RowParty& party, const std::uint32_t* at, Use use) {
  LaneRun p = lane_run(party);
  p.group_bit = std::uint64_t(1) << w.index;
  const auto& lanes = w.race->cluster->launch->lanes;
  if (use != Use::read) return lanes.shared_write_at(p, page.write.data(), page.reads.data(), at);
  Plane& plane = words_of(page, w.index);
  return lanes.shared_read_at(p, page.write.data(), page.reads.data(), plane.seen.data(), plane.inst.data(),
                              at);
}
}  // namespace

namespace {
// [inside, inside + size) of a page by lanes from map.first on.
bool access_row(Warp& w, SharedPage& page, const RowParty& party, std::uint32_t inside, std::uint32_t size,
                LaneMap map, Use use) {
  if (page.shift != 2) return false;
  const bool whole = inside % kLineBytes == 0;
  const std::uint32_t line = inside / kLineBytes, n = size / kLineBytes;
  if (whole && access_lines(page, line, n, party, map, w.index, use)) return true;
  page.settle(lines_of(inside, size));
  LaneRun p = lane_run(party);
  p.group_bit = std::uint64_t(1) << w.index;
  p.first_lane = map.first, p.shift = map.shift;
  const std::uint32_t first = inside / 4;
  const auto& lanes = w.race->cluster->launch->lanes;
  if (use == Use::read) {
    Plane& plane = words_of(page, w.index);
    return lanes.shared_read(p, &page.write[first], &page.reads[first], &plane.seen[first],
                             &plane.inst[first], size / 4);
  }
  if (!lanes.shared_write(p, &page.write[first], &page.reads[first], size / 4)) return false;
  if (whole) back_to_rows(page, line, n, party, map);
  return true;
}
std::uint8_t shift_of(std::uint32_t bytes) { return std::uint8_t(std::countr_zero(bytes) - 2); }
}  // namespace

bool shared_row(Warp& w, const Op& op, std::uint32_t offset, std::uint32_t bytes, Use use) {
  RowParty party;
  const std::uint32_t size = kLanes * bytes, inside = offset % SharedPage::kBytes;
  if (((offset | bytes) & 3) || inside + size > SharedPage::kBytes || !whole_warp(w, op, party)) return false;
  SharedPage& page = page_of(w.race->cta->shadow, offset);
  if (!access_row(w, page, party, inside, size, {shift_of(bytes), 0, 0}, use)) return false;
  touch(*w.race);
  return true;
}

// A line that needs a closer look stops it: what was noted before is noted again then, which changes nothing.
bool shared_lines(Warp& w, const Op& op, const std::uint32_t* line, std::uint32_t bytes, Use use) {
  RowParty party;
  if (!whole_warp(w, op, party)) return false;
  for (std::uint32_t lane = 0; lane < kLanes; lane += kLineBytes / bytes, ++line) {
    SharedPage& page = page_of(w.race->cta->shadow, *line);
    const LaneMap map{shift_of(bytes), std::uint8_t(lane), 0};
    if (!access_row(w, page, party, *line % SharedPage::kBytes, kLineBytes, map, use)) return false;
  }
  touch(*w.race);
  return true;
}

bool shared_line(Warp& w, const Op& op, std::uint32_t offset, std::uint32_t turn, Use use) {
  RowParty party;
  if (!whole_warp(w, op, party)) return false;
  SharedPage& page = page_of(w.race->cta->shadow, offset);
  if (page.shift != 2) return false;
  const LaneMap map{0, 0, std::uint8_t(turn)};
  const std::uint32_t line = offset % SharedPage::kBytes / kLineBytes;
  if (!access_lines(page, line, 1, party, map, w.index, use)) {
    page.settle(1u << line);
    std::uint32_t at[kLanes];
    for (std::uint32_t l = 0; l < kLanes; ++l) at[l] = line * kLineWords + (l ^ turn);
    if (!access_words(w, page, party, at, use)) return false;
    if (use != Use::read) back_to_rows(page, line, 1, party, map);
  }
  touch(*w.race);
  return true;
}

bool shared_words(Warp& w, const Op& op, const std::uint32_t* offset, Use use) {
  std::uint32_t at[kLanes], wrong = 0;
  const std::uint32_t start = offset[0] / SharedPage::kBytes * SharedPage::kBytes;
  for (int l = 0; l < kLanes; ++l) {
    const std::uint32_t x = offset[l] - start;
    wrong |= (x / SharedPage::kBytes) | (x & 3);
    at[l] = x / 4;
  }
  RowParty party;
  if (wrong || !whole_warp(w, op, party)) return false;
  SharedPage& page = page_of(w.race->cta->shadow, start);
  if (page.shift != 2) return false;
  page.settle(~0u);
  if (!access_words(w, page, party, at, use)) return false;
  touch(*w.race);
  return true;
}

namespace {
void make_pattern(const LaunchState& launch, const std::uint32_t* offset, std::uint32_t bytes,
                  ReadPattern& p) {
  const std::uint32_t least = *std::min_element(offset, offset + kLanes);
  for (std::size_t l = 0; l < kLanes; ++l) p.apart[l] = offset[l] - offset[0];
  p.bytes = bytes, p.least = least - offset[0], p.span = 0, p.units = 0;
  std::uint32_t place[kLanes], who[kLanes];
  Mask all = ~Mask(0);
  const std::uint32_t n = launch.lanes.group_lanes(offset, least, ~0u, bytes, all, place, who);
  if (all != ~Mask(0)) return;
  for (std::uint32_t i = 0; i < n; ++i) {
    p.span = std::max(p.span, place[i] + bytes);
    for (std::uint32_t u = 0; u < bytes >> 2; ++u)
      p.at[p.units] = (place[i] >> 2) + u, p.by[p.units++] = who[i];
  }
}
}  // namespace

bool shared_groups(Warp& w, const Op& op, const std::uint32_t* offset, std::uint32_t bytes) {
  RowParty party;
  if (!whole_warp(w, op, party)) return false;
  WarpState& s = *w.race;
  const LaunchState& launch = *s.cluster->launch;
  if (!s.patterns) s.patterns = std::make_unique<std::array<ReadPattern, 4>>();
  auto* p = std::find_if(s.patterns->begin(), s.patterns->end(), [&](const ReadPattern& x) {
    return x.bytes == bytes && launch.lanes.apart_by(offset, x.apart.data());
  });
  if (p == s.patterns->end()) {
    p = &(*s.patterns)[s.patterns_made++ % s.patterns->size()];
    make_pattern(launch, offset, bytes, *p);
  }
  const std::uint32_t least = offset[0] + p->least, inside = least % SharedPage::kBytes;
  if (p->units == 0 || least % bytes || inside + p->span > SharedPage::kBytes) return false;
  SharedPage& page = page_of(s.cta->shadow, least);
  if (page.shift != 2) return false;
  page.settle(~0u);
  LaneRun run = lane_run(party);
  run.group_bit = std::uint64_t(1) << w.index;
  Plane& plane = words_of(page, w.index);
  const std::uint32_t first = inside / 4;
  if (!launch.lanes.shared_read_by(run, &page.write[first], &page.reads[first], &plane.seen[first],
                                   &plane.inst[first], p->at.data(), p->by.data(), p->units))
    return false;
  touch(s);
  return true;
}

void shared_range(const Accessor& a, int lane, CtaState& owner, std::uint32_t offset, std::uint64_t bytes) {
  Run run(a, owner);
  walk(run, offset, bytes, lane, lane_bit(lane), 0);
}

}  // namespace cgp::emu::race
