// SPDX-License-Identifier: Apache-2.0
// Findings: making, deduplicating and printing them; the deadlock report.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/finding_class.h"

namespace cgp::emu {

using text::cat;

namespace {
std::string place(const Dim3& d) { return cat("(", d.x, ",", d.y, ",", d.z, ")"); }

/// The lists of registers of matrix instructions are left out: "{%f1, ..., %f64}".
std::string short_text(std::string s) {
  for (std::size_t open = s.find('{'); open != s.npos; open = s.find('{', open + 1)) {
    const std::size_t close = s.find('}', open), first = s.find(',', open);
    if (close == s.npos) break;
    if (std::count(s.begin() + std::ptrdiff_t(open), s.begin() + std::ptrdiff_t(close), ',') < 8) continue;
    const std::size_t last = s.rfind(',', close);
    s.replace(first, last - first, ", ...");
  }
  return s;
}

/// `at` is a Finding or an OtherParty.
template <class At>
void locate(const ProgramImpl& p, std::uint32_t inst, At& at) {
  const ptx::Inst& i = p.inst(inst);
  at.instruction = short_text(p.text(inst));
  at.ptx_line = int(i.ptx_line);
  if (i.loc == ptx::kNone) return;
  const ptx::Loc& loc = p.module.locs[i.loc];
  at.line = loc.line;
  at.column = loc.column;
  for (const auto& [number, path] : p.module.files)
    if (number == loc.file) at.file = path;
}

auto order(const Finding& f) {
  return std::array<std::uint32_t, 7>{f.device.value_or(0), f.block.z,  f.block.y, f.block.x,
                                      f.thread.z,           f.thread.y, f.thread.x};
}

/// Of a Finding or an OtherParty: "device 1, block (0,0,0) thread (1,0,0)".
template <class At>
std::string thread_text(const At& at) {
  return cat(at.device ? cat("device ", *at.device, ", ") : "", "block ", place(at.block), " thread ",
             place(at.thread));
}
}  // namespace

std::string line_text(const ProgramImpl& p, std::uint32_t inst) {
  OtherParty at;
  locate(p, inst, at);
  return cat("PTX line ", at.ptx_line, at.file.empty() ? "" : cat(", ", at.file, ":", at.line));
}

Finding make_finding(const Warp& w, std::string_view cls, const Op& op, Mask lanes, std::string message) {
  Finding f;
  f.cls = std::string(cls);
  if (const FindingClass* c = find_class(cls)) f.severity = c->severity;
  if (f.severity == Severity::warning && (w.checks & std::uint32_t(Check::strict)))
    f.severity = Severity::error;
  f.message = std::move(message);
  locate(*w.worker->launch->program, op.inst, f);
  f.device = w.worker->launch->device_number(w.cta->cluster->device);
  f.block = w.cta->id;
  f.thread = w.thread(lanes ? std::countr_zero(lanes) : 0);
  return f;
}

OtherParty make_other(const LaunchState& launch, std::uint32_t inst, std::uint32_t device, const Dim3& block,
                      const Dim3& thread) {
  OtherParty o;
  locate(*launch.program, inst, o);
  o.device = launch.device_number(device);
  o.block = block;
  o.thread = thread;
  return o;
}

OtherParty other_party(const Warp& w, const Op& op, Mask lanes) {
  return make_other(*w.worker->launch, op.inst, w.cta->cluster->device, w.cta->id,
                    w.thread(lanes ? std::countr_zero(lanes) : 0));
}

std::string LaunchState::buffer_text(const Allocation& a) const {
  for (std::size_t i = 0; devices.size() > 1 && i < devices.size(); ++i)
    if (devices[i].machine->heap->holds(a)) return cat("'", a.name, "' of device ", i);
  return cat("'", a.name, "'");
}

std::string register_name(const Function& f, Loc l) {
  for (std::size_t r = 0; r < f.register_locs.size(); ++r)
    if (f.register_locs[r] == l) return f.ptx->regs[r].name;
  return "a register";
}

void add_finding(LaunchState& launch, const Op& op, Finding f, std::string_view key) {
  std::lock_guard lock(launch.mutex);
  auto [it, added] = launch.finding_of.try_emplace({op.inst, cat(f.cls, key)}, launch.findings.size());
  if (added) {
    if (launch.findings.size() < launch.options.max_findings) {
      launch.findings.push_back(std::move(f));
      return;
    }
    launch.finding_of.erase(it);
    return;
  }
  // The first block and thread are kept, so that the report does not depend on the order of workers.
  Finding& old = launch.findings[it->second];
  const std::uint64_t count = old.count + f.count;
  if (order(f) < order(old)) old = std::move(f);
  old.count = count;
}

void Warp::report(Check check, std::string_view cls, const Op& op, Mask lanes, std::string message,
                  std::string hint, std::uint64_t address, std::string buffer, std::int64_t byte_offset) {
  if (!(checks & std::uint32_t(check))) return;
  Finding f = make_finding(*this, cls, op, lanes, std::move(message));
  f.hint = std::move(hint);
  f.address = address;
  f.buffer = std::move(buffer);
  f.byte_offset = byte_offset;
  add_finding(*worker->launch, op, std::move(f));
}

void Warp::fail(Check check, std::string_view cls, const Op& op, Mask lanes, std::string message,
                std::string hint) {
  if (!(checks & std::uint32_t(check))) {
    const Finding f = make_finding(*this, cls, op, lanes, message);
    throw EmuFault(ErrorText{cat(cls, ": ", message), cat("PTX line ", f.ptx_line, ", ", thread_text(f)),
                             cat("'", f.instruction, "'"), std::move(hint)});
  }
  report(check, cls, op, lanes, std::move(message), std::move(hint));
  throw StopLaunch{};
}

std::string_view name(Severity s) {
  return s == Severity::error ? "error" : s == Severity::warning ? "warning" : "note";
}

bool Result::clean() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& f) { return f.severity == Severity::error; });
}

std::string describe(const Finding& f) {
  std::string s = cat(f.severity == Severity::error ? "" : cat(name(f.severity), ": "), f.cls, ": ",
                      f.message, "\n  at '", f.instruction, "'");
  if (f.ptx_line) s += cat(", PTX line ", f.ptx_line);
  if (!f.file.empty()) s += cat(", ", f.file, ":", f.line);
  s += cat("\n  ", thread_text(f));
  if (f.count > 1) s += cat(", ", f.count, " times in all");
  if (f.instructions > 1) s += cat(", at ", f.instructions, " instructions");
  if (!f.buffer.empty())
    s += cat("\n  address ", text::hex(f.address), " is '", f.buffer, "' ", f.byte_offset < 0 ? "- " : "+ ",
             f.byte_offset < 0 ? -f.byte_offset : f.byte_offset);
  if (f.other) {
    s += cat("\n  other: '", f.other->instruction, "', PTX line ", f.other->ptx_line);
    if (!f.other->file.empty()) s += cat(", ", f.other->file, ":", f.other->line);
    s += cat(", ", thread_text(*f.other));
  }
  if (!f.missing_edge.empty()) s += cat("\n  missing: ", f.missing_edge);
  if (!f.hint.empty()) s += cat("\n  hint: ", f.hint);
  return s + "\n";
}

std::string describe_wait(const Warp& w, const Fragment& f) {
  const ProgramImpl& p = *w.worker->launch->program;
  std::string s;
  switch (f.state) {
    case State::runnable:
      s += w.spin.polled ? cat("polls ", place_of(w, w.spin.polled->where, w.spin.polled_address), " at ",
                               line_text(p, w.spin.polled->inst), " '", p.text(w.spin.polled->inst), "';")
                         : std::string("runs in a loop");
      if (w.spin.read_clock) s += " it reads the clock, but no time ends it;";
      break;
    case State::converge:
      s += "wait for the other lanes of their warp";
      break;
    case State::meet:
      s += cat("wait for lanes ", text::hex(f.meet_mask & w.live & ~f.lanes), " named in their mask");
      break;
    case State::wait:
      s += f.describe ? f.describe(w, f) : "wait";
      break;
  }
  const std::uint32_t inst = (f.at ? f.at : f.pc)->inst;
  return s + cat(" at ", line_text(p, inst), " '", short_text(p.text(inst)), "'");
}

namespace {
/// Who waits, one line for warps in a row that wait alike, at most kMaxLines.
class WaitList {
 public:
  void add(const Warp& w, const Fragment& f) {
    const std::string what = describe_wait(w, f);
    if (w.cta == block_ && what == what_ && f.lanes == lanes_ && w.index == last_ + 1) {
      last_ = w.index;
      return;
    }
    flush();
    block_ = w.cta;
    first_ = last_ = w.index;
    lanes_ = f.lanes;
    what_ = what;
  }
  std::string text() {
    flush();
    if (lines_ > kMaxLines) text_ += cat("\n    and ", lines_ - kMaxLines, " more");
    return text_;
  }

 private:
  static constexpr int kMaxLines = 12;
  void flush() {
    if (!block_ || ++lines_ > kMaxLines) return;
    text_ += cat("\n    block ", place(block_->id));
    text_ += first_ == last_ ? cat(" warp ", first_) : cat(" warps ", first_, " to ", last_);
    text_ += lanes_ == ~Mask(0) ? cat(": ", what_) : cat(" lanes ", text::hex(lanes_), ": ", what_);
  }
  const Cta* block_ = nullptr;
  std::uint32_t first_ = 0, last_ = 0;
  Mask lanes_ = 0;
  std::string what_, text_;
  int lines_ = 0;
};
}  // namespace

namespace {
// Lanes that wait for their warp while others of it poll memory or wait on an mbarrier: what those wait for
// never comes, and the barrier is only where the rest stands.
bool others_wait_outside(const Warp& w) {
  for (const Fragment& f : w.others) {
    if (f.state == State::runnable) return true;
    const std::uint32_t inst = (f.at ? f.at : f.pc)->inst;
    if (f.state == State::wait &&
        ptx::family(w.worker->launch->program->inst(inst).op) == ptx::Family::mbarrier)
      return true;
  }
  return false;
}
}  // namespace

void report_deadlock(Cluster& cluster, std::string_view what) {
  cluster.worker->enter(cluster.device);
  const Warp* first = nullptr;
  const Fragment* first_fragment = nullptr;
  bool divergence = false;
  WaitList list;
  for (auto& cta : cluster.ctas)
    for (auto& w : cta->warps)
      for (const Fragment& f : w->others) {
        // A lane set that waits for its own warp is the better diagnosis.
        const bool diverged = f.state == State::converge && !others_wait_outside(*w);
        const bool cause =
            first && !divergence && first_fragment->state == State::converge && f.state != State::converge;
        if (!first || (diverged && !divergence) || cause) {
          divergence = diverged;
          first = w.get();
          first_fragment = &f;
        }
        list.add(*w, f);
      }
  const std::string graph = list.text();
  if (!first) throw EmuFault("a block neither runs nor finishes");
  Warp& w = const_cast<Warp&>(*first);
  if (divergence)
    w.fail(Check::barrier, "barrier.divergence",
           *(first_fragment->at ? first_fragment->at : first_fragment->pc), first_fragment->lanes,
           cat("lanes ", text::hex(first_fragment->lanes), " of warp ", w.index,
               " reach this .aligned instruction, lanes ", text::hex(w.live & ~first_fragment->lanes),
               " wait elsewhere:", graph),
           "all lanes of the warp must execute an .aligned instruction together");
  w.fail(Check::deadlock, "deadlock", *(first_fragment->at ? first_fragment->at : first_fragment->pc),
         first_fragment->lanes, cat(what, ":", graph));
}

}  // namespace cgp::emu
