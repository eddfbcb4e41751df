// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/passes/allocate.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/ptx/liveness.h"
#include "cgp/ptx/pressure.h"

namespace cgp::ptx {
namespace {

constexpr int kPredicates = 7;

int words_of(Mod type) {
  const int bits = type_bits(type);
  return bits == 1 ? 0 : bits <= 32 ? 1 : bits / 32;
}

/// From the first definition or use to the last, holes (where the value is not needed) left out.
struct Interval {
  RegId reg;
  std::vector<LiveRange> ranges;
  std::uint32_t first() const { return ranges.front().first; }
  std::uint32_t last() const { return ranges.back().last; }
  bool covers(std::uint32_t at) const {
    const auto it = std::partition_point(ranges.begin(), ranges.end(), [&](auto& r) { return r.last < at; });
    return it != ranges.end() && it->first <= at;
  }
  bool overlaps(const Interval& other) const {
    std::size_t a = 0, b = 0;
    while (a < ranges.size() && b < other.ranges.size()) {
      if (ranges[a].first <= other.ranges[b].last && other.ranges[b].first <= ranges[a].last) return true;
      (ranges[a].last < other.ranges[b].last ? a : b)++;
    }
    return false;
  }
};

class Scan {
 public:
  Scan(const Function& f, int limit) : f_(f), owners_(std::size_t(limit)) {
    a_.limit = limit;
    a_.home.assign(f.regs.size(), -1);
  }

  Allocation run() {
    const Cfg cfg = build_cfg(f_);
    const auto ranges = live_ranges(f_, cfg, liveness(f_, cfg));
    find_uses();
    for (RegId r = 0; r < f_.regs.size(); ++r) {
      Interval i{r, ranges[r]};
      // A definition needs a place even if nothing reads it; live ranges begin after the definition.
      for (std::uint32_t d : writes_[r]) i.ranges.push_back({d, d});
      if (i.ranges.empty()) continue;
      normalise(i.ranges);
      intervals_.push_back(std::move(i));
    }
    std::stable_sort(intervals_.begin(), intervals_.end(),
                     [](auto& x, auto& y) { return x.first() < y.first(); });
    for (std::size_t k = 0; k < intervals_.size(); ++k) place(k);
    predicates();
    return std::move(a_);
  }

 private:
  static void normalise(std::vector<LiveRange>& ranges) {
    std::sort(ranges.begin(), ranges.end(), [](auto& a, auto& b) { return a.first < b.first; });
    std::vector<LiveRange> joined;
    for (const LiveRange& r : ranges)
      if (!joined.empty() && joined.back().last + 1 >= r.first)
        joined.back().last = std::max(joined.back().last, r.last);
      else
        joined.push_back(r);
    ranges = std::move(joined);
  }

  void find_uses() {
    uses_.resize(f_.regs.size());
    writes_.resize(f_.regs.size());
    std::vector<RegisterUse> uses;
    for (std::uint32_t i = 0; i < f_.body.size(); ++i) {
      registers_of(f_.body[i], uses);
      for (const RegisterUse& u : uses) {
        if (u.read) uses_[u.reg].push_back(i);
        if (u.written) writes_[u.reg].push_back(i);
      }
    }
  }

  // The owner of a register at this time: an interval in it that is live together with the new one.
  bool free(int slot, int words, const Interval& i) const {
    for (int s = slot; s < slot + words; ++s)
      for (std::size_t o : owners_[std::size_t(s)])
        if (intervals_[o].last() >= i.first() && intervals_[o].overlaps(i)) return false;
    return true;
  }

  void place(std::size_t k) {
    const Interval& i = intervals_[k];
    const int words = words_of(f_.regs[i.reg].type);
    if (words == 0) return;
    for (;;) {
      for (int slot = 0; slot + words <= a_.limit; slot += words)
        if (free(slot, words, i)) {
          for (int s = slot; s < slot + words; ++s) owners_[std::size_t(s)].push_back(k);
          a_.home[i.reg] = slot;
          a_.used = std::max(a_.used, slot + words);
          return;
        }
      if (!evict(k, words)) return;
    }
  }

  std::uint32_t next_use(RegId r, std::uint32_t after) const {
    const auto it = std::lower_bound(uses_[r].begin(), uses_[r].end(), after);
    return it == uses_[r].end() ? kNone : *it;
  }

  // Takes the registers of the value that is needed last, the new one included; true: there may be room now.
  bool evict(std::size_t k, int words) {
    const Interval& i = intervals_[k];
    std::size_t victim = k;
    std::uint32_t furthest = next_use(i.reg, i.first());
    for (const auto& slot : owners_)
      for (std::size_t o : slot) {
        const Interval& other = intervals_[o];
        if (words_of(f_.regs[other.reg].type) < words || !other.overlaps(i)) continue;
        const std::uint32_t next = next_use(other.reg, i.first());
        if (next > furthest || (next == furthest && victim == k && o != k)) {
          furthest = next;
          victim = o;
        }
      }
    spill(victim, i.first());
    return victim != k;
  }

  void spill(std::size_t victim, std::uint32_t at) {
    const RegId r = intervals_[victim].reg;
    Spill s;
    s.reg = r;
    s.at = at;
    s.words = words_of(f_.regs[r].type);
    s.stores = int(writes_[r].size());
    s.loads = int(uses_[r].end() - std::lower_bound(uses_[r].begin(), uses_[r].end(), at));
    a_.spills.push_back(s);
    a_.home[r] = -1;
    for (auto& slot : owners_) slot.erase(std::remove(slot.begin(), slot.end(), victim), slot.end());
  }

  void predicates() {
    std::vector<int> live(f_.body.size() + 1, 0);
    for (const Interval& i : intervals_)
      if (type_bits(f_.regs[i.reg].type) == 1)
        for (const LiveRange& r : i.ranges)
          for (std::uint32_t at = r.first; at <= r.last && at < live.size(); ++at)
            a_.predicates = std::max(a_.predicates, ++live[at]);
  }

  const Function& f_;
  Allocation a_;
  std::vector<Interval> intervals_;
  std::vector<std::vector<std::size_t>> owners_;  // per 32-bit register: the intervals that live in it
  std::vector<std::vector<std::uint32_t>> uses_, writes_;
};

}  // namespace

int Allocation::spill_words() const {
  int n = 0;
  for (const Spill& s : spills) n += s.words;
  return n;
}
int Allocation::spill_stores() const {
  int n = 0;
  for (const Spill& s : spills) n += s.stores;
  return n;
}
int Allocation::spill_loads() const {
  int n = 0;
  for (const Spill& s : spills) n += s.loads;
  return n;
}

Allocation allocate(const Function& f, int limit) {
  if (limit < 0) throw ArgumentError(text::cat("a register limit is not negative: ", limit));
  return Scan(f, limit ? limit : pressure(f).limit).run();
}

std::string describe(const Module& m, const Function& f, const Allocation& a) {
  std::string s = text::cat(m.text(f.name), ": ", a.used, " of ", a.limit, " registers by linear scan, ",
                            a.predicates, " of ", kPredicates, " predicates");
  if (a.spills.empty()) return s + ", no spills";
  s += text::cat("\n  ", a.spills.size(), a.spills.size() == 1 ? " value" : " values",
                 " spilled: ", 4 * a.spill_words(), " bytes of local memory per thread, ", a.spill_stores(),
                 " stores, ", a.spill_loads(), " loads in the text; first ", f.regs[a.spills[0].reg].name);
  s += "\n  use smaller tiles, fewer elements per thread (less ILP), or fewer threads per block";
  return s;
}

}  // namespace cgp::ptx
