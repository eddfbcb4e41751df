// SPDX-License-Identifier: Apache-2.0
// The shadow of global memory: the last write and the last two readers of different warps, per word (per byte
// in pages that saw narrow accesses). A reader that is forgotten can hide a race, never make one up.
#include <algorithm>

#include "cgp/emu/race_state.h"

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
    if (page_)
      while (page_->busy.test_and_set(std::memory_order_acquire)) {
      }
  }
  ~PageLock() {
    if (page_) page_->busy.clear(std::memory_order_release);
  }
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;

 private:
  GlobalPage* page_;
};

struct Run {
  const Accessor& a;
  GlobalPage& page;
  std::uint64_t page_address;
  std::uint32_t first, count;
  int lane;
  std::uint32_t per_lane, skip;
  std::uint32_t me;  // cluster + 1

  int lane_of(std::uint32_t k) const { return per_lane ? lane + int((k + skip) / per_lane) : lane; }
  Spot spot(std::uint32_t k) const {
    return {false, 0, page_address + ((first + k) << page.shift), std::uint32_t(1) << page.shift};
  }
  bool quick(Stamp x, std::uint32_t cluster, int l) const {
    return x == 0 || (cluster == me && (a.quick(x, l) || (!a.agent && id_of(x) == a.id(l))));
  }
  void check(std::uint32_t k, Stamp x, std::uint32_t cluster, Use other) const {
    const int l = lane_of(k);
    if (quick(x, cluster, l) && a.proxy == Proxy::generic) return;
    if (!x) return;
    if (!before(a, l, cluster - 1, x))
      conflict(a, l, cluster - 1, x, other, spot(k));
    else if (a.proxy == Proxy::async && a.use == Use::read && !proxied(a, l, cluster - 1, x))
      missing_proxy_fence(a, l, cluster - 1, x, spot(k));
  }

  void read() const {
    if (page.written)
      for (std::uint32_t k = 0; k < count; ++k)
        check(k, page.write[first + k], page.writer[first + k], Use::write);
    const std::uint32_t warp = a.id(0) >> 5;
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t u = first + k;
      const Stamp x = page.read[u];
      if (x && (page.reader[u] != me || id_of(x) >> 5 != warp)) {
        if (page.older.empty())
          page.older.resize(page.read.size()), page.older_reader.resize(page.read.size());
        page.older[u] = x;
        page.older_reader[u] = page.reader[u];
      }
      page.read[u] = a.stamp(lane_of(k));
      page.reader[u] = me;
    }
  }
  void write() const {
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
    page.written = true;
  }
};

void walk(const Accessor& a, GlobalShadow& shadow, const Allocation& where, std::uint64_t address,
          std::uint64_t bytes, int lane, std::uint32_t each) {
  const std::uint64_t begin = address - where.base, end = begin + bytes;
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t index = at / GlobalPage::kBytes;
    const std::uint64_t stop = std::min<std::uint64_t>(end, (index + 1) * GlobalPage::kBytes);
    GlobalPage& page = shadow.page(index);
    const PageLock lock(page, a.s.cluster->launch->parallel);
    if (page.shift && ((at | stop | each) & 3)) page.to_bytes();
    const std::uint64_t start = index * GlobalPage::kBytes;
    const Run run{a,
                  page,
                  where.base + start,
                  std::uint32_t(at - start) >> page.shift,
                  std::uint32_t(stop - at) >> page.shift,
                  each ? lane + int((at - begin) / each) : lane,
                  each >> page.shift,
                  each ? std::uint32_t((at - begin) % each) >> page.shift : 0,
                  a.s.cluster->index + 1};
    if (a.use == Use::read)
      run.read();
    else
      run.write();
    at = stop;
  }
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
  Allocation* found = a.s.cluster->launch->launch->machine->heap.find(address, bytes);
  if (!found || found->constant) return nullptr;
  in = found;
  recent.push_back({found, &shadow_of(*a.s.cluster->launch, *found)});
  return recent.back().second;
}
}  // namespace

void GlobalPage::to_bytes() {
  const int by = 1 << shift;
  spread(write, by), spread(read, by), spread(older, by);
  spread(writer, by), spread(reader, by), spread(older_reader, by);
  shift = 0;
}

GlobalShadow::~GlobalShadow() {
  for (auto& p : pages) delete p.load();
}

GlobalPage& GlobalShadow::page(std::uint64_t index) {
  GlobalPage* p = pages[index].load(std::memory_order_acquire);
  if (p) return *p;
  auto fresh = std::make_unique<GlobalPage>();
  const std::size_t words = GlobalPage::kBytes / 4;
  fresh->write.resize(words), fresh->read.resize(words);
  fresh->writer.resize(words), fresh->reader.resize(words);
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
  for_lanes(a.lanes, [&](int l) {
    if (GlobalShadow* s = find_shadow(a, addr[l], a.bytes, in)) walk(a, *s, *in, addr[l], a.bytes, l, 0);
  });
}

void global_range(const Accessor& a, int lane, std::uint64_t address, std::uint64_t bytes) {
  const Allocation* in = nullptr;
  if (GlobalShadow* s = find_shadow(a, address, bytes, in)) walk(a, *s, *in, address, bytes, lane, 0);
}

}  // namespace cgp::emu::race
