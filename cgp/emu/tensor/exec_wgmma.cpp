// SPDX-License-Identifier: Apache-2.0
// wgmma: asynchronous matrix multiply by the four warps of a warpgroup. PTX ISA 9.7.15. One instruction is
// one operation of the warpgroup: it exists once all four warps have issued it, samples its shared operands
// once (a warp that is ahead cannot release a stage under a warp that is behind), and operations of one
// warpgroup complete in order.
#include <algorithm>
#include <optional>
#include <utility>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/async/async_ops.h"
#include "cgp/emu/async/async_rows.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/race/race.h"
#include "cgp/emu/tensor/fragments.h"
#include "cgp/emu/tensor/matrix_plan.h"
#include "cgp/emu/tensor/smem_descriptor.h"
#include "cgp/emu/tensor/sparse.h"
#include "cgp/emu/tensor/wgmma_rows.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;

constexpr int kWarps = 4;

struct WgmmaPlan {
  Shape shape;
  MatrixKind kind = MatrixKind::floating;
  Mod a_type{}, b_type{};
  bool f16_d = false, saturate = false, a_mn_major = false, b_mn_major = false;
  int scale_a = 1, scale_b = 1;
  std::vector<Loc> d, a;  // a empty: from shared memory
  Loc metadata = kNoLoc;  // sparse: A is stored as its half
  int selector = 0;
  bool sparse() const { return metadata != kNoLoc; }
  Loc a_descriptor = kNoLoc, b_descriptor = kNoLoc, scale_d = kNoLoc;
  FusedRule rule;
};

/// One wgmma of a warpgroup.
struct Operation {
  const Op* op = nullptr;
  const WgmmaPlan* plan = nullptr;
  std::uint64_t a_descriptor = 0, b_descriptor = 0;
  std::array<Warp*, kWarps> warp{};
  std::array<std::byte*, kWarps> registers{};
  std::array<Frame*, kWarps> frame{};
  std::array<bool, kWarps> scale_d{};
  int issued = 0;                             // warps
  mutable std::vector<std::uint8_t> present;  // sparse: the elements of A that exist
  // Rows of A and columns of B with never-written data, and where it came from.
  mutable std::array<bool, 64> bad_row{};
  mutable std::array<bool, 256> bad_column{};
  mutable std::optional<std::uint32_t> origin;
  bool sampled = false;
  MatrixOperands* sample = nullptr;  // shared operands read early (AsyncOp::read), else at completion
};

struct Warpgroup {
  Cta* cta = nullptr;
  std::uint64_t first = 0;  // number of queue.front()
  std::deque<std::shared_ptr<Operation>> queue;
  std::array<std::uint64_t, kWarps> issued{};            // operations by each warp
  std::array<std::deque<std::uint64_t>, kWarps> groups;  // issued count at each commit
  std::vector<race::Agent> agents;                       // by number, for the race detector
  std::uint64_t completed() const { return first; }
  void complete_until(std::uint64_t number);  // operations below it
};
struct WgmmaState {
  std::vector<Warpgroup> groups;
};
Warpgroup& warpgroup(Warp& w) {
  WgmmaState& s = state_of<WgmmaState>(*w.cta, std::uint32_t(ptx::Family::wgmma));
  if (s.groups.empty()) {
    s.groups.resize((w.cta->warps.size() + kWarps - 1) / kWarps);
    for (Warpgroup& g : s.groups) g.cta = w.cta;
  }
  return s.groups[w.index / kWarps];
}

bool in_warpgroup(Warp& w, const Op& op) {
  if (w.index / kWarps * kWarps + kWarps <= w.cta->warps.size()) return need_full_warp(w, op);
  w.fail(Check::barrier, "barrier.divergence", op, w.active,
         cat("wgmma needs a warpgroup of four warps; warp ", w.index,
             " belongs to an incomplete one (the block has ", w.cta->warps.size(), " warps)"),
         "make the block a multiple of 128 threads");
  return false;
}

// ---------------------------------------------------------------- operands in shared memory
// Copies 16-byte pieces; reports the first outside shared memory.
class SharedReader {
 public:
  SharedReader(const Operation& o) : o_(o), cta_(*o.warp[0]->cta) {}
  // Of `count` rows (of B: columns) from `first`; those with never-written bytes are noted in `bad`.
  const std::byte* piece(std::uint32_t offset, int first, int count, bool* bad) {
    static const std::byte zeros[16] = {};
    if (offset + 16 > cta_.shared_bytes) {
      if (!out_)
        report(Check::bounds, "oob.shared", offset,
               cat("wgmma reads shared memory at ", text::hex(offset), ": the block has ", cta_.shared_bytes,
                   " bytes"),
               "check the descriptor's start address, leading and stride byte offsets");
      out_ = true;
      return zeros;
    }
    if (!cta_.shared_init.empty() && (cta_.shared_init[offset / 64] >> (offset % 64) & 0xffff) != 0xffff) {
      for (int i = 0; i < count; ++i) bad[first + i] = true;
      if (!o_.origin) o_.origin = shared_origin(*o_.warp[0], *o_.op, cta_, offset);
    }
    return cta_.shared.get() + offset;
  }

 private:
  void report(Check check, std::string_view cls, std::uint32_t offset, std::string message,
              std::string hint) {
    o_.warp[0]->report(check, cls, *o_.op, 1, std::move(message), std::move(hint), offset, "shared memory",
                       offset);
  }
  const Operation& o_;
  Cta& cta_;
  bool out_ = false;
};

// Element bits of a `rows` x k operand into out(row, k). K is 32 bytes, of B of a sparse instruction 64.
template <class Out>
void read_operand(SharedReader& reader, std::uint64_t bits, int rows, int k, int element_bits, bool mn_major,
                  bool* bad, Out&& out) {
  const SmemDescriptor d = SmemDescriptor::decode(bits);
  if (mn_major) {  // 16-bit elements only
    for (int kk = 0; kk < k; ++kk)
      for (int row = 0; row < rows; row += 8) {
        std::uint16_t piece[8];
        std::memcpy(piece, reader.piece(d.mn_major(std::uint32_t(kk), std::uint32_t(row) * 2), row, 8, bad),
                    16);
        for (int i = 0; i < 8; ++i) out(row + i, kk) = piece[i];
      }
    return;
  }
  for (int row = 0; row < rows; ++row)
    for (int half = 0; half < k * element_bits / 128; ++half) {
      const std::byte* p = reader.piece(d.k_major(std::uint32_t(row), std::uint32_t(half) * 16), row, 1, bad);
      if (element_bits == 16) {
        std::uint16_t piece[8];
        std::memcpy(piece, p, 16);
        for (int i = 0; i < 8; ++i) out(row, half * 8 + i) = piece[i];
      } else if (element_bits == 8) {
        for (int i = 0; i < 16; ++i) out(row, half * 16 + i) = std::uint32_t(p[i]);
      } else {  // tf32, and the words of b1
        std::uint32_t piece[4];
        std::memcpy(piece, p, 16);
        for (int i = 0; i < 4; ++i) out(row, half * 4 + i) = piece[i];
      }
    }
}

// Spreads the stored half of A, [row][k / 2], over its places and marks them.
void spread(const Operation& o, MatrixOperands& m, const std::vector<std::uint32_t>& stored) {
  const WgmmaPlan& p = *o.plan;
  const int bits = ptx::type_bits(p.a_type), chunk = sparse_chunk(bits), each = chunk / 2;
  o.present.assign(std::size_t(p.shape.m * p.shape.k), 0);
  std::fill_n(m.a_data(), p.shape.m * p.shape.k, 0u);
  for (int row = 0; row < p.shape.m; ++row) {
    const auto* metadata =
        reinterpret_cast<const std::uint32_t*>(o.registers[std::size_t(row / 16)] + (p.metadata & ~3));
    for (int s = 0; s < p.shape.k / 2; ++s) {
      const SparsePlace at = sparse_metadata(bits, row % 16, s / each, p.shape.k / chunk, p.selector);
      const int k = s / each * chunk + sparse_place(bits, metadata[at.lane] >> at.shift & 15, s % each);
      m.a_bits(row, k) = stored[std::size_t(row * p.shape.k / 2 + s)];
      o.present[std::size_t(row * p.shape.k + k)] = 1;
    }
  }
}
std::vector<std::uint32_t>& stored_half(const WgmmaPlan& p) {
  static thread_local std::vector<std::uint32_t> stored;
  stored.resize(std::size_t(p.shape.m * p.shape.k / 2));
  return stored;
}

int k_cells(const WgmmaPlan& p) { return p.kind == MatrixKind::bits ? p.shape.k / 32 : p.shape.k; }
int cell_bits(const WgmmaPlan& p) { return p.kind == MatrixKind::bits ? 32 : ptx::type_bits(p.a_type); }

void read_shared(const Operation& o, MatrixOperands& m) {
  const WgmmaPlan& p = *o.plan;
  SharedReader reader(o);
  m.resize(p.shape.m, p.shape.n, k_cells(p));
  if (p.a.empty() && p.sparse()) {
    auto& stored = stored_half(p);
    const int half_k = p.shape.k / 2;
    read_operand(reader, o.a_descriptor, p.shape.m, half_k, cell_bits(p), p.a_mn_major, o.bad_row.data(),
                 [&](int row, int k) -> std::uint32_t& { return stored[std::size_t(row * half_k + k)]; });
    spread(o, m, stored);
  } else if (p.a.empty())
    read_operand(reader, o.a_descriptor, p.shape.m, k_cells(p), cell_bits(p), p.a_mn_major, o.bad_row.data(),
                 [&](int row, int k) -> std::uint32_t& { return m.a_bits(row, k); });
  read_operand(reader, o.b_descriptor, p.shape.n, k_cells(p), cell_bits(p), p.b_mn_major, o.bad_column.data(),
               [&](int n, int k) -> std::uint32_t& { return m.b_bits(k, n); });
}

void read_a_registers(const Operation& o, MatrixOperands& m) {
  const WgmmaPlan& p = *o.plan;
  const int bits = cell_bits(p), per = elements_per_register(bits);
  std::vector<std::uint32_t>* stored = p.sparse() ? &stored_half(p) : nullptr;
  for (int w = 0; w < kWarps; ++w)
    for (int r = 0; r < int(p.a.size()); ++r) {
      const auto* row =
          reinterpret_cast<const std::uint32_t*>(o.registers[std::size_t(w)] + (p.a[std::size_t(r)] & ~3));
      for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < per; ++i) {
          const Place at = a_place(16, bits, lane, r, i);
          const std::uint32_t u = bits == 32 ? row[lane] : row[lane] >> (bits * i) & ((1u << bits) - 1);
          if (stored)
            (*stored)[std::size_t((16 * w + at.row) * p.shape.k / 2 + at.column)] = u;
          else
            m.a_bits(16 * w + at.row, at.column) = u;
        }
    }
  if (stored) spread(o, m, *stored);
}

// ---------------------------------------------------------------- the multiplication
void run(const Operation& o, MatrixOperands& m) {
  const WgmmaPlan& p = *o.plan;
  if (!p.a.empty()) read_a_registers(o, m);
  const bool integer = p.kind != MatrixKind::floating;
  WgmmaRows rows{p.shape.n, m.padded_columns(), p.f16_d, {}};
  for (int w = 0; w < kWarps; ++w) {
    const auto i = std::size_t(w);
    rows.registers.clear();
    for (Loc l : p.d) rows.registers.push_back(o.registers[i] + (l & ~3));
    void* to = integer ? static_cast<void*>(&m.d_int(16 * w, 0)) : static_cast<void*>(&m.d(16 * w, 0));
    if (o.scale_d[i])
      load_rows(rows, to);
    else
      std::memset(to, 0, std::size_t(16 * m.padded_columns()) * 4);
  }
  if (p.kind == MatrixKind::floating && p.sparse())
    MatrixCore::multiply_sparse(m, p.a_type, p.b_type, p.rule, precision_of(*o.warp[0]), o.present.data(),
                                true, p.scale_a, p.scale_b);
  else if (p.kind == MatrixKind::floating)
    MatrixCore::multiply(m, p.a_type, p.b_type, p.rule, precision_of(*o.warp[0]), p.scale_a, p.scale_b);
  else if (p.kind == MatrixKind::integer)
    MatrixCore::multiply_int(m, p.a_type, p.b_type, p.saturate);
  else
    MatrixCore::multiply_bits(m, BitOperation::and_popc);
  for (int w = 0; w < kWarps; ++w) {
    rows.registers.clear();
    for (Loc l : p.d) rows.registers.push_back(o.registers[std::size_t(w)] + (l & ~3));
    const void* from =
        integer ? static_cast<void*>(&m.d_int(16 * w, 0)) : static_cast<void*>(&m.d(16 * w, 0));
    store_rows(rows, from);
  }
}

// Rows of A in registers with never-written data.
void note_a_registers(const Operation& o) {
  const WgmmaPlan& p = *o.plan;
  for (int w = 0; w < kWarps; ++w)
    for (int r = 0; r < int(p.a.size()); ++r) {
      const Loc l = p.a[std::size_t(r)];
      const Mask lanes = taint_of(*o.warp[std::size_t(w)], l);
      if (lanes && !o.origin) o.origin = taint_origin(*o.warp[std::size_t(w)], l);
      for_lanes(lanes, [&](int lane) {
        o.bad_row[std::size_t(16 * w + a_place(16, cell_bits(p), lane, r, 0).row)] = true;
      });
    }
}

// Results that such a row or column went into are never-written data too: padding whose results nobody uses is
// no error, and a use is reported where the data came from.
void taint_results(const Operation& o) {
  const WgmmaPlan& p = *o.plan;
  if (!(o.warp[0]->checks & std::uint32_t(Check::uninit))) return;
  std::array<Frame*, kWarps> running{};
  for (std::size_t w = 0; w < kWarps; ++w) running[w] = std::exchange(o.warp[w]->frame, o.frame[w]);
  note_a_registers(o);
  const bool bad = o.origin.has_value();
  for (int w = 0; w < kWarps; ++w) {
    Warp& warp = *o.warp[std::size_t(w)];
    for (int r = 0; (bad || warp.taint) && r < int(p.d.size()); ++r) {
      Mask lanes = 0;
      const int each = p.f16_d ? 2 : 1;
      for (int lane = 0; bad && lane < kLanes; ++lane)
        for (int v = r * each; v < (r + 1) * each; ++v) {
          const Place at = d_place(16, lane, v);
          if (o.bad_row[std::size_t(16 * w + at.row)] || o.bad_column[std::size_t(at.column)])
            lanes |= lane_bit(lane);
        }
      taint_result(warp, *o.op, p.d[std::size_t(r)], lanes, o.scale_d[std::size_t(w)], o.origin.value_or(0));
    }
  }
  for (std::size_t w = 0; w < kWarps; ++w) o.warp[w]->frame = running[w];
}

void Warpgroup::complete_until(std::uint64_t number) {
  while (first < number && !queue.empty() && queue.front()->issued == kWarps) {
    const std::shared_ptr<Operation> o = queue.front();
    queue.pop_front();
    ++first;
    if (cta->done) continue;  // the registers are gone
    if (!o->sampled) read_shared(*o, matrix_scratch());
    run(*o, matrix_scratch());
    taint_results(*o);
    note_change(*o->warp[0]);
  }
}

struct WgmmaOp : AsyncOp {
  Warpgroup* group_of = nullptr;
  std::uint64_t number = 0;
  void complete() override { group_of->complete_until(number + 1); }
};

// ---------------------------------------------------------------- races
// Marks the 16-byte pieces of an operand.
void mark_pieces(std::vector<bool>& pieces, std::uint64_t bits, int rows, int k, int cell, bool mn_major) {
  const SmemDescriptor d = SmemDescriptor::decode(bits);
  const auto mark = [&](std::uint32_t offset) {
    if (offset / 16 < pieces.size()) pieces[offset / 16] = true;
  };
  if (mn_major)
    for (int kk = 0; kk < k; ++kk)
      for (int row = 0; row < rows; row += 8) mark(d.mn_major(std::uint32_t(kk), std::uint32_t(row) * 2));
  else
    for (int row = 0; row < rows; ++row)
      for (int at = 0; at < k * cell / 8; at += 16) mark(d.k_major(std::uint32_t(row), std::uint32_t(at)));
}

// The operation reads its operands through the asynchronous proxy, on behalf of four warps: each of them must
// have them before it.
void note_race(Warpgroup& g, const Operation& o) {
  Warp& last = *o.warp[0];
  const WgmmaPlan& p = *o.plan;
  const race::Agent agent = race::unit_agent(last, last.index / kWarps);
  g.agents.push_back(agent);
  if (!last.race) return;
  std::vector<bool> pieces(g.cta->shared_bytes / 16);
  if (p.a.empty()) {
    const int k = p.sparse() ? p.shape.k / 2 : k_cells(p);
    mark_pieces(pieces, o.a_descriptor, p.shape.m, k, cell_bits(p), p.a_mn_major);
  }
  mark_pieces(pieces, o.b_descriptor, p.shape.n, k_cells(p), cell_bits(p), p.b_mn_major);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i]) continue;
    std::size_t end = i + 1;
    while (end < pieces.size() && pieces[end]) ++end;
    for (std::size_t n = 0; n < kWarps; ++n) {
      bool again = false;
      for (std::size_t m = 0; m < n; ++m) again = again || race::same_knowledge(*o.warp[m], *o.warp[n]);
      if (!again)
        race::agent_access(*o.warp[n], *o.op, 0, agent, Where::shared, g.cta->shared_base() | (i * 16),
                           (end - i) * 16, race::Use::read, race::Proxy::async);
    }
    i = end;
  }
  race::issued(last);
}

// ---------------------------------------------------------------- issue
std::uint64_t uniform(Warp& w, const Op& op, Loc l, const char* what) {
  const std::uint64_t* row = w.row<std::uint64_t>(l);
  const std::uint64_t v = row[std::countr_zero(w.active)];
  Mask other = 0;
  for_lanes(w.active, [&](int lane) { other |= row[lane] != v ? lane_bit(lane) : 0; });
  if (other)
    w.report(Check::barrier, "barrier.divergence", op, other,
             cat("the ", what, " descriptor of wgmma differs between the lanes of warp ", w.index),
             "descriptors must be the same in all threads of the warpgroup");
  return v;
}

void check_descriptor(Warp& w, const Op& op, std::uint64_t bits, const char* which) {
  if (SmemDescriptor::decode(bits).base_offset != 0)
    w.fail(Check::alignment, "misaligned", op, w.active,
           cat("the ", which, " descriptor has base offset ", SmemDescriptor::decode(bits).base_offset,
               "; patterns that do not start at their natural boundary are not modelled"),
           "align swizzled tiles to 1024, 512 or 256 bytes and leave bits 49-51 zero");
}

void exec_wgmma(Warp& w, const Op& op) {
  if (!w.converge(op) || !in_warpgroup(w, op)) return;
  const auto& p = op.data_as<WgmmaPlan>();
  Warpgroup& g = warpgroup(w);
  const auto me = std::size_t(w.index % kWarps);
  const std::uint64_t number = g.issued[me]++;
  if (number - g.first >= g.queue.size()) {
    auto fresh = std::make_shared<Operation>();
    fresh->op = &op;
    fresh->plan = &p;
    g.queue.push_back(std::move(fresh));
  }
  Operation& o = *g.queue[std::size_t(number - g.first)];
  if (o.op != &op) {
    w.fail(Check::barrier, "barrier.divergence", op, w.active,
           cat("the warps of warpgroup ", w.index / kWarps, " execute different wgmma instructions"),
           "all four warps of a warpgroup must execute the same sequence of wgmma instructions");
    return;
  }
  const std::uint64_t b = uniform(w, op, p.b_descriptor, "B");
  const std::uint64_t a = p.a.empty() ? uniform(w, op, p.a_descriptor, "A") : 0;
  if (o.issued == 0) {
    o.a_descriptor = a;
    o.b_descriptor = b;
    check_descriptor(w, op, b, "B");
    if (p.a.empty()) check_descriptor(w, op, a, "A");
  } else if (o.a_descriptor != a || o.b_descriptor != b) {
    w.report(Check::barrier, "barrier.divergence", op, w.active,
             cat("a wgmma descriptor differs between the warps of warpgroup ", w.index / kWarps),
             "descriptors must be the same in all threads of the warpgroup");
  }
  o.warp[me] = &w;
  o.registers[me] = w.base[0];
  o.frame[me] = w.frame;
  o.scale_d[me] = (w.pred(p.scale_d) & w.active) != 0;
  check_fenced(w, op, p.d, !o.scale_d[me]);
  check_fenced(w, op, p.a, false);
  issue_rows(w, AsyncUnit::wgmma, op, p.a, p.d, number + 1);
  if (++o.issued < kWarps) return;
  note_race(g, o);
  note_change(w);
  auto x = std::make_unique<WgmmaOp>();
  x->group_of = &g;
  x->number = number;
  w.cta->cluster->async.submit(std::move(x));
}

// ---------------------------------------------------------------- fence, commit, wait
void exec_fence(Warp& w, const Op& op) {
  if (w.converge(op) && in_warpgroup(w, op)) fence_rows(w);
}
void decode_fence(Decoder&, const Inst&, Op& op) {
  op.flags |= kSplits;
  op.fn = exec_fence;
}

void exec_commit(Warp& w, const Op& op) {
  if (!w.converge(op) || !in_warpgroup(w, op)) return;
  Warpgroup& g = warpgroup(w);
  const auto me = std::size_t(w.index % kWarps);
  g.groups[me].push_back(g.issued[me]);
}
void decode_commit(Decoder&, const Inst&, Op& op) {
  op.flags |= kSplits;
  op.fn = exec_commit;
}

// Fragment::key: operations that must be complete.
bool group_ready(Warp& w, const Fragment& f) {
  const Warpgroup& g = warpgroup(w);
  for (std::uint64_t n = g.first; n < f.key; ++n)
    if (n - g.first >= g.queue.size() || g.queue[std::size_t(n - g.first)]->issued != kWarps) return false;
  return true;
}
std::string group_describe(const Warp& w, const Fragment& f) {
  const Warpgroup& g = warpgroup(const_cast<Warp&>(w));
  std::string missing;
  for (std::size_t i = 0; i < kWarps; ++i)
    if (g.issued[i] < f.key) missing += cat(missing.empty() ? "" : ", ", w.index / kWarps * kWarps + i);
  return cat("wgmma of warpgroup ", w.index / kWarps, ": warps ", missing, " have not issued theirs");
}

void exec_wait(Warp& w, const Op& op) {
  if (!w.converge(op) || !in_warpgroup(w, op)) return;
  Warpgroup& g = warpgroup(w);
  auto& committed = g.groups[w.index % kWarps];
  const auto keep = std::size_t(op.imm);
  if (committed.size() <= keep) return;
  const std::uint64_t needed = committed[committed.size() - keep - 1];
  if (g.completed() < needed) {
    Fragment probe;
    probe.key = needed;
    if (!group_ready(w, probe)) return w.wait(op, group_ready, group_describe, needed);
    w.cta->cluster->async.force([&](const AsyncOp& x) {
      const auto* mine = dynamic_cast<const WgmmaOp*>(&x);
      return mine && mine->group_of == &g && mine->number < needed;
    });
  }
  settle_rows(w, AsyncUnit::wgmma, needed);
  if (needed) race::wait_agent(w, g.agents[std::size_t(needed) - 1]);
  committed.erase(committed.begin(), committed.end() - std::ptrdiff_t(keep));
}
void decode_wait(Decoder& d, const Inst& i, Op& op) {
  op.imm = std::int64_t(d.immediate(d.operand(i, 0)));
  op.flags |= kSplits;
  op.fn = exec_wait;
}

// ---------------------------------------------------------------- decode
int sign_of(Decoder& d, const ptx::Operand& o) {
  const auto v = std::int64_t(d.immediate(o));
  if (v != 1 && v != -1) d.unsupported("imm-scale must be 1 or -1");
  return int(v);
}

void decode_trailing(Decoder& d, const Inst& i, std::size_t at, WgmmaPlan& p) {
  if (p.kind != MatrixKind::floating) return;
  p.scale_a = sign_of(d, d.operand(i, at++));
  p.scale_b = sign_of(d, d.operand(i, at++));
  const bool sixteen = ptx::type_bits(p.a_type) == 16;
  if (p.a.empty() && i.operands.size() > at) p.a_mn_major = d.immediate(d.operand(i, at++)) != 0;
  if (i.operands.size() > at) p.b_mn_major = d.immediate(d.operand(i, at++)) != 0;
  if (!sixteen && (p.a_mn_major || p.b_mn_major)) d.unsupported("transposition is for 16-bit types only");
}

void decode_wgmma(Decoder& d, const Inst& i, Op& op) {
  WgmmaPlan p;
  p.shape = matrix_shape(d, i);
  const Mod type_d = i.type(0);
  p.a_type = i.type(1);
  p.b_type = i.type(2);
  if (!ptx::type_bits(p.a_type) || !ptx::type_bits(p.b_type)) d.unsupported("no type of A or B");
  p.f16_d = type_d == Mod::f16;
  p.saturate = i.has(Mod::satfinite);
  p.kind = type_d != Mod::s32    ? MatrixKind::floating
           : p.a_type == Mod::b1 ? MatrixKind::bits
                                 : MatrixKind::integer;
  if (p.kind == MatrixKind::floating)
    p.rule = fused_rule(MatrixUnit::wgmma, p.a_type, Generation::hopper, p.f16_d);
  const bool sparse = i.op == ptx::Op::wgmma_mma_async_sp;
  if (sparse) p.rule.step *= 2;
  const int k_bits = p.shape.k * ptx::type_bits(p.a_type) / (sparse ? 2 : 1);
  if (p.shape.m != 64 || k_bits != 256 || p.shape.n % 8 || p.shape.n < 8 || p.shape.n > 256)
    d.unsupported("this shape with this operand type");
  p.d = d.dests(d.operand(i, 0), type_d == Mod::f32 ? Mod::f32 : Mod::b32);
  if (p.d.size() != std::size_t(p.shape.n / (p.f16_d ? 4 : 2)))
    d.unsupported(
        cat("D has ", p.d.size(), " registers; this shape and type take ", p.shape.n / (p.f16_d ? 4 : 2)));
  for (Loc l : d.sources(d.operand(i, 0), type_d == Mod::f32 ? Mod::f32 : Mod::b32))
    (void)l;  // read as C too
  if (d.operand(i, 1).kind == OperandKind::vector) {
    p.a = d.sources(d.operand(i, 1), Mod::b32);
    if (p.a.size() != 4) d.unsupported("A from registers takes 4 registers");
  } else {
    p.a_descriptor = d.source(d.operand(i, 1), Mod::b64);
  }
  p.b_descriptor = d.source(d.operand(i, 2), Mod::b64);
  if (sparse) {
    p.metadata = d.source(d.operand(i, 3), Mod::b32);
    p.selector = int(d.immediate(d.operand(i, 4)));
  }
  const std::size_t at = sparse ? 5 : 3;
  p.scale_d = i.operands.size() > at ? d.pred(d.operand(i, at)) : d.constant(~0u, 32);
  decode_trailing(d, i, at + 1, p);
  d.async_rows(p.d);
  d.async_rows(p.a);
  if (sparse) d.async_rows({p.metadata});
  op.data = d.keep(std::move(p));
  op.flags |= kSplits | kAsyncOwner;
  op.fn = exec_wgmma;
}

}  // namespace

void add_wgmma(Table& t) {
  t.set(ptx::Op::wgmma_mma_async, decode_wgmma);
  t.set(ptx::Op::wgmma_mma_async_sp, decode_wgmma);
  t.set(ptx::Op::wgmma_fence, decode_fence);
  t.set(ptx::Op::wgmma_commit_group, decode_commit);
  t.set(ptx::Op::wgmma_wait_group, decode_wait);
}

}  // namespace cgp::emu
