// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/races.h"

#include <algorithm>
#include <map>

#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

/// Orders the accesses of a block's threads, or may: what stands behind it is another matter.
bool separates(const Inst& i) {
  switch (family(i.op)) {
    case Family::barrier:
      return i.op != Op::fence_proxy && i.op != Op::membar && i.op != Op::fence;
    case Family::mbarrier:
    case Family::warp:  // lanes of a warp agree here
    case Family::wgmma:
    case Family::tcgen05:
      return true;
    case Family::atomic:
      return true;  // a lock or a flag
    default:
      return i.op == Op::call || i.has(Mod::volatile_) || i.has(Mod::acquire) || i.has(Mod::release);
  }
}

class Finder {
 public:
  Finder(const ThreadValues& v, const std::vector<MemoryAccess>& accesses)
      : v_(v), c_(v.cfg()), f_(v.function()) {
    for (const MemoryAccess& a : accesses)
      if (a.space == Space::shared && a.kind != AccessKind::atomic && !separates(f_.body[a.inst]))
        at_[a.inst] = &a;
  }

  std::vector<RaceHint> run() {
    for (const auto& [inst, a] : at_) walk(*a);
    return std::move(out_);
  }

 private:
  void walk(const MemoryAccess& from) {
    std::vector<std::uint8_t> seen(c_.blocks.size());
    std::vector<BlockId> open;
    scan(from, from.inst + 1, c_.block_of[from.inst], seen, open);
    while (!open.empty()) {
      const BlockId b = open.back();
      open.pop_back();
      scan(from, c_.blocks[b].first, b, seen, open);
    }
  }

  /// The accesses from instruction `i` to the end of its block, unless a barrier comes first.
  void scan(const MemoryAccess& from, std::uint32_t i, BlockId b, std::vector<std::uint8_t>& seen,
            std::vector<BlockId>& open) {
    for (; i < c_.blocks[b].last; ++i) {
      if (separates(f_.body[i])) return;
      if (const auto to = at_.find(i); to != at_.end()) compare(from, *to->second);
    }
    for (BlockId s : c_.blocks[b].successors)
      if (!seen[s]) {
        seen[s] = 1;
        open.push_back(s);
      }
  }

  void compare(const MemoryAccess& a, const MemoryAccess& b) {
    if (a.kind != AccessKind::store && b.kind != AccessKind::store) return;
    if (f_.body[a.inst].op == Op::ldmatrix || f_.body[b.inst].op == Op::ldmatrix) return;
    if (std::any_of(out_.begin(), out_.end(), [&](const RaceHint& r) { return r.second == b.inst; })) return;
    const auto pair = meet(a, b);
    if (!pair) return;
    const Inst& first = f_.body[a.inst];
    out_.push_back(
        {a.inst, b.inst,
         text::cat("thread ", pair->first, " ", a.kind == AccessKind::store ? "writes" : "reads", " in ",
                   first.ptx_line ? text::cat("line ", first.ptx_line) : text::cat("`", name(first.op), "`"),
                   " what thread ", pair->second, b.kind == AccessKind::store ? " overwrites" : " reads",
                   " here, and a path between them has no barrier")});
  }

  /// Two threads of different warps whose bytes overlap, when both addresses have the same unknown part.
  std::optional<std::pair<std::size_t, std::size_t>> meet(const MemoryAccess& a,
                                                          const MemoryAccess& b) const {
    const LinearForm apart = add(a.address, b.address, -1);
    for (const Term& t : a.address.terms)
      if (!t.coefficient.same() || v_.symbol(t.symbol).scope < Scope::block ||
          v_.symbol(t.symbol).block != kNone)
        return std::nullopt;
    if (!apart.known()) return std::nullopt;
    const auto &may = v_.control(c_.block_of[a.inst]).may, &can = v_.control(c_.block_of[b.inst]).may;
    // Bytes that each thread touches in a, by address.
    std::map<std::int64_t, std::size_t> owner;
    for (std::size_t t = 0; t < v_.threads(); ++t)
      for (std::uint32_t k = 0; may[t] && k < a.bytes; ++k) owner[a.address.constant[t] + k] = t;
    for (std::size_t t = 0; t < v_.threads(); ++t)
      for (std::uint32_t k = 0; can[t] && k < b.bytes; ++k) {
        const auto at = owner.find(b.address.constant[t] + k);
        if (at != owner.end() && at->second / 32 != t / 32) return std::pair{at->second, t};
      }
    return std::nullopt;
  }

  const ThreadValues& v_;
  const Cfg& c_;
  const Function& f_;
  std::map<std::uint32_t, const MemoryAccess*> at_;
  std::vector<RaceHint> out_;
};

}  // namespace

std::vector<RaceHint> race_hints(const ThreadValues& v, const std::vector<MemoryAccess>& accesses) {
  return Finder(v, accesses).run();
}

}  // namespace cgp::ptx
