// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/mma/dyn_acc.h"

namespace cgp::dsl {

DynAcc::DynAcc(ptx::Mod type, int rows, int cols, AccRegs regs, Here at)
    : type_(type), rows_(rows), cols_(cols), regs_(std::move(regs)) {
  if (rows < 64 || rows % 64 || cols < 8 || cols % 8)
    throw BuildError("a warpgroup's accumulator is made of blocks of 64 x 8", at,
                     text::cat(rows, " x ", cols));
  if (int(regs_.values().size()) != rows * cols / 128)
    throw BuildError(
        "an accumulator has the registers its shape says", at,
        text::cat(regs_.values().size(), " given, ", rows, " x ", cols, " has ", rows * cols / 128));
}
const std::vector<Value>& DynAcc::values() const {
  if (regs_.values().empty())
    throw BuildError("an accumulator that was given away is not read", Here::now(), {},
                     "use what wait() or map() returned");
  return regs_.values();
}
DynAcc DynAcc::replaced(std::vector<Value> values) const {
  const auto type = values.front().type();
  return DynAcc(type, rows_, cols_, AccRegs(std::move(values)));
}
std::vector<DynAcc> DynAcc::row_blocks() && {
  const auto each = std::ptrdiff_t(cols_ / 2);
  std::vector<DynAcc> out;
  for (auto at = values().begin(); at != values().end(); at += each)
    out.emplace_back(type_, 64, cols_, AccRegs(std::vector<Value>(at, at + each)));
  return out;
}
void DynAcc::add_columns(const DynAcc& x, int first_col,
                         const std::function<std::optional<Val<f32>>(int)>& scale) {
  const int row = cols_ / 2, each = x.cols_ / 2;
  if (x.rows_ != rows_ || first_col % 8 || first_col < 0 || first_col + x.cols_ > cols_)
    throw BuildError(
        "what is added to an accumulator lies inside it", Here::now(),
        text::cat(x.rows_, " x ", x.cols_, " at column ", first_col, " of ", rows_, " x ", cols_));
  for (int i = 0; i < x.size(); ++i) {
    const auto& to = values()[std::size_t(i / each * row + first_col / 2 + i % each)];
    const auto& from = x.values()[std::size_t(i)];
    Kernel& k = *to.kernel();
    if (const auto f = scale(i))
      k.mov_op(to, ptx::Op::fma, {ptx::Mod::rn, ptx::Mod::f32}, {from, *f, to});
    else
      k.mov_op(to, ptx::Op::add, {ptx::Mod::f32}, {to, from});
  }
}

FreshDynAcc::FreshDynAcc(Warpgroup& wg, ptx::Mod type, int rows, int cols)
    : acc_(type, rows, cols, AccRegs(record::fresh_registers(wg.k, type, rows * cols / 128))) {}
DynAcc zero_accumulator(Warpgroup& wg, ptx::Mod type, int rows, int cols, Here at) {
  return DynAcc(type, rows, cols, AccRegs(record::zero_registers(wg.k, type, rows * cols / 128, at)), at);
}

DynAcc Carry<DynAcc>::settle(Kernel& k, DynAcc& home, DynAcc next) {
  if (home.type() != next.type() || home.rows() != next.rows() || home.cols() != next.cols())
    throw BuildError("a loop hands back an accumulator of the shape it received", k.here(),
                     text::cat(next.rows(), " x ", next.cols(), " for ", home.rows(), " x ", home.cols()));
  bool same = true;
  for (int i = 0; i < home.size(); ++i)
    same &= home.values()[std::size_t(i)].reg() == next.values()[std::size_t(i)].reg();
  if (!same) record::carry_settle(k, home.values(), next.values());
  return view(home);
}

namespace {

// Rows (or, of B, columns) of one member in an operand's tile: from its first on.
std::optional<Val<u32>> member_offset(Warpgroup& wg, const DynTile& tile, int extent, int members, Here at,
                                      const char* which) {
  if (tile.extent == extent) return std::nullopt;
  if (tile.extent != extent * members)
    throw BuildError("the accumulator has the rows of tile A and the columns of tile B, or a member's share",
                     at,
                     text::cat("the tile of ", which, " has ", tile.extent, ", the accumulator ", extent,
                               ", with ", members, " members"));
  return record::times(wg.index, extent);
}
record::WgmmaOperand operand(const DynSmemTile& t, const std::optional<Val<u32>>& from, int more) {
  const int span = t.tile().layout.span();
  const Val<u32> start = from ? t.base() + record::times(*from, span) : t.base();
  return {{}, record::SharedAddress{start, t.offset() + more * span}, t.tile().layout, t.tile().major};
}

}  // namespace

InFlight<DynAcc, 1> DynWgmma::issue(Warpgroup& wg, DynAcc acc, bool overwrite, DynFilled stage,
                                    const DynProducts& products, Here at) {
  if (products.list.empty()) throw BuildError("a stage is multiplied at least once", at);
  const auto& first = products.list.front();
  const auto row = member_offset(wg, stage.tile(first.a).tile(), acc.rows(), stage.members(), at, "A");
  const auto col =
      member_offset(wg, stage.tile(first.b).tile(), acc.cols() * first.parts, stage.members(), at, "B");
  std::size_t group = 0;
  for (const auto& p : products.list) {
    const auto a = stage.tile(p.a), b = stage.tile(p.b);
    if (a.tile().depth() != b.tile().depth() ||
        a.tile().layout.element_bytes != b.tile().layout.element_bytes)
      throw BuildError("A and B tiles disagree on the K extent", at,
                       text::cat(a.tile().depth(), " and ", b.tile().depth()));
    const auto x = operand(a, row, 0), y = operand(b, col, p.part * acc.cols());
    group = record::wgmma_group(wg.k,
                                {a.tile().type, b.tile().type, acc.type(), acc.rows(), acc.cols(),
                                 a.tile().depth(), 32 / a.tile().layout.element_bytes},
                                x, y, acc.values(), {overwrite, {}}, at);
    overwrite = false;
  }
  return InFlight<DynAcc, 1>(std::move(acc), std::move(stage).tokens(), group, at);
}

}  // namespace cgp::dsl
