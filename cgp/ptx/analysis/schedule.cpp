// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/schedule.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace cgp::ptx {
namespace {

/// Cycles until a result can be used, as far as they decide the order.
int latency(const Inst& i) {
  switch (family(i.op)) {
    case Family::memory:
      if ((i.op != Op::ld && i.op != Op::ldu) || i.has(Mod::param)) return i.has(Mod::param) ? 4 : 1;
      return i.has(Mod::shared) || i.has(Mod::shared_cta) ? 30 : 300;
    case Family::atomic:
      return i.has(Mod::shared) ? 60 : 300;
    case Family::warp:
      return 25;
    case Family::matrix:
      return 30;
    default:
      break;
  }
  switch (i.op) {
    case Op::rcp:
    case Op::rsqrt:
    case Op::sqrt:
    case Op::sin:
    case Op::cos:
    case Op::lg2:
    case Op::ex2:
    case Op::tanh:
    case Op::div:
    case Op::rem:
      return 25;
    default:
      return type_bits(i.type()) == 64 && is_float(i.type()) ? 10 : 5;
  }
}

struct Node {
  std::vector<std::pair<std::uint32_t, int>> next;  ///< must come later, by so many cycles
  int waits = 0, height = 0, ready = 0;
};

class Dependences {
 public:
  explicit Dependences(const std::vector<Operation>& ops) : ops_(ops), nodes_(ops.size()) {
    for (std::uint32_t k = 0; k < ops.size(); ++k) {
      values(k);
      memory(k);
      since_.push_back(k);
    }
    for (std::uint32_t k = std::uint32_t(ops.size()); k-- > 0;)
      for (const auto& [to, cycles] : nodes_[k].next)
        nodes_[k].height = std::max(nodes_[k].height, nodes_[to].height + cycles + 1);
  }
  std::vector<Node> take() { return std::move(nodes_); }

 private:
  void edge(std::uint32_t from, std::uint32_t to, int cycles) {
    nodes_[from].next.push_back({to, cycles});
    ++nodes_[to].waits;
  }

  void values(std::uint32_t k) {
    const Operation& o = ops_[k];
    for (LiveId v : o.reads)
      if (const auto w = writer_.find(v); w != writer_.end())
        edge(w->second, k, latency(*ops_[w->second].inst));
    for (LiveId v : o.writes) {
      for (std::uint32_t r : readers_[v])
        if (r != k) edge(r, k, 0);
      if (const auto w = writer_.find(v); w != writer_.end() && w->second != k) edge(w->second, k, 1);
    }
    for (LiveId v : o.reads) readers_[v].push_back(k);
    for (LiveId v : o.writes) {
      writer_[v] = k;
      readers_[v].clear();
    }
  }

  /// Loads stay behind the stores before them that they may touch, and everything between its barriers.
  void memory(std::uint32_t k) {
    const Inst& i = *ops_[k].inst;
    const Family f = family(i.op);
    const bool orders_all = f == Family::control || f == Family::barrier || f == Family::async ||
                            f == Family::wgmma || f == Family::tcgen05 || f == Family::mbarrier;
    if (orders_all || f == Family::atomic || i.has(Mod::volatile_)) {
      for (const auto* list : {&loads_, &stores_})
        for (std::uint32_t s : *list) edge(s, k, 0);
      if (orders_all)
        for (std::uint32_t s : since_) edge(s, k, 0);
      if (orders_all) since_.clear();
      loads_.clear();
      stores_.clear();
      if (fence_ != kNone) edge(fence_, k, 0);
      fence_ = k;
      return;
    }
    const bool touches = (f == Family::memory && !i.has(Mod::param)) || i.op == Op::ldmatrix;
    if (!touches || i.has(Mod::nc) || i.has(Mod::const_)) return;
    if (fence_ != kNone) edge(fence_, k, 0);
    const auto clash = [&](std::uint32_t s) {
      const Inst& other = *ops_[s].inst;
      return !(i.has(Mod::shared) && other.has(Mod::global)) &&
             !(i.has(Mod::global) && other.has(Mod::shared));
    };
    for (std::uint32_t s : stores_)
      if (clash(s)) edge(s, k, 0);
    if (i.op == Op::ld || i.op == Op::ldu || i.op == Op::ldmatrix) {
      loads_.push_back(k);
      return;
    }
    for (std::uint32_t s : loads_)
      if (clash(s)) edge(s, k, 0);
    loads_.erase(std::remove_if(loads_.begin(), loads_.end(), clash), loads_.end());
    stores_.push_back(k);
  }

  const std::vector<Operation>& ops_;
  std::vector<Node> nodes_;
  std::map<LiveId, std::uint32_t> writer_;
  std::map<LiveId, std::vector<std::uint32_t>> readers_;
  std::uint32_t fence_ = kNone;
  std::vector<std::uint32_t> loads_, stores_, since_;
};

/// Registers that are live while operations are chosen.
class Pressure {
 public:
  Pressure(const std::vector<Operation>& ops, const BlockValues& v)
      : size_(v.size), left_(v.size.size()), live_(v.size.size()) {
    for (const Operation& o : ops)
      for (LiveId x : o.reads) ++left_[x];
    for (LiveId x : v.out) ++left_[x];
    for (LiveId x : v.in) begin(x);
  }
  int now() const { return now_; }
  int change(const Operation& o) const {
    int d = 0;
    for (std::size_t k = 0; k < o.reads.size(); ++k) {
      const LiveId x = o.reads[k];
      if (std::find(o.reads.begin(), o.reads.begin() + std::ptrdiff_t(k), x) !=
          o.reads.begin() + std::ptrdiff_t(k))
        continue;
      if (live_[x] && left_[x] == std::count(o.reads.begin(), o.reads.end(), x)) d -= size_[x];
    }
    for (LiveId x : o.writes)
      if (!live_[x]) d += size_[x];
    return d;
  }
  void run(const Operation& o) {
    for (LiveId x : o.reads)
      if (--left_[x] == 0 && live_[x]) {
        live_[x] = 0;
        now_ -= size_[x];
      }
    for (LiveId x : o.writes)
      if (left_[x] > 0) begin(x);
  }

 private:
  void begin(LiveId x) {
    if (live_[x]) return;
    live_[x] = 1;
    now_ += size_[x];
  }
  const std::vector<int>& size_;
  std::vector<std::ptrdiff_t>
      left_;  ///< operations that still read it; a value that is live-out is never free
  std::vector<std::uint8_t> live_;
  int now_ = 0;
};

}  // namespace

int most_live(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order,
              const BlockValues& v) {
  std::vector<std::uint8_t> live(v.size.size());
  int now = 0;
  const auto begin = [&](LiveId x) {
    if (live[x]) return;
    live[x] = 1;
    now += v.size[x];
  };
  for (LiveId x : v.out) begin(x);
  int most = now;
  for (std::size_t k = order.size(); k-- > 0;) {
    const Operation& o = ops[order[k]];
    int extra = 0;
    for (LiveId x : o.writes)
      if (!live[x]) extra += v.size[x];
    most = std::max(most, now + extra);
    for (LiveId x : o.writes)
      if (!o.partial && live[x]) {
        live[x] = 0;
        now -= v.size[x];
      }
    for (LiveId x : o.reads) begin(x);
    most = std::max(most, now);
  }
  return most;
}

int most_live_held(const std::vector<Operation>& ops, const std::vector<std::uint32_t>& order,
                   const BlockValues& v, int held) {
  const int n = int(order.size());
  struct Range {
    int begin = -1, end = -1;  // operations, both included
  };
  std::vector<Range> range(v.size.size());
  const auto touch = [&](LiveId x, int begin, int end) {
    if (range[x].begin < 0) range[x].begin = begin;
    range[x].end = std::max(range[x].end, std::min(end, n));
  };
  for (LiveId x : v.in) touch(x, 0, -1);
  for (int k = 0; k < n; ++k) {
    const Operation& o = ops[order[std::size_t(k)]];
    const Family f = family(o.inst->op);
    const bool holds = o.inst->op == Op::st || f == Family::atomic || f == Family::warp;
    for (LiveId x : o.reads) touch(x, 0, holds ? k + held : k);
    for (LiveId x : o.writes) touch(x, k, k);
  }
  for (LiveId x : v.out) touch(x, 0, n);
  std::vector<int> change(std::size_t(n) + 2);
  for (std::size_t x = 0; x < range.size(); ++x) {
    if (range[x].begin < 0 || range[x].end < range[x].begin) continue;
    change[std::size_t(range[x].begin)] += v.size[x];
    change[std::size_t(range[x].end) + 1] -= v.size[x];
  }
  int most = 0;
  std::partial_sum(change.begin(), change.end(), change.begin());
  for (int live : change) most = std::max(most, live);
  return most;
}

std::vector<std::uint32_t> schedule(const std::vector<Operation>& ops, const BlockValues& v, int target) {
  std::vector<Node> nodes = Dependences(ops).take();
  Pressure pressure(ops, v);
  std::vector<std::uint32_t> open, out;
  for (std::uint32_t k = 0; k < ops.size(); ++k)
    if (!nodes[k].waits) open.push_back(k);
  for (int time = 0; !open.empty();) {
    const bool tight = pressure.now() >= target;
    std::size_t best = open.size();
    int least = 0;
    for (std::size_t k = 0; k < open.size(); ++k) {
      const std::uint32_t x = open[k];
      if (!tight && nodes[x].ready > time) continue;
      // Less is better: what frees most, or what has the longest way to go.
      const int rank = tight ? pressure.change(ops[x]) : -nodes[x].height;
      if (best < open.size() && (rank > least || (rank == least && x > open[best]))) continue;
      best = k;
      least = rank;
    }
    if (best == open.size()) {  // nothing is ready yet
      time = nodes[open[0]].ready;
      for (std::uint32_t k : open) time = std::min(time, nodes[k].ready);
      continue;
    }
    const std::uint32_t x = open[best];
    open.erase(open.begin() + std::ptrdiff_t(best));
    pressure.run(ops[x]);
    out.push_back(x);
    time = std::max(time, nodes[x].ready) + 1;
    for (const auto& [to, cycles] : nodes[x].next) {
      nodes[to].ready = std::max(nodes[to].ready, time + cycles);
      if (!--nodes[to].waits) open.push_back(to);
    }
  }
  return out;
}

}  // namespace cgp::ptx
