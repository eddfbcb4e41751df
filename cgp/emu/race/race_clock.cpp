// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/race/race_clock.h"

#include <algorithm>

namespace cgp::emu::race {

namespace {
auto first_of(const std::vector<Entry>& v, std::uint32_t warp) {
  return std::lower_bound(v.begin(), v.end(), warp,
                          [](const Entry& e, std::uint32_t warp_of) { return e.warp < warp_of; });
}
}  // namespace

std::uint32_t Part::known(std::uint32_t id) const {
  const std::uint32_t warp = id >> 5;
  std::uint32_t best =
      warp < kThreadWarps && warp / kWarpsPerCta < base.size() ? base[warp / kWarpsPerCta] : 0;
  for (auto it = first_of(entries, warp); it != entries.end() && it->warp == warp; ++it)
    if (it->mask >> (id & 31) & 1) return std::max(best, it->clock);
  return best;
}

Mask Part::known_lanes(std::uint32_t warp, std::uint32_t clock) const {
  if (warp < kThreadWarps && warp / kWarpsPerCta < base.size() && base[warp / kWarpsPerCta] >= clock)
    return ~Mask(0);
  Mask m = 0;
  for (auto it = first_of(entries, warp); it != entries.end() && it->warp == warp; ++it)
    if (it->clock >= clock) m |= it->mask;
  return m;
}

void Part::add(std::uint32_t warp, Mask mask, std::uint32_t clock) {
  if (!mask || !clock || below_base({warp, mask, clock})) return;
  auto it = entries.begin() + (first_of(entries, warp) - entries.begin());
  // Masks stay disjoint: newer knowledge takes lanes away from older entries.
  while (it != entries.end() && it->warp == warp) {
    if (it->clock >= clock) {
      mask &= ~it->mask;
      if (!mask) return;
    } else {
      it->mask &= ~mask;
      if (!it->mask) {
        it = entries.erase(it);
        continue;
      }
    }
    ++it;
  }
  for (auto same = entries.begin() + (first_of(entries, warp) - entries.begin()); same != it; ++same)
    if (same->clock == clock) {
      same->mask |= mask;
      return;
    }
  entries.insert(it, {warp, mask, clock});
}

void Part::raise_base(std::uint32_t rank, std::uint32_t clock) {
  if (base[rank] >= clock) return;
  base[rank] = clock;
  std::erase_if(entries, [&](const Entry& e) { return below_base(e); });
}

void Part::join(const Part& other) {
  bool raised = false;
  for (std::size_t r = 0; r < base.size(); ++r)
    if (other.base[r] > base[r]) base[r] = other.base[r], raised = true;
  if (raised) std::erase_if(entries, [&](const Entry& e) { return below_base(e); });
  for (const Entry& e : other.entries) add(e.warp, e.mask, e.clock);
}

const Part* Knowledge::find(std::uint32_t cluster) const {
  if (parts.size() == 1) return parts[0]->cluster == cluster ? parts[0].get() : nullptr;
  const auto it = std::lower_bound(parts.begin(), parts.end(), cluster,
                                   [](const PartPtr& p, std::uint32_t c) { return p->cluster < c; });
  return it != parts.end() && (*it)->cluster == cluster ? it->get() : nullptr;
}

std::uint32_t known(const Known& k, std::uint32_t cluster, std::uint32_t id) {
  const Part* p = k ? k->find(cluster) : nullptr;
  return p ? p->known(id) : 0;
}

Mask known_lanes(const Known& k, std::uint32_t cluster, std::uint32_t warp, std::uint32_t clock) {
  const Part* p = k ? k->find(cluster) : nullptr;
  return p ? p->known_lanes(warp, clock) : 0;
}

namespace {
// Whether a already says everything that b says.
bool covers(const Part& a, const Part& b) {
  for (std::size_t r = 0; r < b.base.size(); ++r)
    if (a.base[r] < b.base[r]) return false;
  for (const Entry& e : b.entries) {
    Mask left = e.mask;
    if (e.warp < kThreadWarps && a.base[e.warp / kWarpsPerCta] >= e.clock) continue;
    for (auto it = first_of(a.entries, e.warp); left && it != a.entries.end() && it->warp == e.warp; ++it)
      if (it->clock >= e.clock) left &= ~it->mask;
    if (left) return false;
  }
  return true;
}

PartPtr join_parts(const PartPtr& a, const PartPtr& b) {
  if (a == b || covers(*a, *b)) return a;
  if (covers(*b, *a)) return b;
  auto sum = std::make_shared<Part>(*a);
  sum->join(*b);
  return sum;
}
}  // namespace

namespace {
// The same without a look into clusters that only one of them has; most often a poll that learns nothing.
bool covers(const Knowledge& a, const Knowledge& b) {
  if (b.parts.size() > a.parts.size()) return false;
  auto x = a.parts.begin();
  for (const PartPtr& y : b.parts) {
    while (x != a.parts.end() && (*x)->cluster < y->cluster) ++x;
    if (x == a.parts.end() || (*x)->cluster != y->cluster || (*x != y && !covers(**x, *y))) return false;
  }
  return true;
}
}  // namespace

Known join(const Known& a, const Known& b) {
  if (!b || a == b) return a;
  if (!a) return b;
  if (covers(*a, *b)) return a;
  auto sum = std::make_shared<Knowledge>();
  sum->parts.reserve(std::max(a->parts.size(), b->parts.size()));
  bool only_a = true, only_b = true;
  auto x = a->parts.begin(), y = b->parts.begin();
  while (x != a->parts.end() || y != b->parts.end()) {
    if (y == b->parts.end() || (x != a->parts.end() && (*x)->cluster < (*y)->cluster)) {
      sum->parts.push_back(*x++);
      only_b = false;
    } else if (x == a->parts.end() || (*y)->cluster < (*x)->cluster) {
      sum->parts.push_back(*y++);
      only_a = false;
    } else {
      sum->parts.push_back(join_parts(*x, *y));
      only_a = only_a && sum->parts.back() == *x;
      only_b = only_b && sum->parts.back() == *y;
      ++x, ++y;
    }
  }
  // The same pointer for the same knowledge: joins of it later are free.
  return only_a ? a : only_b ? b : sum;
}

Clock join(const Clock& a, const Clock& b) { return {join(a.known, b.known), join(a.fenced, b.fenced)}; }

void Collector::include(Half& h, const Known& k) {
  if (!k) return;
  for (const Known& x : h.from)
    if (x == k) return;
  h.from.push_back(k);
}

Known Collector::finish(const Half& h, std::uint32_t cluster, std::uint32_t ranks, const Bases& bases) {
  Known sum;
  for (const Known& k : h.from) sum = join(sum, k);
  if (h.own.empty() && bases.empty()) return sum;
  auto part = std::make_shared<Part>();
  const Part* old = sum ? sum->find(cluster) : nullptr;
  if (old)
    *part = *old;
  else
    part->cluster = cluster, part->base.assign(ranks, 0);
  for (const auto& [rank, clock] : bases) part->raise_base(rank, clock);
  for (const Entry& e : h.own) part->add(e.warp, e.mask, e.clock);
  auto out = std::make_shared<Knowledge>();
  if (!sum) {
    out->parts.push_back(std::move(part));
    return out;
  }
  out->parts = sum->parts;
  const auto at = std::lower_bound(out->parts.begin(), out->parts.end(), cluster,
                                   [](const PartPtr& p, std::uint32_t c) { return p->cluster < c; });
  if (old)
    *at = std::move(part);
  else
    out->parts.insert(at, std::move(part));
  return out;
}

Clock Collector::finish(std::uint32_t cluster, std::uint32_t ranks, const Bases& bases) const {
  return {finish(known_, cluster, ranks, bases), finish(fenced_, cluster, ranks, {})};
}

}  // namespace cgp::emu::race
