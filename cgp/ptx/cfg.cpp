// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/cfg.h"

#include <algorithm>

namespace cgp::ptx {
namespace {

void add_edge(Cfg& c, BlockId from, BlockId to) {
  auto& s = c.blocks[from].successors;
  if (std::find(s.begin(), s.end(), to) != s.end()) return;
  s.push_back(to);
  c.blocks[to].predecessors.push_back(from);
}

std::vector<std::uint32_t> targets(const Function& f, const Inst& i) {
  std::vector<std::uint32_t> out;
  for (const Operand& o : i.operands) {
    if (o.kind == OperandKind::label) out.push_back(f.labels[o.label].position);
    if (o.kind == OperandKind::table && !f.tables[o.label].calls)
      for (LabelId l : f.tables[o.label].labels) out.push_back(f.labels[l].position);
  }
  return out;
}

std::vector<BlockId> reverse_postorder(std::size_t nodes, BlockId root,
                                       const std::vector<std::vector<BlockId>>& next) {
  std::vector<BlockId> order;
  std::vector<std::uint8_t> seen(nodes);
  std::vector<std::pair<BlockId, std::size_t>> stack{{root, 0}};  // explicit: bodies can be deep
  seen[root] = 1;
  while (!stack.empty()) {
    auto& [b, edge] = stack.back();
    if (edge == next[b].size()) {
      order.push_back(b);
      stack.pop_back();
      continue;
    }
    const BlockId to = next[b][edge++];
    if (!seen[to]) {
      seen[to] = 1;
      stack.emplace_back(to, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// Cooper, Harvey, Kennedy: "A simple, fast dominance algorithm".
std::vector<BlockId> immediate_dominators(std::size_t nodes, BlockId root,
                                          const std::vector<std::vector<BlockId>>& next,
                                          const std::vector<std::vector<BlockId>>& previous) {
  const std::vector<BlockId> order = reverse_postorder(nodes, root, next);
  std::vector<std::uint32_t> rank(nodes, kNone);
  for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = std::uint32_t(i);
  std::vector<BlockId> dom(nodes, kNone);
  dom[root] = root;
  for (bool changed = true; changed;) {
    changed = false;
    for (BlockId b : order) {
      if (b == root) continue;
      BlockId best = kNone;
      for (BlockId p : previous[b]) {
        if (rank[p] == kNone || dom[p] == kNone) continue;
        if (best == kNone) {
          best = p;
          continue;
        }
        BlockId x = p, y = best;
        while (x != y) {
          while (rank[x] > rank[y]) x = dom[x];
          while (rank[y] > rank[x]) y = dom[y];
        }
        best = x;
      }
      if (dom[b] != best) {
        dom[b] = best;
        changed = true;
      }
    }
  }
  dom[root] = kNone;
  return dom;
}

void find_blocks(const Function& f, Cfg& c) {
  const auto n = std::uint32_t(f.body.size());
  std::vector<std::uint8_t> leader(n + 1);
  leader[0] = 1;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (!is_jump(f.body[i].op)) continue;
    leader[i + 1] = 1;
    for (std::uint32_t t : targets(f, f.body[i])) leader[t] = 1;
  }
  c.block_of.resize(n);
  for (std::uint32_t i = 0; i < n; ++i) {
    if (leader[i]) c.blocks.push_back({i, i, {}, {}, false, false});
    c.blocks.back().last = i + 1;
    c.block_of[i] = BlockId(c.blocks.size() - 1);
  }
}

void find_edges(const Function& f, Cfg& c) {
  for (BlockId b = 0; b < c.blocks.size(); ++b) {
    const Inst& last = f.body[c.blocks[b].last - 1];
    const bool jump = is_jump(last.op), always = last.guard == kNone;
    auto go = [&](std::uint32_t position) {
      if (position < f.body.size())
        add_edge(c, b, c.block_of[position]);
      else
        c.blocks[b].exits = true;
    };
    // A guarded jump is not taken by every thread.
    if (!jump || !always) go(c.blocks[b].last);
    if (!jump) continue;
    if (last.op == Op::bra || last.op == Op::brx_idx)
      for (std::uint32_t t : targets(f, last)) go(t);
    else
      c.blocks[b].exits = true;
  }
}

}  // namespace

bool is_jump(Op op) {
  return op == Op::bra || op == Op::brx_idx || op == Op::ret || op == Op::exit || op == Op::trap;
}

Cfg build_cfg(const Function& f) {
  Cfg c;
  if (f.body.empty()) return c;
  find_blocks(f, c);
  find_edges(f, c);
  const std::size_t n = c.blocks.size();
  std::vector<std::vector<BlockId>> next(n), previous(n);
  for (BlockId b = 0; b < n; ++b) {
    next[b] = c.blocks[b].successors;
    previous[b] = c.blocks[b].predecessors;
  }
  c.order = reverse_postorder(n, 0, next);
  for (BlockId b : c.order) c.blocks[b].reachable = true;
  c.dominator = immediate_dominators(n, 0, next, previous);
  // The reverse graph has one more node, the end of the function.
  std::vector<std::vector<BlockId>> back(n + 1), forth(n + 1);
  for (BlockId b = 0; b < n; ++b) {
    back[b] = previous[b];
    forth[b] = next[b];
    if (c.blocks[b].exits) {
      back[n].push_back(b);
      forth[b].push_back(BlockId(n));
    }
  }
  c.post_dominator = immediate_dominators(n + 1, BlockId(n), back, forth);
  c.post_dominator.resize(n);
  for (BlockId& p : c.post_dominator)
    if (p == n) p = kNone;
  return c;
}

bool Cfg::dominates(BlockId a, BlockId b) const {
  while (b != kNone && b != a) b = dominator[b];
  return b == a;
}
bool Cfg::post_dominates(BlockId a, BlockId b) const {
  while (b != kNone && b != a) b = post_dominator[b];
  return b == a;
}

}  // namespace cgp::ptx
