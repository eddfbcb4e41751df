// SPDX-License-Identifier: Apache-2.0
// The shadow of global memory: the last write, the last reader and one before it per word (per byte in pages
// that saw narrow accesses), and what further readers there are beside them (race_readers.cpp). A reader is
// forgotten when the next one is ordered behind it: who knows of that one knows of both.
#include <algorithm>
#include <thread>

#include "cgp/emu/race/race_rows.h"
#include "cgp/emu/race/race_state.h"

namespace cgp::emu::race {

namespace {
template <class T>
void spread(std::vector<T>& v, int by) {
  std::vector<T> wide(v.size() * std::size_t(by));
  for (std::size_t i = 0; i < wide.size(); ++i) wide[i] = v[i / std::size_t(by)];
  v = std::move(wide);
}

GlobalShadow& shadow_of(LaunchState& l, const Allocation& a) {
  {
    std::shared_lock lock(l.shadows_mutex);
    if (const auto it = l.shadows.find(&a); it != l.shadows.end()) return *it->second;
  }
  std::unique_lock lock(l.shadows_mutex);
  auto& p = l.shadows[&a];
  if (!p) p = std::make_unique<GlobalShadow>(a.size);
  return *p;
}

class PageLock {
 public:
  PageLock(GlobalPage& page, bool needed) : page_(needed ? &page : nullptr) {
    // Who has it may not be running.
    for (int tries = 0; page_ && page_->busy.test_and_set(std::memory_order_acquire);)
      if (++tries % 64 == 0) std::this_thread::yield();
  }
  ~PageLock() {
    if (page_) page_->busy.clear(std::memory_order_release);
  }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  GlobalPage* page_;
};

// Whether who is ordered behind a read by `lane` now is ordered behind the access stamped `x` too, as far as
// a quick look tells. What asynchronous operations do passes nothing on.
bool covers(const Accessor& a, int lane, Stamp x, std::uint32_t cluster) {
  if (!x) return true;
  if (cluster != a.s.cluster->index + 1) return false;
  return id_of(x) == a.id(lane) || (!a.agent && a.quick(x, lane));
}

// Unit u is about to be read by `lane`: who read it before gets another place, in `older`, unless it is
// covered.
void set_aside(const Accessor& a, GlobalPage& page, std::uint32_t u, int lane) {
  const Stamp x = page.read[u];
  if (covers(a, lane, x, page.reader[u])) return;
  const Stamp y = page.older[u];
  if (!covers(a, lane, y, page.older_reader[u])) page.more_of(u).add(u % 32, page.older_reader[u], y);
  page.older[u] = x;
  page.older_reader[u] = page.reader[u];
}

struct Run {
  const Accessor& a;
  GlobalPage& page;
  std::uint64_t page_address;
  std::uint32_t first, count;
  int lane;          // of the first unit
  int lane_shift;    // unit k is of lane + (k >> lane_shift)
  std::uint32_t me;  // cluster + 1

  static constexpr int kOneLane = 31;

  int lane_of(std::uint32_t k) const { return lane + int(k >> lane_shift); }
  Spot spot(std::uint32_t k) const {
    return {false, 0, page_address + ((first + k) << page.shift), std::uint32_t(1) << page.shift};
  }
  bool must_fence() const { return a.proxy != Proxy::generic && a.use == Use::read; }
  void check(std::uint32_t k, Stamp x, std::uint32_t cluster, Use other) const {
    const int l = lane_of(k);
    if (!x || (cluster == me && a.quick(x, l) && !must_fence())) return;
    if (!before(a, l, cluster - 1, x))
      conflict(a, l, cluster - 1, x, other, spot(k));
    else if (cluster != me && a.s.view[std::size_t(l)]->firm)
      check_firm(a, l, cluster - 1, x, other, spot(k));
    else if (must_fence() && !proxied(a, l, cluster - 1, x))
      missing_proxy_fence(a, l, cluster - 1, x, spot(k));
  }

  void go() const {
    if (a.use == Use::read)
      read();
    else
      write();
  }
  void read() const {
    const LaneRun p = a.lane_run(lane, lane_shift);
    const bool look = page.written;
    if (!(look && must_fence()) &&
        a.s.cluster->launch->lanes.global_read(
            p, look ? &page.write[first] : nullptr, &page.writer[first], &page.read[first],
            &page.reader[first], page.older.empty() ? nullptr : &page.older[first],
            page.older.empty() ? nullptr : &page.older_reader[first], count))
      return;
    if (look)
      for (std::uint32_t k = 0; k < count; ++k)
        check(k, page.write[first + k], page.writer[first + k], Use::write);
    if (page.older.empty()) page.older.resize(page.read.size()), page.older_reader.resize(page.read.size());
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t u = first + k;
      set_aside(a, page, u, lane_of(k));
      page.read[u] = a.stamp(lane_of(k));
      page.reader[u] = me;
    }
  }
  // The writer against the readers that have no place of their own, which are over then.
  void check_more() const {
    const std::uint32_t end = first + count;
    for (std::uint32_t u = first; u < end; u = (u / 32 + 1) * 32) {
      OlderReaders& more = page.more[u / 32];
      const std::uint32_t base = u / 32 * 32, last = std::min(end, base + 32);
      const std::uint32_t mine = (~0u << (u - base)) & (~0u >> (base + 32 - last));
      for (OlderReaders::Reader& r : more.list) {
        for_lanes(r.units & mine, [&](int i) {
          check(base + std::uint32_t(i) - first, r.mark.stamp(std::uint32_t(i)), r.mark.cluster, Use::read);
        });
        r.units &= ~mine;
      }
      std::erase_if(more.list, [](const OlderReaders::Reader& r) { return !r.units; });
    }
  }
  void write() const {
    page.written = true;
    if (page.has_more(first, count)) check_more();
    if (a.s.cluster->launch->lanes.global_write(
            a.lane_run(lane, lane_shift), &page.write[first], &page.writer[first], &page.read[first],
            &page.reader[first], page.older.empty() ? nullptr : &page.older[first],
            page.older.empty() ? nullptr : &page.older_reader[first], count))
      return;
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t u = first + k;
      check(k, page.write[u], page.writer[u], Use::write);
      check(k, page.read[u], page.reader[u], Use::read);
      if (!page.older.empty()) {
        check(k, page.older[u], page.older_reader[u], Use::read);
        page.older[u] = 0;
      }
      page.read[u] = 0;
      page.write[u] = a.stamp(lane_of(k));
      page.writer[u] = me;
    }
  }
};

// The part of [address, address + bytes) that lies in one page.
void in_page(const Accessor& a, GlobalPage& page, std::uint64_t page_address, std::uint64_t address,
             std::uint64_t bytes, int lane, std::uint32_t lane_bytes) {
  const std::uint64_t at = address - page_address;
  page.settle(lines_of(std::uint32_t(at), std::uint32_t(bytes)));
  if (page.shift && ((at | bytes | lane_bytes) & 3)) page.to_bytes();
  const Run run{a,
                page,
                page_address,
                std::uint32_t(at) >> page.shift,
                std::uint32_t(bytes) >> page.shift,
                lane,
                lane_bytes ? std::countr_zero(lane_bytes) - page.shift : Run::kOneLane,
                a.s.cluster->index + 1};
  run.go();
}

void walk(const Accessor& a, GlobalShadow& shadow, const Allocation& where, std::uint64_t address,
          std::uint64_t bytes, int lane, std::uint32_t lane_bytes) {
  const std::uint64_t begin = address - where.base, end = begin + bytes;
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t index = at / GlobalPage::kBytes;
    const std::uint64_t stop = std::min<std::uint64_t>(end, (index + 1) * GlobalPage::kBytes);
    GlobalPage& page = shadow.page(index);
    const PageLock lock(page, a.s.cluster->launch->parallel);
    in_page(a, page, where.base + index * GlobalPage::kBytes, where.base + at, stop - at,
            lane_bytes ? lane + int((at - begin) / lane_bytes) : lane, lane_bytes);
    at = stop;
  }
}

// A lane's words inside a page, as long as nothing needs a closer look. False: nothing was done.
bool one_lane(const Accessor& a, GlobalPage& page, std::uint32_t at, int l) {
  if (((at | a.bytes) & 3) || page.shift != 2 || (a.proxy != Proxy::generic && page.written)) return false;
  page.settle(lines_of(at, a.bytes));
  const std::uint32_t begin = at >> 2, end = begin + (a.bytes >> 2), me = a.s.cluster->index + 1;
  const Stamp mine = a.stamp(l);
  const auto fine = [&](Stamp x, std::uint32_t cluster) { return !x || (cluster == me && a.quick(x, l)); };
  if (a.use == Use::read) {
    for (std::uint32_t u = begin; u < end; ++u) {
      if (!fine(page.write[u], page.writer[u])) return false;
      if (page.older.empty() && !covers(a, l, page.read[u], page.reader[u])) return false;
    }
    for (std::uint32_t u = begin; u < end; ++u) {
      set_aside(a, page, u, l);
      page.read[u] = mine;
      page.reader[u] = me;
    }
    return true;
  }
  if (page.has_more(begin, end - begin)) return false;
  for (std::uint32_t u = begin; u < end; ++u)
    if (!fine(page.write[u], page.writer[u]) || !fine(page.read[u], page.reader[u]) ||
        (!page.older.empty() && !fine(page.older[u], page.older_reader[u])))
      return false;
  page.written = true;
  for (std::uint32_t u = begin; u < end; ++u) {
    page.write[u] = mine;
    page.writer[u] = me;
    page.read[u] = 0;
    if (!page.older.empty()) page.older[u] = 0;
  }
  return true;
}

// As set_aside() and the read for n words of one lane each, where two other blocks read them before, each in one
// instruction. False: nothing was done.
bool read_after_blocks(const Accessor& a, GlobalPage& page, std::uint32_t first, std::uint32_t n, int lane) {
  const std::uint32_t me = a.s.cluster->index + 1, unit = first % 32;
  const Stamp x = page.read[first], y = page.older[first];
  const std::uint32_t by = page.reader[first], older = page.older_reader[first];
  const std::uint32_t lane_of_y = id_of(y) & 31;
  if (!x || !y || by == me || older == me || unit + n > 32 || lane_of_y + n > 32) return false;
  std::uint64_t differs = 0;
  for (std::uint32_t k = 0; k < n; ++k) {
    const Stamp step = Stamp(k) << kInstBits;  // the next lane's
    differs |= (page.read[first + k] ^ (x + step)) | (page.older[first + k] ^ (y + step)) |
               (page.reader[first + k] ^ by) | (page.older_reader[first + k] ^ older);
  }
  if (differs) return false;
  const LaneMap map{0, std::uint8_t((lane_of_y - unit) & 31), 0};
  const RowMark mark{clock_of(y), inst_of(y), older, std::uint16_t(id_of(y) >> 5), map};
  page.more_of(first).join(mark, (~0u >> (32 - n)) << unit);
  for (std::uint32_t k = 0; k < n; ++k) page.older[first + k] = page.read[first + k];
  std::fill_n(&page.older_reader[first], n, by);
  for (std::uint32_t k = 0; k < n; ++k) page.read[first + k] = a.stamp(lane + int(k));
  std::fill_n(&page.reader[first], n, me);
  return true;
}

// The words of lanes `from` to `to`, one behind the other, as one_lane().
bool several_lanes(const Accessor& a, GlobalPage& page, std::uint32_t at, int from, int to) {
  if (page.shift != 2 || (a.proxy != Proxy::generic && page.written)) return false;
  const std::uint32_t bytes = std::uint32_t(to - from + 1) * a.bytes, first = at >> 2, n = bytes >> 2;
  page.settle(lines_of(at, bytes));
  const LaneRun p = a.lane_run(from, std::countr_zero(a.bytes) - 2);
  const auto& lanes = a.s.cluster->launch->lanes;
  Stamp* const older = page.older.empty() ? nullptr : &page.older[first];
  std::uint32_t* const older_reader = older ? &page.older_reader[first] : nullptr;
  if (a.use == Use::read) {
    if (lanes.global_read(p, page.written ? &page.write[first] : nullptr, &page.writer[first],
                          &page.read[first], &page.reader[first], older, older_reader, n))
      return true;
    const std::uint32_t me = a.s.cluster->index + 1, words = a.bytes >> 2;
    for (std::uint32_t k = 0; page.written && k < n; ++k)
      if (const Stamp x = page.write[first + k];
          x && !(page.writer[first + k] == me && a.quick(x, from + int(k / words))))
        return false;
    if (!older) return false;
    if (words == 1 && read_after_blocks(a, page, first, n, from)) return true;
    for (int l = to; l >= from; --l)  // in the order of one_lane()
      for (std::uint32_t k = std::uint32_t(l - from) * words, end = k + words; k < end; ++k) {
        set_aside(a, page, first + k, l);
        page.read[first + k] = a.stamp(l);
        page.reader[first + k] = me;
      }
    return true;
  }
  if (page.has_more(first, n) ||
      !lanes.global_write(p, &page.write[first], &page.writer[first], &page.read[first], &page.reader[first],
                          older, older_reader, n))
    return false;
  page.written = true;
  return true;
}

// The first of the lanes up to `l` that access words one behind the other.
int run_before(const Accessor& a, const std::uint64_t* addr, Mask lanes, std::uint64_t start, int l) {
  if (!a.s.cluster->launch->together || a.bytes < 4 || (a.bytes & (a.bytes - 1)) || (addr[l] & 3)) return l;
  while (l > 0 && (lanes >> (l - 1) & 1) && addr[l - 1] >= start && addr[l - 1] + a.bytes == addr[l]) --l;
  return l;
}

// The shadow of the allocation that holds [address, address + bytes); nullptr for constant memory.
GlobalShadow* find_shadow(const Accessor& a, std::uint64_t address, std::uint64_t bytes,
                          const Allocation*& in) {
  auto& recent = a.s.shadows;
  for (std::size_t i = 0; i < recent.size(); ++i)
    if (recent[i].first->contains(address, bytes)) {
      in = recent[i].first;
      if (i) std::swap(recent[i], recent[i - 1]);
      return recent[i ? i - 1 : 0].second;
    }
  Allocation* found = a.s.warp->worker->heap->find(address, bytes);
  if (!found || found->constant) return nullptr;
  in = found;
  recent.push_back({found, &shadow_of(*a.s.cluster->launch, *found)});
  return recent.back().second;
}
}  // namespace

void GlobalPage::settle(std::uint32_t which) {
  which &= rows;
  if (!which) return;
  rows &= ~which;
  settled += std::uint32_t(std::popcount(which));
  constexpr std::size_t words = kBytes / 4;
  if (write.empty()) write.resize(words), writer.resize(words), read.resize(words), reader.resize(words);
  for_lanes(which, [&](int i) {
    const Line& line = lines[std::size_t(i)];
    const std::size_t first = std::size_t(i) * kLineWords;
    written = written || line.write.clock;
    if (line.older.clock && older.empty()) older.resize(words), older_reader.resize(words);
    for (std::uint32_t k = 0; k < kLineWords; ++k) {
      write[first + k] = line.write.stamp(k), writer[first + k] = line.write.cluster;
      read[first + k] = line.read.stamp(k), reader[first + k] = line.read.cluster;
    }
    if (!older.empty())
      for (std::uint32_t k = 0; k < kLineWords; ++k)
        older[first + k] = line.older.stamp(k), older_reader[first + k] = line.older.cluster;
  });
}

void GlobalPage::to_bytes() {
  settle(~0u);
  const int by = 1 << shift;
  spread(write, by), spread(read, by), spread(older, by);
  spread(writer, by), spread(reader, by), spread(older_reader, by);
  shift = 0;
  if (more.empty()) return;
  std::vector<OlderReaders> wide(more.size() * std::size_t(by));
  for (std::size_t i = 0; i < wide.size(); ++i)  // a line of 32 words is four of 32 bytes
    for (const OlderReaders::Reader& r : more[i / 4].list) {
      const auto words = std::uint32_t(i % 4 * 8);
      OlderReaders::Reader part{r.mark, 0};
      part.mark.map.shift = std::uint8_t(r.mark.map.shift + 2);
      part.mark.map.first = std::uint8_t(r.mark.map.first + (words >> r.mark.map.shift));
      for (std::uint32_t k = 0; k < 8; ++k) part.units |= (r.units >> (words + k) & 1) * (0xfu << 4 * k);
      if (part.units) wide[i].list.push_back(part);
    }
  more = std::move(wide);
}

GlobalShadow::~GlobalShadow() {
  for (auto& p : pages) delete p.load();
}

GlobalPage& GlobalShadow::page(std::uint64_t index) {
  GlobalPage* p = pages[index].load(std::memory_order_acquire);
  if (p) return *p;
  auto fresh = std::make_unique<GlobalPage>();
  if (pages[index].compare_exchange_strong(p, fresh.get(), std::memory_order_acq_rel))
    return *fresh.release();
  return *p;
}

void global_access(const Accessor& a, const std::uint64_t* addr) {
  const Allocation* in = nullptr;
  bool dense = a.lanes == ~Mask(0);
  if (dense) {
    std::uint64_t apart = 0;
    for (int l = 0; l < kLanes; ++l) apart |= (addr[l] - addr[0]) ^ (std::uint64_t(l) * a.bytes);
    dense = apart == 0;
  }
  if (dense) {
    if (GlobalShadow* s = find_shadow(a, addr[0], std::uint64_t(kLanes) * a.bytes, in))
      walk(a, *s, *in, addr[0], std::uint64_t(kLanes) * a.bytes, 0, a.bytes);
    return;
  }
  for (Mask left = a.lanes; left;) {
    const int first = std::countr_zero(left);
    GlobalShadow* s = find_shadow(a, addr[first], a.bytes, in);
    if (!s) {
      left &= left - 1;
      continue;
    }
    const std::uint64_t index = (addr[first] - in->base) / GlobalPage::kBytes;
    const std::uint64_t start = in->base + index * GlobalPage::kBytes;
    const std::uint64_t size = std::min(GlobalPage::kBytes, in->base + in->size - start);
    if (addr[first] - start + a.bytes > size) {  // it goes over into the next page
      walk(a, *s, *in, addr[first], a.bytes, first, 0);
      left &= left - 1;
      continue;
    }
    // All lanes in this page, under one lock; readers of one address need to be noted once.
    GlobalPage& page = s->page(index);
    const PageLock lock(page, a.s.cluster->launch->parallel);
    // Of lanes that read one address the last is noted: the first tends to be the one that tells others.
    std::uint64_t last = 0;
    Mask done = 0, alone = 0;
    for (Mask m = left; m; m &= ~(done | lane_bit(kLanes - 1 - std::countl_zero(m)))) {
      const int l = kLanes - 1 - std::countl_zero(m);
      if (addr[l] < start || addr[l] - start + a.bytes > size) continue;
      left &= ~lane_bit(l);
      if (a.use == Use::read && addr[l] == last && a.s.view.uniform()) continue;
      last = addr[l];
      if (const int from = alone & lane_bit(l) ? l : run_before(a, addr, m, start, l); l - from >= 3) {
        const Mask run = (lane_bit(l) - lane_bit(from)) | lane_bit(l);
        if (several_lanes(a, page, std::uint32_t(addr[from] - start), from, l)) {
          done = run;
          left &= ~done;
          last = addr[from];
          continue;
        }
        alone |= run;
      }
      if (one_lane(a, page, std::uint32_t(addr[l] - start), l)) continue;
      in_page(a, page, start, addr[l], a.bytes, l, 0);
    }
  }
}

namespace {
// Whole lines of a page, as rows; see access_lines() of shared memory.
bool access_rows(GlobalPage& page, std::uint32_t first, std::uint32_t n, const RowParty& p, LaneMap map,
                 Use use) {
  const std::uint32_t which = lines_of(first * kLineBytes, n * kLineBytes);
  if ((page.rows & which) != which) return false;
  const auto step = std::uint8_t(kLineWords >> map.shift);
  const auto fine = [&](const RowMark& m, LaneMap at) {
    return !m.clock || (m.cluster == p.cluster && ordered(p, m, at));
  };
  LaneMap at = map;
  if (use != Use::read && page.has_more(first * kLineWords, n * kLineWords)) return false;
  for (std::uint32_t i = first; i < first + n; ++i, at.first = std::uint8_t(at.first + step)) {
    const GlobalPage::Line& line = page.lines[i];
    if (!fine(line.write, at)) return false;
    if (use != Use::read && (!fine(line.read, at) || !fine(line.older, at))) return false;
  }
  at = map;
  for (std::uint32_t i = first; i < first + n; ++i, at.first = std::uint8_t(at.first + step)) {
    GlobalPage::Line& line = page.lines[i];
    if (use == Use::read) {
      if (!fine(line.read, at)) {
        if (!fine(line.older, at)) page.more_of(i * kLineWords).add(line.older, ~0u);
        line.older = line.read;
      }
      line.read = p.mark(at);
    } else {
      line = {p.mark(at), {}, {}};
    }
  }
  page.written = page.written || use != Use::read;
  return true;
}

void back_to_lines(GlobalPage& page, std::uint32_t first, std::uint32_t n, const RowParty& p, LaneMap map) {
  if (page.settled > kSettleOften) return;
  for (std::uint32_t i = first; i < first + n; ++i) {
    page.lines[i] = {p.mark(map), {}, {}};
    map.first = std::uint8_t(map.first + (kLineWords >> map.shift));
  }
  page.rows |= lines_of(first * kLineBytes, n * kLineBytes);
}

GlobalShadow& shadow_for(WarpState& s, const Allocation& in) {
  for (const auto& [allocation, of] : s.shadows)
    if (allocation == &in) return *of;
  s.shadows.push_back({&in, &shadow_of(*s.cluster->launch, in)});
  return *s.shadows.back().second;
}

// Rows that are not whole lines, and lines that are kept in words.
bool row_of_words(GlobalPage& page, const LaunchState& launch, std::uint32_t inside, std::uint32_t size,
                  const RowParty& party, LaneMap map, Use use) {
  page.settle(lines_of(inside, size));
  LaneRun p = lane_run(party);
  p.first_lane = map.first, p.shift = map.shift;
  const std::uint32_t first = inside / 4, n = size / 4;
  std::uint64_t* const older = page.older.empty() ? nullptr : &page.older[first];
  std::uint32_t* const older_reader = page.older.empty() ? nullptr : &page.older_reader[first];
  if (use == Use::read)
    return launch.lanes.global_read(p, page.written ? &page.write[first] : nullptr, &page.writer[first],
                                    &page.read[first], &page.reader[first], older, older_reader, n);
  page.written = true;
  if (page.has_more(first, n)) return false;
  if (!launch.lanes.global_write(p, &page.write[first], &page.writer[first], &page.read[first],
                                 &page.reader[first], older, older_reader, n))
    return false;
  if (inside % kLineBytes == 0) back_to_lines(page, inside / kLineBytes, size / kLineBytes, party, map);
  return true;
}
bool access_row(WarpState& s, GlobalShadow& shadow, const RowParty& party, std::uint64_t offset,
                std::uint32_t size, LaneMap map, Use use) {
  const auto inside = std::uint32_t(offset % GlobalPage::kBytes);
  GlobalPage& page = shadow.page(offset / GlobalPage::kBytes);
  const LaunchState& launch = *s.cluster->launch;
  const PageLock lock(page, launch.parallel);
  if (page.shift != 2 || (page.written && launch.traits[party.inst].read_only)) return false;
  return (inside % kLineBytes == 0 &&
          access_rows(page, inside / kLineBytes, size / kLineBytes, party, map, use)) ||
         row_of_words(page, launch, inside, size, party, map, use);
}
}  // namespace

bool global_row(Warp& w, const Op& op, const Allocation& in, std::uint64_t offset, std::uint32_t bytes,
                Use use) {
  RowParty party;
  const std::uint32_t size = kLanes * bytes;
  if (((offset | bytes) & 3) || offset % GlobalPage::kBytes + size > GlobalPage::kBytes ||
      !whole_warp(w, op, party))
    return false;
  WarpState& s = *w.race;
  const LaneMap map{std::uint8_t(std::countr_zero(bytes) - 2), 0, 0};
  if (!in.constant && !access_row(s, shadow_for(s, in), party, offset, size, map, use)) return false;
  s.touched = s.touched_part = ~Mask(0);
  return true;
}

// See shared_lines().
bool global_lines(Warp& w, const Op& op, const Allocation& in, const std::uint32_t* line, std::uint32_t bytes,
                  Use use) {
  RowParty party;
  if (!whole_warp(w, op, party)) return false;
  WarpState& s = *w.race;
  LaneMap map{std::uint8_t(std::countr_zero(bytes) - 2), 0, 0};
  for (; !in.constant && map.first < kLanes; ++line) {
    if (!access_row(s, shadow_for(s, in), party, *line, kLineBytes, map, use)) return false;
    map.first = std::uint8_t(map.first + kLineBytes / bytes);
  }
  s.touched = s.touched_part = ~Mask(0);
  return true;
}

void global_range(const Accessor& a, int lane, std::uint64_t address, std::uint64_t bytes) {
  const Allocation* in = nullptr;
  if (GlobalShadow* s = find_shadow(a, address, bytes, in)) walk(a, *s, *in, address, bytes, lane, 0);
}

}  // namespace cgp::emu::race
