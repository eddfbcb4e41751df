// SPDX-License-Identifier: Apache-2.0
// tcgen05.cp, shared memory to Tensor Memory, and tcgen05.shift. PTX ISA 9.7.16.9. Both are steps of the
// tensor pipeline.
#include "cgp/base/text.h"
#include "cgp/emu/tensor/tcgen05.h"
#include "cgp/emu/tensor/tcgen05_descriptor.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using text::cat;

enum class Unpack : std::uint8_t { none, b6, b4 };

struct CopyPlan {
  int group = 1;
  Address to;
  Loc descriptor = kNoLoc;
  int rows = 128, bytes = 32;                // of the source
  std::array<int, 4> copies{0, -1, -1, -1};  // lanes added for each copy; -1: none
  int split = 0;                             // rows from this one on lie 32 lanes further (.warpx2::01_23)
  int pitch = 1;                             // lanes from row to row
  Unpack unpack = Unpack::none;
  int lanes() const {
    int last = (rows - 1) * pitch + (split ? 32 : 0);
    for (int c : copies) last = std::max(last, (rows - 1) * pitch + (split ? 32 : 0) + c);
    return last + 1;
  }
};

// 16 numbers of 6 or 4 bits become 16 bytes: 6-bit ones in the low bits, e2m1 in bits 2 to 5, where the
// multiplication looks for them.
void expand(const std::byte* from, Unpack how, std::byte* to) {
  for (int i = 0; i < 16; ++i) {
    const int bits = how == Unpack::b6 ? 6 : 4, at = i * bits;
    const auto word = unsigned(from[at / 8]) | unsigned(from[at / 8 + 1]) << 8;
    const unsigned v = word >> at % 8 & ((1u << bits) - 1);
    to[i] = std::byte(how == Unpack::b4 ? v << 2 : v);
  }
}

struct CopyStep final : TensorStep {
  const CopyPlan* plan = nullptr;
  CtaPair pair;
  MatrixDescriptor from;
  TensorAddress to{0};
  void run() override {
    const CopyPlan& p = *plan;
    for (int c = 0; c < pair.count(); ++c) {
      Cta& cta = *pair.cta[c];
      if (!check_tensor_range(by, cta, to.lane, p.lanes(), to.column, p.bytes / 4, "tcgen05.cp writes"))
        return;
      SharedOperand reader(by, cta, "tcgen05.cp");
      TensorMemory& t = tensor_memory(cta);
      for (int row = 0; row < p.rows; ++row)
        for (int b = 0; b < p.bytes; b += 16) {
          std::byte piece[16];
          const std::byte* source = reader.piece(from.k_major(std::uint32_t(row), std::uint32_t(b)));
          if (p.unpack == Unpack::none)
            std::memcpy(piece, source, 16);
          else
            expand(source, p.unpack, piece);
          for (int copy : p.copies) {
            if (copy < 0) continue;
            const int lane = to.lane + row * p.pitch + (p.split && row >= p.split ? 32 : 0) + copy;
            std::memcpy(t.row(lane, to.column + b / 4), piece, 16);
            t.mark(lane, to.column + b / 4, 4);
          }
        }
    }
  }
};

void exec_copy(Warp& w, const Op& op) {
  const auto& p = op.data_as<CopyPlan>();
  const CtaPair pair = cta_pair(w, op, p.group);
  std::uint64_t address[kLanes];
  w.addresses(p.to, address);
  for_lanes(w.active, [&](int lane) {
    auto s = std::make_unique<CopyStep>();
    s->by = {&w, &op, lane};
    s->plan = &p;
    s->pair = pair;
    s->to = TensorAddress(std::uint32_t(address[lane]));
    const std::uint64_t bits = w.row<std::uint64_t>(p.descriptor)[lane];
    std::string why = MatrixDescriptor::decode(bits, s->from);
    if (why.empty() && s->from.atom32) why = "tcgen05.cp takes no swizzle in pieces of 32 bytes";
    if (!why.empty())
      w.fail(Check::bounds, "tcgen05.descriptor", op, lane_bit(lane),
             cat("the descriptor of tcgen05.cp ", text::hex(bits), ": ", why));
    if (why = MatrixDescriptor::wrong_constant(bits); !why.empty())
      w.report(Check::bounds, "tcgen05.descriptor", op, lane_bit(lane),
               cat("the descriptor of tcgen05.cp ", text::hex(bits), ": ", why));
    for (Cta* cta : pair.cta)
      if (cta && !check_tensor_range(s->by, *cta, s->to.lane, p.lanes(), s->to.column, p.bytes / 4,
                                     "tcgen05.cp writes"))
        return;
    const race::Agent agent = race::unit_agent(w, kTensorUnit);
    for (Cta* cta : pair.cta) {
      if (!cta || !w.race) continue;
      OperandPieces pieces(s->by, agent, *cta);
      for (int row = 0; row < p.rows; ++row)
        for (int b = 0; b < p.bytes; b += 16)
          pieces.mark(s->from.k_major(std::uint32_t(row), std::uint32_t(b)));
      race::tensor_access(w, op, lane, agent, *cta, {s->to.lane, p.lanes(), s->to.column, p.bytes / 4},
                          race::Use::write);
    }
    tensor_pipeline(*w.cta, p.group).submit(std::move(s), agent);
  });
}
void decode_copy(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  CopyPlan p;
  p.group = cta_group_of(i);
  p.to = d.address(d.operand(i, 0));
  p.descriptor = d.source(d.operand(i, 1), Mod::b64);
  if (i.has(Mod::s128x256b)) {
    p.bytes = 32;
  } else if (i.has(Mod::s128x128b)) {
    p.bytes = 16;
  } else if (i.has(Mod::s4x256b)) {  // one row for each 32 lanes
    p.rows = 4;
    p.pitch = 32;
  } else if (i.has(Mod::s64x128b)) {
    p.rows = 64;
    p.bytes = 16;
    const bool neighbours = i.has(Mod::warpx2_01_23);  // warps 0 and 1 hold the same, 2 and 3
    p.copies = {0, neighbours ? 32 : 64, -1, -1};
    p.split = neighbours ? 32 : 0;
  } else if (i.has(Mod::s32x128b)) {
    p.rows = 32;
    p.bytes = 16;
    p.copies = {0, 32, 64, 96};
  } else {
    d.unsupported("it names no shape");
  }
  if (i.has(Mod::b6x16_p32)) p.unpack = Unpack::b6;
  if (i.has(Mod::b4x16_p64)) p.unpack = Unpack::b4;
  op.data = d.keep(std::move(p));
  op.fn = exec_copy;
}

// ---------------------------------------------------------------- shift
// 32 lanes and 8 columns: every lane but the last takes what the next one holds.
constexpr int kShiftLanes = 32, kShiftColumns = 8;

struct ShiftStep final : TensorStep {
  CtaPair pair;
  TensorAddress at{0};
  void run() override {
    for (int c = 0; c < pair.count(); ++c) {
      if (!check_tensor_range(by, *pair.cta[c], at.lane, kShiftLanes, at.column, kShiftColumns,
                              "tcgen05.shift moves"))
        return;
      TensorMemory& t = tensor_memory(*pair.cta[c]);
      for (int lane = at.lane; lane < at.lane + kShiftLanes - 1; ++lane)
        for (int column = at.column; column < at.column + kShiftColumns; ++column) {
          *t.row(lane, column) = *t.row(lane + 1, column);
          t.mark(lane, column, 1, t.is_written(lane + 1, column));
        }
    }
  }
};

struct ShiftPlan {
  int group = 1;
  Address at;
};
void exec_shift(Warp& w, const Op& op) {
  const auto& p = op.data_as<ShiftPlan>();
  const CtaPair pair = cta_pair(w, op, p.group);
  std::uint64_t address[kLanes];
  w.addresses(p.at, address);
  for_lanes(w.active, [&](int lane) {
    auto s = std::make_unique<ShiftStep>();
    s->by = {&w, &op, lane};
    s->pair = pair;
    s->at = TensorAddress(std::uint32_t(address[lane]));
    if (s->at.lane % kShiftLanes)
      w.fail(Check::alignment, "misaligned", op, lane_bit(lane),
             cat("tcgen05.shift at lane ", s->at.lane, "; the lane must be a multiple of 32"));
    for (Cta* cta : pair.cta)
      if (cta && !check_tensor_range(s->by, *cta, s->at.lane, kShiftLanes, s->at.column, kShiftColumns,
                                     "tcgen05.shift moves"))
        return;
    const race::Agent agent = race::unit_agent(w, kTensorUnit);
    for (Cta* cta : pair.cta)
      if (cta)
        race::tensor_access(w, op, lane, agent, *cta, {s->at.lane, kShiftLanes, s->at.column, kShiftColumns},
                            race::Use::write);
    tensor_pipeline(*w.cta, p.group).submit(std::move(s), agent);
  });
}
void decode_shift(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  ShiftPlan p;
  p.group = cta_group_of(i);
  p.at = d.address(d.operand(i, 0));
  op.data = d.keep(std::move(p));
  op.fn = exec_shift;
}

}  // namespace

void add_tcgen05_copy(Table& t) {
  t.set(ptx::Op::tcgen05_cp, decode_copy);
  t.set(ptx::Op::tcgen05_shift, decode_shift);
}

}  // namespace cgp::emu
