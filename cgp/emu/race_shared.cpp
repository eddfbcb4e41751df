// SPDX-License-Identifier: Apache-2.0
// The shadow of shared memory: exact for every reader. Words, or bytes in pages that saw narrow accesses.
#include <algorithm>

#include "cgp/emu/race_state.h"

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

SharedPage& page_at(SharedShadow& shadow, std::uint32_t offset) {
  const std::size_t index = offset / SharedPage::kBytes;
  if (index >= shadow.pages.size()) shadow.pages.resize(index + 1);
  auto& p = shadow.pages[index];
  if (!p) {
    p = std::make_unique<SharedPage>();
    p->write.resize(SharedPage::kBytes / 4);
    p->reads.resize(SharedPage::kBytes / 4);
  }
  return *p;
}

Plane& plane_of(SharedPage& p, std::size_t group) {
  if (group >= p.planes.size()) p.planes.resize(group + 1);
  auto& plane = p.planes[group];
  if (!plane) {
    plane = std::make_unique<Plane>();
    plane->seen.resize(p.write.size());
    plane->inst.resize(p.write.size());
  }
  return *plane;
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
  SharedPage& page;
  std::uint32_t page_at;  // offset of the page
  std::uint32_t first, count;
  int lane;                // of the first unit
  std::uint32_t per_lane;  // units of a lane; further ones are of the next lanes. 0: all of `mask`
  Mask mask;
  std::uint32_t skip = 0;  // units of the first lane that lie before the page

  int lane_of(std::uint32_t k) const { return per_lane ? lane + int((k + skip) / per_lane) : lane; }
  Mask mask_of(std::uint32_t k) const { return per_lane ? lane_bit(lane_of(k)) : mask; }
  Mask party_mask(std::uint32_t k) const { return a.id_step ? mask_of(k) : lane_bit(int(a.id_base & 31)); }
  std::uint32_t rank() const { return owner.cta->rank; }
  Spot spot(std::uint32_t k) const {
    return {true, rank(), page_at + ((first + k) << page.shift), std::uint32_t(1) << page.shift};
  }

  bool quick(Stamp x, int l) const { return x == 0 || a.quick(x, l) || (!a.agent && id_of(x) == a.id(l)); }
  bool fresh(std::uint64_t r) const { return r < a.limit && !(r & kForeign) && a.rank == rank(); }

  void check_write(std::uint32_t k) const {
    const Stamp x = page.write[first + k];
    for_lanes(per_lane ? mask_of(k) : mask, [&](int l) {
      if (quick(x, l) && a.proxy == Proxy::generic) return;
      if (!before(a, l, a.s.cluster->index, x))
        conflict(a, l, a.s.cluster->index, x, Use::write, spot(k));
      else if (a.proxy == Proxy::async && a.use == Use::read && !proxied(a, l, a.s.cluster->index, x))
        missing_proxy_fence(a, l, a.s.cluster->index, x, spot(k));
    });
  }
  void read() const;
  void write() const;
  void check_readers(std::uint32_t k, std::uint64_t r) const;
  void check_reader(std::uint32_t k, std::size_t group, Mask readers, std::uint32_t clock,
                    std::uint32_t inst) const;
  std::uint64_t older_key(std::uint32_t k, std::size_t group) const {
    return (std::uint64_t(page_at) + ((first + k) << page.shift)) << 12 | group;
  }
};

void Run::read() const {
  const bool must_fence = a.proxy == Proxy::async;
  bool all = !must_fence || true;
  for (std::uint32_t k = 0; k < count; ++k) {
    const Stamp x = page.write[first + k];
    all = all && (x == 0 || (!must_fence && quick(x, lane_of(k))));
  }
  if (!all)
    for (std::uint32_t k = 0; k < count; ++k)
      if (page.write[first + k]) check_write(k);
  const std::size_t group = group_of(owner.shadow, a.id(0) >> 5, rank());
  Plane& plane = plane_of(page, group);
  const std::uint64_t bit = group < 32 ? std::uint64_t(1) << group : kForeign;
  const std::uint64_t last = std::uint64_t(a.clock) << kClockShift;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t u = first + k;
    const std::uint64_t r = page.reads[u], e = plane.seen[u];
    const Mask m = party_mask(k);
    const bool clean = r == 0 || fresh(r);
    Mask merged = m;
    if (!clean && (r & bit)) {
      const auto at = std::uint32_t(e >> 32);
      if (at == a.clock) {
        merged |= Mask(e);
      } else if (at > a.s.synced && (Mask(e) & ~m)) {
        auto& older = owner.shadow.older[older_key(k, group)];
        for (auto& x : older) x.mask &= ~Mask(e);
        std::erase_if(older, [](const SharedShadow::Read& x) { return !x.mask; });
        older.push_back({Mask(e), at, plane.inst[u]});
      }
    }
    plane.seen[u] = std::uint64_t(a.clock) << 32 | merged;
    plane.inst[u] = a.inst;
    page.reads[u] = last | (clean ? 0 : r & kGroups) | bit;
  }
}

void Run::check_reader(std::uint32_t k, std::size_t group, Mask readers, std::uint32_t clock,
                       std::uint32_t inst) const {
  const std::uint32_t warp =
      group < 32 ? rank() * kWarpsPerCta + std::uint32_t(group) : owner.shadow.foreign[group - 32];
  for_lanes(mask_of(k), [&](int l) {
    for_lanes(readers, [&](int reader) {
      const Stamp x = make_stamp(clock, warp << 5 | std::uint32_t(reader), inst);
      if (!quick(x, l) && !before(a, l, a.s.cluster->index, x))
        conflict(a, l, a.s.cluster->index, x, Use::read, spot(k));
    });
  });
}

void Run::check_readers(std::uint32_t k, std::uint64_t r) const {
  const std::uint32_t u = first + k;
  const auto look = [&](std::size_t group) {
    if (group >= page.planes.size() || !page.planes[group]) return;
    const Plane& plane = *page.planes[group];
    const std::uint64_t e = plane.seen[u];
    if (e) check_reader(k, group, Mask(e), std::uint32_t(e >> 32), plane.inst[u]);
    if (owner.shadow.older.empty()) return;
    const auto it = owner.shadow.older.find(older_key(k, group));
    if (it == owner.shadow.older.end()) return;
    for (const auto& x : it->second) check_reader(k, group, x.mask, x.clock, x.inst);
    owner.shadow.older.erase(it);
  };
  for_lanes(Mask(r), [&](int g) { look(std::size_t(g)); });
  if (r & kForeign)
    for (std::size_t i = 0; i < owner.shadow.foreign.size(); ++i) look(32 + i);
}

void Run::write() const {
  bool all = true;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::uint32_t u = first + k;
    const std::uint64_t r = page.reads[u];
    all = all && quick(page.write[u], lane_of(k)) && (r == 0 || fresh(r));
  }
  if (!all)
    for (std::uint32_t k = 0; k < count; ++k) {
      const std::uint32_t u = first + k;
      if (page.write[u]) check_write(k);
      if (const std::uint64_t r = page.reads[u]; r && !fresh(r)) check_readers(k, r);
    }
  for (std::uint32_t k = 0; k < count; ++k) {
    page.write[first + k] = a.stamp(lane_of(k));
    page.reads[first + k] = 0;
  }
}

// [offset, offset + bytes) page by page. `each`: bytes of one lane, 0 when all belong to `lane` (and `mask`).
void walk(const Accessor& a, CtaState& owner, std::uint32_t offset, std::uint64_t bytes, int lane, Mask mask,
          std::uint32_t each) {
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const std::uint64_t stop =
        std::min<std::uint64_t>(end, (at / SharedPage::kBytes + 1) * SharedPage::kBytes);
    SharedPage& page = page_at(owner.shadow, std::uint32_t(at));
    if (page.shift && ((at | stop) & 3)) page.to_bytes();
    if (page.shift && (each & 3)) page.to_bytes();
    const std::uint32_t page_start = std::uint32_t(at / SharedPage::kBytes * SharedPage::kBytes);
    Run run{a,
            owner,
            page,
            page_start,
            std::uint32_t(at - page_start) >> page.shift,
            std::uint32_t(stop - at) >> page.shift,
            each ? lane + int((at - offset) / each) : lane,
            each >> page.shift,
            mask,
            each ? std::uint32_t((at - offset) % each) >> page.shift : 0};
    if (a.use == Use::read)
      run.read();
    else
      run.write();
    at = stop;
  }
}
}  // namespace

void SharedPage::to_bytes() {
  spread(write, 1 << shift);
  spread(reads, 1 << shift);
  for (auto& p : planes)
    if (p) spread(p->seen, 1 << shift), spread(p->inst, 1 << shift);
  shift = 0;
}

void shared_access(const Accessor& a, CtaState& owner, const std::uint32_t* offset) {
  const int first = std::countr_zero(a.lanes);
  bool dense = a.lanes == ~Mask(0), alike = true;
  for_lanes(a.lanes, [&](int l) {
    dense = dense && offset[l] == offset[first] + std::uint32_t(l) * a.bytes;
    alike = alike && offset[l] == offset[first];
  });
  if (dense) return walk(a, owner, offset[0], std::uint64_t(kLanes) * a.bytes, 0, 0, a.bytes);
  if (alike && a.use == Use::read) return walk(a, owner, offset[first], a.bytes, first, a.lanes, 0);
  for_lanes(a.lanes, [&](int l) { walk(a, owner, offset[l], a.bytes, l, lane_bit(l), 0); });
}

void shared_range(const Accessor& a, int lane, CtaState& owner, std::uint32_t offset, std::uint64_t bytes) {
  walk(a, owner, offset, bytes, lane, lane_bit(lane), 0);
}

}  // namespace cgp::emu::race
