// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/assign.h"

#include <algorithm>

namespace cgp::ptx {
namespace {

constexpr int kKept = 6;  ///< operations for which a memory instruction keeps its sources
constexpr int kStackPointer = 1, kRegisters = 400, kNever = 1 << 30;

bool is_shared(const Inst& i) { return i.has(Mod::shared) || i.has(Mod::shared_cta); }
bool stores(const Inst& i) { return i.op == Op::st || family(i.op) == Family::atomic; }

bool takes_late(const Inst& i) {
  const Family f = family(i.op);
  return stores(i) || f == Family::warp ||
         ((i.op == Op::ld || f == Family::async || f == Family::mbarrier || f == Family::matrix) &&
          !i.has(Mod::param));
}

class Assignment {
 public:
  Assignment(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order, const BlockValues& v)
      : ops_(ops), order_(order), v_(v), range_(v.size.size()), odd_(v.size.size()), places_(kRegisters) {
    places_[kStackPointer] = {kNever, kNever, -1};
    find_ranges();
    find_odd();
  }

  int run() {
    const int n = int(order_.size());
    std::vector<std::vector<LiveId>> begins(std::size_t(n) + 1);
    for (LiveId x = 0; x < range_.size(); ++x)
      if (range_[x].begin >= 0 && v_.size[x] > 0) begins[std::size_t(range_[x].begin)].push_back(x);
    std::stable_sort(begins[0].begin(), begins[0].end(),
                     [&](LiveId a, LiveId b) { return v_.size[a] > v_.size[b]; });
    for (int k = 0; k <= n; ++k) {
      auto& fresh = begins[std::size_t(k)];
      if (k < n) place_vector(at(k), k, fresh);
      for (LiveId x : fresh) place({x}, v_.size[x], k);
    }
    return highest_ + 1;
  }

 private:
  struct Range {
    int begin = -1, end = -1;    ///< operations
    int kept = -1, keeper = -1;  ///< until when, and by which, the register is not reused
  };
  struct Place {
    int end = -1, kept = -1, keeper = -1;
  };

  const Operation& at(int k) const { return ops_[order_[std::size_t(k)]]; }

  void find_ranges() {
    const int n = int(order_.size());
    const auto touch = [&](LiveId x, int begin, int end) {
      if (range_[x].begin < 0) range_[x].begin = begin;
      range_[x].end = std::max(range_[x].end, end);
    };
    for (LiveId x : v_.in) touch(x, 0, 0);
    for (int k = 0; k < n; ++k) {
      const int kept = takes_late(*at(k).inst) ? k + kKept : k;
      for (LiveId x : at(k).reads) {
        touch(x, 0, k);
        if (kept > range_[x].kept) range_[x].kept = kept, range_[x].keeper = k;
      }
      for (LiveId x : at(k).writes) touch(x, k, k + 1);
    }
    for (LiveId x : v_.out) touch(x, 0, n + 1);
    for (Range& r : range_) r.kept = std::max(r.kept, r.end);
  }

  void find_odd() {
    for (const Operation& o : ops_) {
      const bool beside_address = stores(*o.inst) && !is_shared(*o.inst) && reads(o, 2) > 0;
      const bool scaled = o.inst->op == Op::add && o.writes.size() == 1 && v_.size[o.writes[0]] == 2;
      if ((beside_address || scaled) && reads(o, 1) == 1)
        for (LiveId x : o.reads) odd_[x] = odd_[x] || v_.size[x] == 1;
    }
  }
  std::ptrdiff_t reads(const Operation& o, int size) const {
    return std::count_if(o.reads.begin(), o.reads.end(), [&](LiveId x) { return v_.size[x] == size; });
  }

  bool is_free(int place, int k) const {
    const Place& p = places_[std::size_t(place)];
    if (p.end > k) return false;
    if (p.kept <= k) return true;
    return p.keeper == k && k < int(order_.size()) && !(at(k).inst->op == Op::ld && is_shared(*at(k).inst));
  }

  /// The results of a vector of four, when all begin here; takes them out of `fresh`.
  void place_vector(const Operation& o, int k, std::vector<LiveId>& fresh) {
    const auto found = [&](LiveId x) { return std::find(fresh.begin(), fresh.end(), x); };
    if (o.writes.size() != 4 || !o.inst->has(Mod::v4)) return;
    for (LiveId x : o.writes)
      if (v_.size[x] != 1 || found(x) == fresh.end()) return;
    place(o.writes, 4, k);
    for (LiveId x : o.writes) fresh.erase(found(x));
  }

  /// One value of `size` registers, or as many of one.
  void place(const std::vector<LiveId>& values, int size, int k) {
    const bool odd = size == 1 && odd_[values[0]];
    const int step = odd ? 2 : size >= 4 && values.size() == 4 ? 4 : std::min(size, 2);
    for (int first = odd; first + size <= kRegisters; first += step) {
      int free = 0;
      while (free < size && is_free(first + free, k)) ++free;
      if (free < size) continue;
      for (int j = 0; j < size; ++j) {
        const Range& r = range_[values.size() == 1 ? values[0] : values[std::size_t(j)]];
        places_[std::size_t(first + j)] = {r.end, r.kept, r.keeper};
      }
      highest_ = std::max(highest_, first + size - 1);
      return;
    }
    highest_ = kRegisters - 1;
  }

  const std::vector<Operation>& ops_;
  const std::vector<std::uint32_t>& order_;
  const BlockValues& v_;
  std::vector<Range> range_;
  std::vector<std::uint8_t> odd_;
  std::vector<Place> places_;
  int highest_ = kStackPointer;
};

}  // namespace

int assigned_registers(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order,
                       const BlockValues& v) {
  return Assignment(ops, order, v).run();
}

}  // namespace cgp::ptx
