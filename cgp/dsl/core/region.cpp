// SPDX-License-Identifier: Apache-2.0
// Open branches and loops: who may stand in them, and the state that leaves them.
#include <utility>

#include "cgp/base/text.h"
#include "cgp/dsl/core/val.h"

namespace cgp::dsl {
using ptx::RegId;
using text::cat;

// ---------------------------------------------------------------- regions
void Kernel::push_region(const char* kind, Uniform u, Here at) {
  if (guard_ != ptx::kNone)
    throw BuildError("guarded() predicates single instructions: no control flow inside", at);
  const Region r{kind, u, at, std::uint32_t(all_regions_.size())};
  all_regions_.push_back(r);
  region_open_.push_back(true);
  regions_.push_back(r);
}
void Kernel::pop_region() {
  region_open_[regions_.back().serial] = false;
  regions_.pop_back();
}
Uniform Kernel::region_uniform() const {
  Uniform u = Uniform::grid;
  for (const Region& r : regions_) u = min_of(u, r.uniform);
  return u;
}
void Kernel::collective(std::string_view what, Uniform scope, Here at) const {
  for (const Region& r : regions_)
    if (r.uniform < scope)
      throw BuildError(cat(what, " needs every thread of its ", dsl::name(scope), ", but sits inside ",
                           r.uniform == Uniform::thread ? cat("a divergent ", r.kind)
                                                        : cat("the ", r.kind, " of a ", dsl::name(r.uniform)),
                           " opened at ", cat(r.at.file, ":", r.at.line)),
                       at,
                       r.uniform == Uniform::thread
                           ? std::string("its condition may differ between threads of a warp")
                           : cat("its condition is the same only within a ", dsl::name(r.uniform)),
                       cat("move it out of the ", r.kind,
                           ", make the condition uniform, or promise it with assume_uniform(v, ...)"));
}

void Kernel::problem(std::string rule, Here at, std::string hint) {
  problems_.push_back({std::move(rule), at, std::move(hint)});
}
void Kernel::needs_full_warps(int multiple, Here at) {
  if (multiple <= warp_multiple_) return;
  warp_multiple_ = multiple;
  warp_multiple_at_ = at;
}
void Kernel::require(bool holds, std::string rule, std::string why, Here at) const {
  if (!holds) throw BuildError(std::move(rule), at, std::move(why));
}
void Kernel::needs_sm(int sm, std::string_view what, Here at) const {
  if (sm_ < sm)
    throw BuildError(cat(what, " needs sm_", sm, " or newer"), at,
                     cat("the kernel is built for ", module_.target));
}

// ---------------------------------------------------------------- carried state
HomeMode::HomeMode(Kernel& k) : k_(k), outer_(k.regions_.back().serial) {}
HomeMode::~HomeMode() { merge(false); }
void HomeMode::merge(bool on) {
  k_.merging_ = on;
  k_.home_region_ = on ? outer_ : ptx::kNone;
}

Value Kernel::carry_home(const Value& v) {
  const Value h = copy(v);
  if (merging_) return h.with(min_of(v.uniform(), regions_.back().uniform), v.is_kept_uniform());
  // Inside a loop the next turn's value is not known yet: uniform only if promised, and then checked.
  return v.is_kept_uniform() ? h.with(v.uniform(), true) : h.with(Uniform::thread);
}

Value Kernel::carry_settle(const Value& home, const Value& next) {
  operand(next.is_literal() ? home : next);  // owner and region checks
  moves_.push_back(
      {home.reg(), next.is_literal() ? ptx::kNone : next.reg(), next.is_literal(), next.bits(), home.type()});
  if (merging_) return home.with(min_of(home.uniform(), next.uniform()));
  if (home.is_kept_uniform() && next.uniform() < home.uniform())
    throw BuildError("keep_uniform: the body must hand back an equally uniform value", here_,
                     cat("it went in uniform over the ", dsl::name(home.uniform()),
                         " and came back uniform over the ", dsl::name(next.uniform())));
  return home.is_kept_uniform() ? home.with(min_of(home.uniform(), regions_.back().uniform), true) : home;
}

void Kernel::emit_move(const Move& m) {
  const Value to(this, m.to, m.type, Uniform::thread);
  mov(to, m.literal ? Value::literal(m.bits, m.type) : Value(this, m.from, m.type, Uniform::thread));
}

// All pending moves happen at once: one whose target is still to be read waits; a cycle is cut with a copy.
void Kernel::flush_moves() {
  std::vector<Move> todo;
  std::vector<std::uint32_t> readers(f_.regs.size(), 0);
  for (const Move& m : moves_)
    if (m.literal || m.from != m.to) {
      todo.push_back(m);
      if (!m.literal) ++readers[m.from];
    }
  moves_.clear();
  while (!todo.empty()) {
    std::vector<Move> blocked;
    for (const Move& m : todo) {
      if (m.to < readers.size() && readers[m.to]) {
        blocked.push_back(m);
        continue;
      }
      emit_move(m);
      if (!m.literal && m.from < readers.size()) --readers[m.from];
    }
    if (blocked.size() == todo.size()) {  // only cycles are left: read one target early
      const RegId target = blocked[0].to;
      const Value saved = copy(Value(this, target, blocked[0].type, Uniform::thread));
      for (Move& m : blocked)
        if (!m.literal && m.from == target) m.from = saved.reg();
      readers[target] = 0;
    }
    todo = std::move(blocked);
  }
}

void Kernel::adopt(const Value& v) {
  // Serials grow inwards: a register from further out keeps its longer life.
  if (v.is_literal() || home_region_ == ptx::kNone) return;
  if (reg_region_[v.reg()] > home_region_) reg_region_[v.reg()] = home_region_;
}

}  // namespace cgp::dsl
