// SPDX-License-Identifier: Apache-2.0
#include "cgp/shader/structure.h"

#include <algorithm>
#include <set>

#include "cgp/base/text.h"
#include "cgp/ptx/loops.h"
#include "cgp/ptx/print.h"

namespace cgp::shader {

using ptx::BlockId;
using ptx::kNone;
using ptx::Op;

void refuse(const ptx::Module& m, const ptx::Function& f, std::uint32_t inst, std::string rule,
            std::string hint) {
  std::uint32_t loc = kNone;
  for (std::uint32_t i = 0; i <= inst && i < f.body.size(); ++i)
    if (f.body[i].loc != kNone) loc = f.body[i].loc;
  std::string where = "instruction ";
  text::append(where, inst);
  if (f.body[inst].ptx_line) where = text::cat("PTX line ", f.body[inst].ptx_line);
  if (loc < m.locs.size()) {
    const auto& l = m.locs[loc];
    for (const auto& [number, path] : m.files)
      if (number == l.file) where = text::cat(path, ":", l.line);
  }
  throw BuildError(ErrorText{std::move(rule), where, ptx::print(m, f, f.body[inst]), std::move(hint)});
}

namespace {

constexpr int kDeepest = 500;  // the recursion's depth

class Structurer {
 public:
  Structurer(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c)
      : m_(m), f_(f), c_(c), exit_(BlockId(c.blocks.size())) {}

  Structure run() {
    prepare();
    Structure s;
    if (c_.blocks.empty()) return s;
    std::set<BlockId> escapes;
    s.statements = tree(0, exit_, escapes);
    s.flags = std::uint32_t(flag_of_.size());
    return s;
  }

 private:
  using List = std::vector<Statement>;

  void prepare() {
    number_.assign(c_.blocks.size() + 1, kNone);
    for (std::size_t i = 0; i < c_.order.size(); ++i) number_[c_.order[i]] = std::uint32_t(i);
    number_[exit_] = std::uint32_t(c_.order.size());
    for (BlockId b : c_.order) {
      const auto& block = c_.blocks[b];
      const auto& last = f_.body[block.last - 1];
      if (last.op == Op::brx_idx) refuse(m_, f_, block.last - 1, "a shader has no indexed branch");
      for (BlockId s : block.successors)
        if (number_[s] <= number_[b] && !c_.dominates(s, b))
          refuse(m_, f_, block.last - 1,
                 "control flow must be reducible: this branch enters a cycle that has another entry",
                 "write the loop with k.loop or k.while_");
    }
    loops_ = ptx::find_loops(c_);
    header_.assign(c_.blocks.size(), kNone);
    for (std::uint32_t l = 0; l < loops_.loops.size(); ++l) header_[loops_.loops[l].header] = l;
    merge_.assign(c_.blocks.size(), false);
    inside_.resize(c_.blocks.size());
    behind_.resize(c_.blocks.size());
    for (BlockId b : c_.order) {
      if (b == 0) continue;
      std::size_t forward = 0;
      for (BlockId p : c_.blocks[b].predecessors) forward += number_[p] != kNone && number_[p] < number_[b];
      const std::uint32_t left = outermost_left(c_.dominator[b], b);
      merge_[b] = forward > 1 || left != kNone;
      if (!merge_[b]) continue;
      auto& list = left == kNone ? inside_[c_.dominator[b]] : behind_[loops_.loops[left].header];
      list.push_back(b);  // c_.order: the earlier ones first
    }
  }

  /// The outermost loop around `from` that `to` is not in.
  std::uint32_t outermost_left(BlockId from, BlockId to) const {
    std::uint32_t found = kNone;
    for (std::uint32_t l = loops_.innermost[from]; l != kNone; l = loops_.loops[l].parent)
      if (!loops_.loops[l].contains(to)) found = l;
    return found;
  }

  bool in_loop(std::uint32_t loop, BlockId b) const { return b != exit_ && loops_.loops[loop].contains(b); }

  std::uint32_t flag(BlockId target) {
    const auto at = std::find(flag_of_.begin(), flag_of_.end(), target);
    if (at != flag_of_.end()) return std::uint32_t(at - flag_of_.begin());
    flag_of_.push_back(target);
    return std::uint32_t(flag_of_.size() - 1);
  }
  Statement flagged(Statement::Kind k, BlockId target) {
    Statement s;
    s.kind = k;
    s.flags = {flag(target)};
    return s;
  }

  /// Block b and all that it dominates, when the end of the list goes on at `fall`. `escapes` gets the blocks
  /// that flags are set for.
  List tree(BlockId b, BlockId fall, std::set<BlockId>& escapes) {
    struct Depth {
      explicit Depth(int& n) : n(n) { ++n; }
      ~Depth() { --n; }
      int& n;
    } depth(depth_);
    if (depth_ > kDeepest)
      refuse(m_, f_, c_.blocks[b].last - 1, text::cat("a shader nests at most ", kDeepest, " branches"));
    List list;
    List* into = &list;
    for (;;) {
      const std::vector<BlockId>& follows = header_[b] == kNone ? inside_[b] : behind_[b];
      if (follows.empty()) {
        add(*into, block(b, follows, 0, fall, escapes));
        return list;
      }
      // What the last of them does stands at the end, without recursion: kernels have long sequences of branches.
      const BlockId last = follows.back();
      std::set<BlockId> out;
      add(*into, cleared(block(b, follows, follows.size() - 1, last, out), last, out));
      escapes.insert(out.begin(), out.end());
      if (!out.empty()) {
        into->push_back(guarded(out));
        into = &into->back().body;
      }
      b = last;
    }
  }

  List block(BlockId b, const std::vector<BlockId>& follows, std::size_t count, BlockId fall,
             std::set<BlockId>& escapes) {
    return nested(follows, count, fall, escapes, [&](BlockId next, auto& e) {
      return header_[b] == kNone ? code(b, next, e) : loop(b, next, e);
    });
  }

  static void add(List& to, List from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  }

  /// The list from whose end, or from inside of which, control goes on at `follow`.
  List cleared(List list, BlockId follow, std::set<BlockId>& out) {
    if (out.erase(follow) && loop_ != kNone)
      list.insert(list.begin(), flagged(Statement::Kind::clear, follow));
    return list;
  }

  Statement guarded(const std::set<BlockId>& out) {
    Statement s;
    s.kind = Statement::Kind::unless;
    for (BlockId t : out) s.flags.push_back(flag(t));
    return s;
  }

  /// `inner` followed by the first `count` of `follows`, each of which what stands before it may jump to.
  template <class Inner>
  List nested(const std::vector<BlockId>& follows, std::size_t count, BlockId fall,
              std::set<BlockId>& escapes, const Inner& inner) {
    if (count == 0) return inner(fall, escapes);
    const BlockId follow = follows[count - 1];
    std::set<BlockId> out;
    List list = cleared(nested(follows, count - 1, follow, out, inner), follow, out);
    List rest = tree(follow, fall, escapes);
    escapes.insert(out.begin(), out.end());
    if (out.empty()) {
      add(list, std::move(rest));
    } else {
      list.push_back(guarded(out));
      list.back().body = std::move(rest);
    }
    return list;
  }

  List loop(BlockId header, BlockId fall, std::set<BlockId>& escapes) {
    const std::uint32_t outer = loop_;
    const BlockId outer_leave = leave_;
    loop_ = header_[header];
    leave_ = fall;
    std::set<BlockId> out;
    Statement s;
    s.kind = Statement::Kind::loop;
    s.block = header;
    s.body = nested(inside_[header], inside_[header].size(), header, out,
                    [&](BlockId next, auto& e) { return code(header, next, e); });
    if (out.erase(header)) s.body.insert(s.body.begin(), flagged(Statement::Kind::clear, header));
    loop_ = outer;
    leave_ = outer_leave;
    List list;
    list.push_back(std::move(s));
    if (out.erase(fall) && loop_ != kNone) list.push_back(flagged(Statement::Kind::clear, fall));
    for (BlockId t : out) {
      if (loop_ != kNone && !in_loop(loop_, t)) list.push_back(flagged(Statement::Kind::if_leave, t));
      escapes.insert(t);
    }
    return list;
  }

  List code(BlockId b, BlockId fall, std::set<BlockId>& escapes) {
    const auto& block = c_.blocks[b];
    const auto& last = f_.body[block.last - 1];
    List list(1);
    list[0].block = b;
    const auto append = [&](List more) {
      list.insert(list.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    };
    const bool jumps = ptx::is_jump(last.op);
    if (jumps && last.guard != kNone) {
      const bool exits = last.op != Op::bra;
      const BlockId taken = exits ? exit_ : target(last);
      const BlockId next = block.last < f_.body.size() ? c_.block_of[block.last] : exit_;
      if (taken == next) {
        append(jump(b, next, fall, escapes));
        return list;
      }
      Statement s;
      s.kind = Statement::Kind::branch;
      s.condition = last.guard;
      s.negated = last.guard_negated;
      s.block = b;
      s.body = jump(b, taken, fall, escapes);
      s.otherwise = jump(b, next, fall, escapes);
      if (s.body.empty() && !s.otherwise.empty()) {
        std::swap(s.body, s.otherwise);
        s.negated = !s.negated;
      }
      if (!s.body.empty()) list.push_back(std::move(s));
      return list;
    }
    if (jumps && last.op == Op::bra)
      append(jump(b, target(last), fall, escapes));
    else if (jumps || block.last == f_.body.size())
      append(jump(b, exit_, fall, escapes));
    else
      append(jump(b, c_.block_of[block.last], fall, escapes));
    return list;
  }

  BlockId target(const ptx::Inst& bra) const {
    const std::uint32_t position = f_.labels[bra.operands[0].label].position;
    return position < f_.body.size() ? c_.block_of[position] : exit_;
  }

  List jump(BlockId from, BlockId to, BlockId fall, std::set<BlockId>& escapes) {
    if (to == fall) return {};
    const bool back = to != exit_ && number_[to] <= number_[from];
    if (!back && to != exit_ && !merge_[to]) return tree(to, fall, escapes);
    Statement s;
    if (loop_ != kNone && (to == leave_ || to == loops_.loops[loop_].header)) {
      s.kind = to == leave_ ? Statement::Kind::leave : Statement::Kind::next;
      return {s};
    }
    List list;
    escapes.insert(to);
    list.push_back(flagged(Statement::Kind::set, to));
    if (loop_ != kNone && !in_loop(loop_, to)) {
      s.kind = Statement::Kind::leave;
      list.push_back(s);
    }
    return list;
  }

  const ptx::Module& m_;
  const ptx::Function& f_;
  const ptx::Cfg& c_;
  const BlockId exit_;
  ptx::LoopForest loops_;
  std::vector<std::uint32_t> number_;  ///< per block: place in c_.order
  std::vector<std::uint32_t> header_;  ///< per block: the loop that it heads
  std::vector<bool> merge_;            ///< per block: several jump to it, or it stands behind a loop
  std::vector<std::vector<BlockId>> inside_, behind_;
  std::vector<BlockId> flag_of_;
  std::uint32_t loop_ = kNone;  ///< the innermost loop of what is being written
  BlockId leave_ = kNone;       ///< where its break goes
  int depth_ = 0;
};

}  // namespace

Structure structured(const ptx::Module& m, const ptx::Function& f, const ptx::Cfg& c) {
  return Structurer(m, f, c).run();
}

}  // namespace cgp::shader
