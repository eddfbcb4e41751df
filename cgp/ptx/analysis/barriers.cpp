// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/analysis/barriers.h"

#include <algorithm>
#include <bit>
#include <map>

#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

using text::cat;

/// What a barrier instruction says, and who comes.
struct Arrival {
  std::uint32_t inst = 0;
  std::optional<std::int64_t> count;
  std::optional<Lanes> id;  ///< of every thread
  bool counted = false;     ///< a count is written (it may be unknown)
  Scope together = Scope::grid, scope = Scope::grid;
  std::vector<std::uint8_t> may;
  std::size_t threads = 0;
};

bool is_block_barrier(Op op) {
  switch (op) {
    case Op::bar_sync:
    case Op::bar_red:
    case Op::bar_arrive:
    case Op::barrier_sync:
    case Op::barrier_red:
    case Op::barrier_arrive:
      return true;
    default:
      return false;
  }
}
/// Every lane of a warp must execute the same barrier.
bool warps_at_once(const Inst& i) {
  return i.op == Op::bar_sync || i.op == Op::bar_red || i.op == Op::bar_arrive || i.has(Mod::aligned);
}
bool is_cluster_barrier(Op op) { return op == Op::barrier_cluster_arrive || op == Op::barrier_cluster_wait; }

/// Operand of the member mask; -1 for instructions without one.
int mask_operand(const Inst& i) {
  switch (i.op) {
    case Op::bar_warp_sync:
      return 0;
    case Op::elect_sync:
      return 1;
    case Op::shfl_sync:
      return 4;
    case Op::vote_sync:
    case Op::match_any_sync:
    case Op::match_all_sync:
    case Op::redux_sync:
      return 2;
    default:
      return -1;
  }
}

class Checker {
 public:
  explicit Checker(const ThreadValues& v) : v_(v), f_(v.function()), c_(v.cfg()) {}

  std::vector<Collective> run() {
    for (BlockId b : c_.order)
      for (std::uint32_t i = c_.blocks[b].first; i < c_.blocks[b].last; ++i)
        if (is_block_barrier(f_.body[i].op)) arrivals_.push_back(arrival(i));
    for (BlockId b = 0; b < c_.blocks.size(); ++b) {
      if (!c_.blocks[b].reachable) continue;
      for (std::uint32_t i = c_.blocks[b].first; i < c_.blocks[b].last; ++i) visit(i);
    }
    return std::move(out_);
  }

 private:
  Arrival who_comes(std::uint32_t i) const {
    const Control& control = v_.control(c_.block_of[i]);
    const Inst& inst = f_.body[i];
    Arrival a;
    a.inst = i;
    a.scope = control.scope;
    a.together = control.together;
    a.may = control.may;
    if (inst.guard != kNone) {
      const LinearForm guard = v_.operand(i, Operand::of(inst.guard, inst.guard_negated), 1);
      a.scope = min_of(a.scope, v_.scope(guard));
      if (!guard.known()) a.together = min_of(a.together, v_.scope(guard));
      for (std::size_t t = 0; t < a.may.size() && guard.known(); ++t)
        a.may[t] = a.may[t] && guard.constant[t];
    }
    a.threads = std::size_t(std::count(a.may.begin(), a.may.end(), 1));
    return a;
  }

  Arrival arrival(std::uint32_t i) const {
    Arrival a = who_comes(i);
    const Inst& inst = f_.body[i];
    const bool reduces = inst.op == Op::bar_red || inst.op == Op::barrier_red;
    const std::size_t first = reduces ? 1 : 0;
    const auto number = [&](std::size_t k) -> std::optional<std::int64_t> {
      const LinearForm x = v_.operand(i, inst.operands[k], 32);
      if (x.is_constant()) return x.constant[0];
      return std::nullopt;
    };
    if (inst.operands.size() > first)
      if (const LinearForm x = v_.operand(i, inst.operands[first], 32); x.known()) a.id = x.constant;
    a.counted = inst.operands.size() > first + 1 + (reduces ? 1 : 0);
    if (a.counted) a.count = number(first + 1);
    return a;
  }

  /// "the condition of line 12 (`setp...`) ..." of what keeps the block from being uniform.
  std::string condition_text(std::uint32_t i) const {
    const Inst& inst = f_.body[i];
    const Control& control = v_.control(c_.block_of[i]);
    LinearForm condition;
    std::uint32_t at = i;
    if (inst.guard != kNone && v_.scope(v_.operand(i, Operand::of(inst.guard), 1)) <= control.scope) {
      condition = v_.operand(i, Operand::of(inst.guard, inst.guard_negated), 1);
    } else if (control.branch != kNone) {
      at = control.branch;
      if (const auto c = v_.condition(at)) condition = *c;
    } else {
      return "the function is called where threads may have parted";
    }
    const Inst& jump = f_.body[at];
    std::string of = at == i              ? "its guard "
                     : jump.op == Op::bra ? "the branch "
                                          : cat("the ", name(jump.op), " ");
    if (at != i && jump.ptx_line) of += cat("of line ", jump.ptx_line, " ");
    of += cat("on ", jump.guard != kNone ? f_.regs[jump.guard].name : "an index");
    const Scope s = v_.condition_scope(at == i ? at : at);
    const Scope real = at == i ? v_.scope(condition) : s;
    return cat(of, real == Scope::thread ? " may differ from thread to thread"
                                         : cat(" is the same only within a ", name(real)));
  }

  void add(std::uint32_t i, Scope needed, Verdict verdict, Bug bug, std::string why, std::size_t threads) {
    out_.push_back({i, needed, verdict, std::move(why), bug, threads});
  }
  std::string left_text(std::uint32_t i, const Arrival& a) const {
    std::string s = cat(a.threads, " of ", v_.threads(), " threads come");
    std::size_t t = 0;
    while (t < a.may.size() && a.may[t]) ++t;
    if (t < a.may.size()) s += cat(" (not thread ", t, ")");
    return cat(s, ": ", condition_text(i));
  }

  void visit(std::uint32_t i) {
    const Inst& inst = f_.body[i];
    if (is_block_barrier(inst.op)) {
      for (const Arrival& a : arrivals_)
        if (a.inst == i) block_barrier(a);
    } else if (is_cluster_barrier(inst.op)) {
      const Arrival a = who_comes(i);
      const bool all = a.threads == v_.threads();
      if (a.threads == 0 || (all && a.together >= Scope::cluster))  // nobody ever comes, or all do
        add(i, Scope::cluster, Verdict::safe, Bug::B02, "", a.threads);
      else if (!all)
        wrong(a, Scope::cluster, exit_or(i, Bug::B03, Bug::B01), Bug::B02, left_text(i, a));
      else
        add(i, Scope::cluster, Verdict::unknown, Bug::B02, condition_text(i), a.threads);
    } else if (mask_operand(inst) >= 0 && std::size_t(mask_operand(inst)) < inst.operands.size()) {
      warp_operation(i);
    } else if (inst.has(Mod::aligned)) {
      const bool group = family(inst.op) == Family::wgmma || inst.op == Op::setmaxnreg;
      aligned(i, group ? Scope::warpgroup : Scope::warp);
    }
  }

  /// Wrong only if the instruction runs: conditions that are not known may see to it that it never does.
  void wrong(const Arrival& a, Scope needed, Bug certain, Bug unproven, std::string why) {
    const bool sure = a.together >= Scope::block;
    add(a.inst, needed, sure ? Verdict::unsafe : Verdict::unknown, sure ? certain : unproven, std::move(why),
        a.threads);
  }
  Bug exit_or(std::uint32_t i, Bug after_exit, Bug otherwise) const {
    return v_.control(c_.block_of[i]).after_exit ? after_exit : otherwise;
  }

  void block_barrier(const Arrival& a) {
    const std::uint32_t i = a.inst;
    if (a.threads == 0) return add(i, Scope::block, Verdict::safe, Bug::B02, "", 0);  // nobody ever comes
    if (a.counted) return counted_barrier(a);
    if (a.threads == v_.threads()) {
      if (a.together >= Scope::block) return add(i, Scope::block, Verdict::safe, Bug::B02, "", a.threads);
      return add(i, Scope::block, Verdict::unknown, Bug::B02, condition_text(i), a.threads);
    }
    // The others may come by another barrier of the same number, whole warps at a time.
    std::map<std::vector<std::uint8_t>, int> sides;
    for (const Arrival& o : arrivals_)
      if (!o.counted && a.id && a.id->same() && o.id == a.id && o.together >= Scope::block && o.threads)
        ++sides[o.may];
    std::vector<std::uint8_t> all(v_.threads());
    bool split = false, overlap = false, even = true;
    for (const auto& [may, n] : sides) {
      even = even && n == sides.begin()->second;
      for (std::size_t t = 0; t < all.size(); ++t) {
        split = split || may[t] != may[t / 32 * 32];
        overlap = overlap || (all[t] && may[t]);
        all[t] = all[t] || may[t];
      }
    }
    const bool covered = std::count(all.begin(), all.end(), 1) == std::ptrdiff_t(all.size());
    if (covered && !split && !overlap && even)
      return add(i, Scope::block, Verdict::safe, Bug::B02, "", a.threads);
    if (covered && split && warps_at_once(f_.body[i]))
      return wrong(a, Scope::block, Bug::B01, Bug::B02,
                   cat("the lanes of a warp come by different barriers: ", condition_text(i)));
    if (covered)
      return add(i, Scope::block, Verdict::unknown, Bug::B02,
                 cat("the other threads may come by another barrier ", (*a.id)[0], "; ", condition_text(i)),
                 a.threads);
    wrong(a, Scope::block, exit_or(i, Bug::B03, Bug::B01), Bug::B02, left_text(i, a));
  }

  void counted_barrier(const Arrival& a) {
    if (!a.id || !a.count)
      return add(a.inst, Scope::block, Verdict::unknown, Bug::B02,
                 cat("its ", a.id ? "count" : "number", " is not known"), a.threads);
    if (*a.count % 32)
      return wrong(a, Scope::block, Bug::B04, Bug::B02, cat("its count ", *a.count, " is no multiple of 32"));
    std::vector<std::int64_t> ids;  // the threads may use several barriers here, one for each group
    for (std::size_t t = 0; t < v_.threads(); ++t)
      if (a.may[t] && std::find(ids.begin(), ids.end(), (*a.id)[t]) == ids.end()) ids.push_back((*a.id)[t]);
    for (std::int64_t id : ids)
      if (!counted_barrier(a, id)) return;
    add(a.inst, Scope::block, Verdict::safe, Bug::B02, "", a.threads);
  }

  /// True when exactly as many threads can come to barrier `id` as it waits for; else the verdict is noted.
  bool counted_barrier(const Arrival& a, std::int64_t id) {
    const auto bad = [&](std::string why) {
      wrong(a, Scope::block, Bug::B04, Bug::B02, std::move(why));
      return false;
    };
    const auto unknown = [&](std::string why) {
      add(a.inst, Scope::block, Verdict::unknown, Bug::B02, std::move(why), a.threads);
      return false;
    };
    std::vector<std::uint8_t> all(v_.threads());
    bool certain = true, ids_known = true;
    for (const Arrival& o : arrivals_) {
      if (!o.id) {
        ids_known = false;
        continue;
      }
      bool comes = false;
      for (std::size_t t = 0; t < all.size(); ++t)
        if (o.may[t] && (*o.id)[t] == id) all[t] = comes = true;
      if (!comes) continue;
      if (o.counted && o.count && *o.count != *a.count)
        return bad(cat("it waits for ", *a.count, " threads, the barrier ", id, " of line ",
                       f_.body[o.inst].ptx_line, " for ", *o.count));
      certain = certain && o.together >= Scope::block;
    }
    // An .aligned barrier is arrived at by whole warps.
    std::size_t arriving = 0;
    for (std::size_t w = 0; w < all.size(); w += 32)
      if (std::any_of(all.begin() + std::ptrdiff_t(w),
                      all.begin() + std::ptrdiff_t(std::min(all.size(), w + 32)),
                      [](std::uint8_t x) { return x != 0; }))
        arriving += 32;
    if (!ids_known) return unknown("the number of another barrier is not known");
    if (std::size_t(*a.count) > arriving)
      return bad(
          cat("barrier ", id, " waits for ", *a.count, " threads, but at most ", arriving, " can come"));
    if (!certain) return unknown(condition_text(a.inst));
    if (arriving != std::size_t(*a.count))
      return unknown(cat(arriving, " threads can come to barrier ", id, ", it waits for ", *a.count));
    return true;
  }

  void warp_operation(std::uint32_t i) {
    const Inst& inst = f_.body[i];
    const Arrival a = who_comes(i);
    if (a.threads == 0) return add(i, Scope::warp, Verdict::safe, Bug::B06, "", 0);
    const LinearForm mask = v_.operand(i, inst.operands[std::size_t(mask_operand(inst))], 32);
    if (!mask.known()) {
      // A mask that the program computed: whether it names the lanes that come is not followed.
      const bool fine = a.together >= Scope::warp && full_warps(a);
      return add(i, Scope::warp, fine ? Verdict::safe : Verdict::unknown, Bug::B06,
                 fine ? "" : cat("its mask is computed, and ", condition_text(i)), a.threads);
    }
    for (std::size_t t = 0; t < v_.threads(); ++t) {
      if (!a.may[t]) continue;
      const auto bits = std::uint32_t(mask.constant[t]);
      const std::size_t first = t / 32 * 32;
      if (!(bits >> (t - first) & 1))
        return wrong(
            a, Scope::warp, Bug::B05, Bug::B06,
            cat("thread ", t, " (lane ", t - first, ") comes and is not in its mask ", text::hex(bits)));
      for (std::size_t l = 0; l < 32 && first + l < v_.threads(); ++l)
        if ((bits >> l & 1) && !a.may[first + l])
          return wrong(a, Scope::warp, Bug::B05, Bug::B06,
                       cat("its mask ", text::hex(bits), " names lane ", l,
                           ", which does not come when thread ", t, " does: ", condition_text(i)));
    }
    if (a.together >= Scope::warp) return add(i, Scope::warp, Verdict::safe, Bug::B06, "", a.threads);
    add(i, Scope::warp, Verdict::unknown, Bug::B06, condition_text(i), a.threads);
  }

  bool full_warps(const Arrival& a) const {
    for (std::size_t t = 0; t < a.may.size(); ++t)
      if (a.may[t] != a.may[t / 32 * 32]) return false;
    return true;
  }

  void aligned(std::uint32_t i, Scope needed) {
    const Arrival a = who_comes(i);
    const std::size_t size = needed == Scope::warp ? 32 : 128;
    for (std::size_t t = 0; t < a.may.size(); ++t)
      if (a.may[t] != a.may[t / size * size])
        return wrong(a, needed, Bug::B05, Bug::B06,
                     cat("thread ", a.may[t] ? t / size * size : t, " does not come: ", condition_text(i)));
    if (a.threads == 0 || a.together >= needed) return add(i, needed, Verdict::safe, Bug::B06, "", a.threads);
    add(i, needed, Verdict::unknown, Bug::B06, condition_text(i), a.threads);
  }

  const ThreadValues& v_;
  const Function& f_;
  const Cfg& c_;
  std::vector<Arrival> arrivals_;
  std::vector<Collective> out_;
};

}  // namespace

std::string_view name(Verdict v) {
  constexpr std::string_view names[] = {"safe", "unsafe", "unknown"};
  return names[std::size_t(v)];
}

std::vector<Collective> check_collectives(const ThreadValues& v) { return Checker(v).run(); }

}  // namespace cgp::ptx
