// SPDX-License-Identifier: Apache-2.0
// tcgen05.mma: decode and issue. PTX ISA 9.7.16.10. One thread issues; the operation is a step of the tensor
// pipeline of its CTA or CTA pair.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/tensor/tcgen05_mma.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using ptx::OperandKind;
using text::cat;

bool fail_descriptor(const MmaStep& s, std::string_view which, std::uint64_t bits, const std::string& why) {
  s.by.warp->fail(Check::bounds, "tcgen05.descriptor", *s.by.op, lane_bit(s.by.lane),
                  cat("the ", which, " ", text::hex(bits), ": ", why));
  return false;
}

bool decode_descriptors(MmaStep& s) {
  const MmaPlan& p = *s.plan;
  Warp& w = *s.by.warp;
  const std::uint32_t bits = w.row<std::uint32_t>(p.instruction)[s.by.lane];
  if (const std::string why = decode_instruction_descriptor(bits, p.form, s.what); !why.empty())
    return fail_descriptor(s, "instruction descriptor", bits, why);
  if (p.ashift && s.what.m != 128 && s.what.m != 256)
    return fail_descriptor(s, "instruction descriptor", bits, ".ashift needs M of 128 or 256");
  const auto shared = [&](Loc l, MatrixDescriptor& d, const char* which, bool mn_major, Mod type) {
    const std::uint64_t u = w.row<std::uint64_t>(l)[s.by.lane];
    std::string why = MatrixDescriptor::decode(u, d);
    if (why.empty() && d.atom32 && (!mn_major || ptx::type_bits(type) != 32))
      why = "the 128-byte swizzle in pieces of 32 bytes is for MN-major tf32";
    if (why.empty() && mn_major && ptx::type_bits(type) == 32 && !d.atom32 && d.span() != 16)
      why = "MN-major tf32 needs layout 1 (128-byte swizzle in pieces of 32 bytes) or 0 (none)";
    if (!why.empty()) return fail_descriptor(s, which, u, why);
    if (why = MatrixDescriptor::wrong_constant(u); !why.empty())
      w.report(Check::bounds, "tcgen05.descriptor", *s.by.op, lane_bit(s.by.lane),
               cat("the ", which, " ", text::hex(u), ": ", why));
    return true;
  };
  if (p.zero_columns != kNoLoc) {
    const std::uint64_t u = w.row<std::uint64_t>(p.zero_columns)[s.by.lane];
    if (const std::string why = ColumnMask::decode(u, s.what, s.column_mask); !why.empty())
      return fail_descriptor(s, "zero-column mask descriptor", u, why);
  }
  return (p.form.a_in_tensor ||
          shared(p.a_descriptor, s.a_shared, "descriptor of A", s.what.a_mn_major, s.what.a)) &&
         shared(p.b_descriptor, s.b_shared, "descriptor of B", s.what.b_mn_major, s.what.b);
}

// Alignment of an operand's lane and whether its lanes and columns exist and are allocated.
bool check_tensor_operand(const MmaStep& s, TensorAddress at, int columns, const TensorLayout& layout,
                          std::string_view what) {
  const bool aligned = at.lane == 0 || (layout.scattered() && at.lane == 16);
  if (!aligned)
    s.by.warp->fail(Check::bounds, "oob.tensor", *s.by.op, lane_bit(s.by.lane),
                    cat(what, " Tensor Memory from lane ", at.lane, " on; it must start at lane 0",
                        layout.scattered() ? " or 16" : ""),
                    "only tcgen05.ld and st add the lanes of a warp to the address");
  for (int c = 0; c < s.pair.count(); ++c)
    if (!check_tensor_range(s.by, *s.pair.cta[c], at.lane, layout.lanes(), at.column, columns, what))
      return false;
  return true;
}

bool check_scale_operand(const MmaStep& s, TensorAddress at, int columns, const char* which) {
  const std::string what = cat("tcgen05.mma reads the scale factors of ", which, " in");
  for (int c = 0; c < s.pair.count(); ++c)
    if (!check_tensor_range(s.by, *s.pair.cta[c], at.lane, 128, at.column, columns, what)) return false;
  return true;
}

bool check_metadata(const MmaStep& s) {
  const bool bytes = ptx::type_bits(s.what.a) <= 8;
  if (s.what.m / s.pair.count() != 128)
    s.by.warp->fail(Check::bounds, "tcgen05.descriptor", *s.by.op, lane_bit(s.by.lane),
                    cat("sparse A with ", s.what.m / s.pair.count(),
                        " rows in a CTA: the layout of its metadata is not modelled, only that of 128 rows"));
  if (bytes ? s.what.sparse_id != 0 : s.what.sparse_id > 1 || s.metadata.column % 2)
    s.by.warp->fail(
        Check::bounds, "tcgen05.descriptor", *s.by.op, lane_bit(s.by.lane),
        cat("the sparsity id is ", s.what.sparse_id, " and the metadata starts at column ",
            s.metadata.column),
        "8-bit types take id 0; others an even column and id 0 or 1, which selects one of two columns");
  for (int c = 0; c < s.pair.count(); ++c)
    if (!check_tensor_range(s.by, *s.pair.cta[c], s.metadata.lane, 128, s.metadata.column, 2,
                            "tcgen05.mma reads the sparsity metadata in"))
      return false;
  return true;
}

void issue(Warp& w, const Op& op, int lane, const std::array<std::uint64_t, 5>& address,
           const CtaPair& pair) {
  const auto& p = op.data_as<MmaPlan>();
  auto s = std::make_unique<MmaStep>();
  s->by = {&w, &op, lane};
  s->plan = &p;
  s->pair = pair;
  if (!decode_descriptors(*s)) return;
  s->d = TensorAddress(std::uint32_t(address[0]));
  s->a = TensorAddress(std::uint32_t(address[1]));
  // The two top bits of a scale factor's address may repeat its id in the instruction descriptor.
  s->sfa = TensorAddress(std::uint32_t(address[2]) & 0x3fffffff);
  s->sfb = TensorAddress(std::uint32_t(address[3]) & 0x3fffffff);
  s->metadata = TensorAddress(std::uint32_t(address[4]));
  s->accumulate = w.pred(p.accumulate) >> lane & 1;
  for (std::size_t i = 0; i < p.lane_mask.size(); ++i)
    s->lane_mask[i] = w.row<std::uint32_t>(p.lane_mask[i])[lane];
  const TensorLayout layout(s->what.m, p.form.group, p.form.weight_stationary);
  if (!check_tensor_operand(*s, s->d, s->what.n / layout.copies(), layout, "tcgen05.mma writes")) return;
  if (p.form.a_in_tensor && !check_tensor_operand(*s, s->a, 8, layout, "tcgen05.mma reads A in")) return;
  if (p.form.sparse && !check_metadata(*s)) return;
  if (p.form.scale_vector) {
    const bool folded = s->what.m / s->pair.count() == 64;
    const auto columns = [](int rows) { return (rows + 31) / 32; };
    if (!check_scale_operand(*s, s->sfa, columns(s->what.m / s->pair.count()), "A") ||
        !check_scale_operand(*s, s->sfb, columns(folded ? s->what.n / 2 : s->what.n), "B"))
      return;
  }
  const race::Agent agent = race::unit_agent(w, kTensorUnit);
  s->note_accesses(agent);
  tensor_pipeline(*w.cta, p.form.group).submit(std::move(s), agent);
}

void exec_mma(Warp& w, const Op& op) {
  const auto& p = op.data_as<MmaPlan>();
  const CtaPair pair = cta_pair(w, op, p.form.group);
  const Address* operands[] = {&p.d, &p.a, &p.sfa, &p.sfb, &p.metadata};
  std::array<std::array<std::uint64_t, kLanes>, 5> all{};
  for (std::size_t i = 0; i < 5; ++i)
    if (operands[i]->base != kNoLoc) w.addresses(*operands[i], all[i].data());
  for_lanes(w.active, [&](int lane) {
    std::array<std::uint64_t, 5> mine{};
    for (std::size_t i = 0; i < 5; ++i) mine[i] = all[i][std::size_t(lane)];
    issue(w, op, lane, mine, pair);
  });
}

// ---------------------------------------------------------------- decode
MmaKind kind_of(Decoder& d, const Inst& i) {
  const std::pair<Mod, MmaKind> all[] = {
      {Mod::kind_f16, MmaKind::f16},           {Mod::kind_tf32, MmaKind::tf32},
      {Mod::kind_f8f6f4, MmaKind::f8f6f4},     {Mod::kind_i8, MmaKind::i8},
      {Mod::kind_mxf8f6f4, MmaKind::mxf8f6f4}, {Mod::kind_mxf4, MmaKind::mxf4},
      {Mod::kind_mxf4nvf4, MmaKind::mxf4nvf4}};
  for (const auto& [m, k] : all)
    if (i.has(m)) return k;
  d.unsupported("it names no .kind");
}

// Scale factors for the 32 bytes of K of one instruction: .block32 and no qualifier mean one per 32 elements.
int scale_vector_of(Decoder& d, const Inst& i, MmaKind kind) {
  const bool fp4 = kind != MmaKind::mxf8f6f4;
  if (i.has(Mod::scale_vec_4X) || i.has(Mod::block16)) return 4;
  if (i.has(Mod::scale_vec_1X) && fp4) d.unsupported(".scale_vec::1X with this kind");
  return fp4 ? 2 : 1;
}

void decode_mma(Decoder& d, const Inst& i, Op& op) {
  need_tensor_target(d);
  MmaPlan p;
  p.form.kind = kind_of(d, i);
  p.form.group = cta_group_of(i);
  p.form.weight_stationary = i.op == ptx::Op::tcgen05_mma_ws;
  p.form.sparse = i.op == ptx::Op::tcgen05_mma_sp;
  p.ashift = i.has(Mod::ashift);
  if (p.form.sparse && is_block_scaled(p.form.kind)) d.unsupported("sparse A with block scales");
  if (is_block_scaled(p.form.kind)) p.form.scale_vector = scale_vector_of(d, i, p.form.kind);
  std::size_t at = 0;
  p.d = d.address(d.operand(i, at++));
  p.form.a_in_tensor = d.operand(i, at).kind == OperandKind::address;
  if (p.form.a_in_tensor)
    p.a = d.address(d.operand(i, at++));
  else
    p.a_descriptor = d.source(d.operand(i, at++), Mod::b64);
  p.b_descriptor = d.source(d.operand(i, at++), Mod::b64);
  if (p.form.sparse) p.metadata = d.address(d.operand(i, at++));
  p.instruction = d.source(d.operand(i, at++), Mod::b32);
  if (p.form.scale_vector) {
    p.sfa = d.address(d.operand(i, at++));
    p.sfb = d.address(d.operand(i, at++));
  }
  if (d.operand(i, at).kind == OperandKind::vector) {
    p.lane_mask = d.sources(d.operand(i, at++), Mod::b32);
    if (p.lane_mask.size() != std::size_t(4 * p.form.group))
      d.unsupported(cat("the lane mask has ", 4 * p.form.group, " registers, not ", p.lane_mask.size()));
  }
  p.accumulate = d.pred(d.operand(i, at++));
  if (i.operands.size() > at) {
    if (p.form.weight_stationary)
      p.zero_columns = d.source(d.operand(i, at), Mod::b64);
    else
      p.scale_d = int(d.immediate(d.operand(i, at)));
  }
  op.data = d.keep(std::move(p));
  op.fn = exec_mma;
}

}  // namespace

void add_tcgen05_mma(Table& t) {
  t.set(ptx::Op::tcgen05_mma, decode_mma);
  t.set(ptx::Op::tcgen05_mma_sp, decode_mma);
  t.set(ptx::Op::tcgen05_mma_ws, decode_mma);
}

}  // namespace cgp::emu
