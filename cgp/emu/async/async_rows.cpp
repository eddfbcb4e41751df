// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/async/async_rows.h"

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/tensor/tcgen05.h"

namespace cgp::emu {

using text::cat;

namespace {
struct Row {
  std::uint64_t write_until = 0, read_until = 0;  // number of the operation that does it
  AsyncUnit write_unit = AsyncUnit::wgmma, read_unit = AsyncUnit::wgmma;
  const Op *writer = nullptr, *reader = nullptr;
  const Op* touched = nullptr;  // last ordinary write since it was issued, or read where there was none
  bool read_only = false;       // `touched` reads
};

struct WarpBooks {
  std::array<std::uint64_t, kAsyncUnits> settled{};
  bool fenced = false;   // since the last wait
  bool started = false;  // there was a fence, or its absence was reported
};
WarpBooks& books(Warp& w) { return state_of<WarpBooks>(w, std::uint32_t(ptx::Family::wgmma) + 192); }

struct UnitText {
  std::string_view wait, of;
};
UnitText text_of(AsyncUnit u) {
  switch (u) {
    case AsyncUnit::wgmma:
      return {"wgmma.wait_group", "wgmma.commit_group, then wgmma.wait_group, then the access"};
    case AsyncUnit::tensor_load:
      return {"tcgen05.wait::ld", "tcgen05.wait::ld before the access"};
    case AsyncUnit::tensor_store:
      return {"tcgen05.wait::st", "tcgen05.wait::st before the access"};
  }
  return {};
}
}  // namespace

struct AsyncRows {
  std::vector<Row> at;  // by Loc / kRow32
  Row& row(Loc l) {
    const auto i = std::size_t(l) / kRow32;
    if (i >= at.size()) at.resize(i + 1);
    return at[i];
  }
};

namespace {
AsyncRows& rows_of(Warp& w) {
  if (!w.frame->async_rows) w.frame->async_rows = std::make_shared<AsyncRows>();
  return *w.frame->async_rows;
}

// A GPU holds an instruction that touches a register of tcgen05.ld until the load has written it: a warning, and
// the load completes here, whatever the policy.
void report_row(Warp& w, const Op& op, Loc l, const Op& owner, AsyncUnit unit, std::string_view does,
                std::string_view still, std::uint64_t number) {
  const bool load = unit == AsyncUnit::tensor_load;
  if (load) {
    settle_rows(w, unit, number);
    land_tensor_loads(w);
  }
  if (!(w.checks & std::uint32_t(Check::async))) return;
  const ProgramImpl& p = *w.worker->launch->program;
  Finding f = make_finding(w, load ? "async.tensor_load" : "async.register", op, w.active,
                           cat(does, ' ', register_name(*w.frame->function, l), ", which the asynchronous '",
                               p.opcode(owner.inst), "' of ", line_text(p, owner.inst), " may still ", still,
                               ": no ", text_of(unit).wait, " has covered it"));
  f.hint = std::string(text_of(unit).of);
  f.other = other_party(w, owner, w.active);
  add_finding(*w.worker->launch, op, std::move(f));
}
}  // namespace

void issue_rows(Warp& w, AsyncUnit unit, const Op& op, std::span<const Loc> reads,
                std::span<const Loc> writes, std::uint64_t number) {
  AsyncRows& rows = rows_of(w);
  for (Loc l : writes) {
    if (l & kConstant) continue;
    Row& r = rows.row(l);
    r.touched = nullptr;
    r.write_until = number;
    r.write_unit = unit;
    r.writer = &op;
  }
  for (Loc l : reads) {
    if (l & kConstant) continue;
    Row& r = rows.row(l);
    r.touched = nullptr;
    r.read_until = number;
    r.read_unit = unit;
    r.reader = &op;
  }
}

void settle_rows(Warp& w, AsyncUnit unit, std::uint64_t number) {
  std::uint64_t& settled = books(w).settled[std::size_t(unit)];
  settled = std::max(settled, number);
  if (unit == AsyncUnit::wgmma) books(w).fenced = false;
}

void fence_rows(Warp& w) { books(w).fenced = books(w).started = true; }

void check_fenced(Warp& w, const Op& op, std::span<const Loc> uses, bool overwrites) {
  if (!(w.checks & std::uint32_t(Check::async))) return;
  if (!books(w).started) {
    books(w).started = true;
    Finding f = make_finding(w, "async.register", op, w.active,
                             "the first wgmma.mma_async of this warp has no wgmma.fence before it");
    f.hint = "wgmma.fence.sync.aligned before the first wgmma.mma_async, whatever scale-d is";
    return add_finding(*w.worker->launch, op, std::move(f));
  }
  if (!w.frame->async_rows) return;
  AsyncRows& rows = *w.frame->async_rows;
  // Compilers move writes of accumulators behind the fence, so only a batch without any fence is certain.
  if (books(w).fenced) return;
  for (Loc l : uses) {
    if (l & kConstant) continue;
    const Row& r = rows.row(l);
    if (!r.touched || (r.read_only && !overwrites)) continue;
    const ProgramImpl& p = *w.worker->launch->program;
    Finding f = make_finding(w, "async.register", op, w.active,
                             cat(overwrites ? "overwrites " : "reads ", register_name(*w.frame->function, l),
                                 ", which ", line_text(p, r.touched->inst), r.read_only ? " read" : " wrote",
                                 " with no wgmma.fence between the two"));
    f.hint = "wgmma.fence.sync.aligned after the last ordinary access to accumulators and A registers";
    f.other = other_party(w, *r.touched, w.active);
    return add_finding(*w.worker->launch, op, std::move(f));
  }
}

void note_rows(Warp& w, const Op& op) {
  if (op.flags & (kAsyncOwner | kMicro)) return;
  const Function& function = *w.frame->function;
  const DataFlow& flow = w.worker->launch->program->flow[op.inst];
  const WarpBooks& b = books(w);
  AsyncRows& rows = rows_of(w);
  const auto used = [&](Loc l) {
    return l >= 0 && !(l & kConstant) && std::size_t(l) / kRow32 < function.async_rows.size() &&
           function.async_rows[std::size_t(l) / kRow32];
  };
  for (const auto* list : {&flow.sources, &flow.addresses})
    for (Loc l : *list) {
      if (!used(l)) continue;
      Row& r = rows.row(l);
      if (r.write_until > b.settled[std::size_t(r.write_unit)])
        return report_row(w, op, l, *r.writer, r.write_unit, "reads", "write", r.write_until);
      if (!r.touched && r.writer && r.write_unit == AsyncUnit::wgmma) r.touched = &op, r.read_only = true;
    }
  for (Loc l : flow.dests) {
    if (!used(l)) continue;
    Row& r = rows.row(l);
    if (r.write_until > b.settled[std::size_t(r.write_unit)])
      return report_row(w, op, l, *r.writer, r.write_unit, "overwrites", "write", r.write_until);
    if (r.read_until > b.settled[std::size_t(r.read_unit)])
      return report_row(w, op, l, *r.reader, r.read_unit, "overwrites", "read", r.read_until);
    r.touched = &op;
    r.read_only = false;
  }
}

}  // namespace cgp::emu
