// SPDX-License-Identifier: Apache-2.0
//   who      a thread has an access of one long row (several, a warp's width apart, where an operation takes
//            many instructions), or some of the same columns in neighbouring rows
//   memory   every input read once and every output written once, 16 bytes an access where that is aligned
#include "cgp/kernels/row/element_kernel.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels::row {
namespace {

using namespace dsl;

struct ElementConfig {
  int elements = 1, unroll = 1, threads = 256;
  bool flat = false;        ///< one row
  bool tiled = false;       ///< blocks side by side along the columns, groups of rows along the grid's y
  bool wide_index = false;  ///< else, with 2^32 accesses and more
  std::vector<DType> inputs{}, outputs{};
  std::optional<DType> column{};
  std::shared_ptr<const ElementOp> op{};  ///< the family of the name
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.types("inputs", "in", c.inputs);
    v.types("outputs", "out", c.outputs);
    v.operand("column", c.column, c.inputs.empty() ? DType::f32 : c.inputs[0]);
    v.number("elements", "vec", c.elements, 1);
    v.number("unroll", "unroll", c.unroll, 1);
    v.number("threads", "threads", c.threads, 256);
    v.flag("flat", c.flat);
    v.flag("tiled", c.tiled);
    v.flag("wide_index", c.wide_index);
  }
};

// Of up to three tensors.
template <template <class> class V>
struct Pitches {
  V<u64> p0, p1, p2;
};
// Of the operation.
template <template <class> class V>
struct Parameters {
  V<u64> a, b, c, d;
};

template <template <class> class V>
struct ElementArgs {
  V<In<b8>> x0, x1, x2, column;
  V<Out<b8>> y0, y1, y2;
  V<u64> rows, cols;
  V<StructArg<Pitches>> x_pitch, y_pitch;  ///< in elements
  V<u64> first;                            ///< number of the launch's first element
  V<StructArg<Parameters>> parameters;
};

void elements(Kernel& k, ElementConfig b, ElementArgs<DeviceArg> args) {
  k.block(b.threads);
  const In<b8> in[] = {args.x0, args.x1, args.x2};
  const Out<b8> out[] = {args.y0, args.y1, args.y2};
  const auto e = std::uint64_t(b.elements), unroll = std::uint64_t(b.unroll);
  const auto per_row = args.cols / e;
  struct Place {
    Val<pred> inside;
    Val<u64> row, col, access;
  };
  std::vector<Place> at;
  if (b.flat) {
    const auto own =
        b.unroll == 1 ? k.tid() : k.warp_index() * std::uint32_t(32 * b.unroll) + k.warp().lane();
    const auto start = to<u64>(k.ctaid_x()) * (std::uint64_t(b.threads) * unroll) + to<u64>(own);
    for (std::uint64_t u = 0; u < unroll; ++u) {
      const auto a = u ? start + 32 * u : start;
      at.push_back({a < per_row, Val<u64>(0), a * e, a});
    }
  } else {
    const auto a = to<u64>(k.ctaid_x()) * std::uint64_t(b.threads) + to<u64>(k.tid());
    const auto group = b.tiled        ? to<u64>(k.ctaid_y())
                       : b.wide_index ? a / per_row  // a 64-bit division takes ten times longer
                                      : to<u64>(to<u32>(a) / to<u32>(per_row));
    const auto col = b.tiled ? a : a - group * per_row;
    for (std::uint64_t u = 0; u < unroll; ++u) {
      const auto row = group * unroll + u;
      at.push_back({b.tiled ? (row < args.rows) & (col < per_row) : row < args.rows, row, col * e,
                    row * per_row + col});
    }
  }
  // In bytes: one product for the first place, additions for the rows below it.
  const auto offsets = [&](const Pitches<Val>& pitches, std::size_t i, DType t) {
    const auto& pitch = i == 0 ? pitches.p0 : i == 1 ? pitches.p1 : pitches.p2;
    const auto size = std::uint64_t(cgp::bytes(t));
    std::vector<Val<u64>> from{(b.flat ? at[0].col : at[0].row * pitch + at[0].col) * size};
    for (std::size_t u = 1; u < at.size(); ++u)
      from.push_back(b.flat ? at[u].col * size : from.back() + pitch * size);
    return from;
  };
  std::vector<std::vector<Access>> words;
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    words.emplace_back();
    const auto from = offsets(args.x_pitch, i, b.inputs[i]);
    for (std::size_t u = 0; u < at.size(); ++u)
      words.back().push_back(load<nc>(Format{b.inputs[i], b.elements}, in[i].at(from[u]), 0, at[u].inside));
  }
  std::vector<std::vector<Val<u64>>> to_bytes;
  for (std::size_t i = 0; i < b.outputs.size(); ++i)
    to_bytes.push_back(offsets(args.y_pitch, i, b.outputs[i]));
  Floats of_column;  // where there is one, all places are in the same columns
  if (b.column) {
    const Format f{*b.column, b.elements};
    const auto from = args.column.at(at[0].col * std::uint64_t(cgp::bytes(*b.column)));
    of_column = floats(f, load<nc>(f, from, 0, at[0].inside));
  }
  for (int u = 0; u < b.unroll; ++u) {
    const auto& p = at[std::size_t(u)];
    std::vector<Floats> values;
    for (std::size_t i = 0; i < b.inputs.size(); ++i)
      values.push_back(floats({b.inputs[i], b.elements}, words[i][std::size_t(u)]));

    const auto results =
        b.op->apply(k, values, of_column, args.first + p.access * e,
                    {args.parameters.a, args.parameters.b, args.parameters.c, args.parameters.d});
    for (std::size_t i = 0; i < b.outputs.size(); ++i) {
      const Format f{b.outputs[i], b.elements};
      store(f, out[i].at(to_bytes[i][std::size_t(u)]), 0, p.inside, pack(f, results[i]));
    }
  }
}

// Of a grid, along y.
constexpr std::uint64_t kMostTileRows = 65535;

struct Plan {
  ElementConfig build;
  std::vector<Layout> in, out;
  std::uint64_t rows = 0, cols = 0;
  std::uint64_t tail = 0;  ///< columns at the end of a flat problem that wide accesses leave
};

Plan plan(const ElementProblem& p) {
  const Checker c{p.name};
  Plan plan;
  plan.rows = p.rows, plan.cols = p.cols;
  bool dense = !p.column.given, bf16 = false;
  int narrowest = 4;
  const auto take = [&](const auto& list, const auto& layouts, bool out, std::vector<Layout>& to,
                        std::vector<DType>& types) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto& [name, v] = list[i];
      c.present(name, v, kFloats, out);
      to.push_back(c.rows(name, v, p.rows, p.cols, layouts.empty() ? Layout{} : layouts[i]));
      if (to.back().inner > 1) c.fail(name, "cannot have its rows in groups", "inner > 1");
      dense = dense && (to.back().pitch == p.cols || p.rows <= 1);
      types.push_back(v.dtype);
      narrowest = std::min(narrowest, cgp::bytes(v.dtype)), bf16 = bf16 || v.dtype == DType::bf16;
    }
  };
  auto& b = plan.build;
  take(p.inputs, p.input_layouts, false, plan.in, b.inputs);
  take(p.outputs, p.output_layouts, true, plan.out, b.outputs);
  if (p.column.given) {
    c.present(p.column_name, p.column, kFloats, false), c.vector(p.column_name, p.column, p.cols);
    b.column = p.column.dtype, narrowest = std::min(narrowest, cgp::bytes(p.column.dtype));
  }
  if (dense) {
    b.flat = true, plan.cols = p.rows * p.cols, plan.rows = 1;
    for (auto* list : {&plan.in, &plan.out})
      for (auto& l : *list) l.pitch = plan.cols;
  }
  const int e = 16 / narrowest;
  const std::uint64_t body = b.flat ? plan.cols / std::uint64_t(e) * std::uint64_t(e) : plan.cols;
  bool wide = body > 0 && (!p.column.given || fits(p.column, body, {}, e));
  const auto check = [&](const auto& list, const std::vector<Layout>& layouts) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      Layout l = layouts[i];
      if (b.flat) l.pitch = body;
      wide = wide && fits(list[i].second, body, l, e);
    }
  };
  check(p.inputs, plan.in), check(p.outputs, plan.out);
  if (wide) plan.tail = plan.cols - body, plan.cols = body;
  b.elements = wide ? e : 1;
  // One access a thread of one long row: the sooner a block ends the better, unless instructions are what it
  // takes. Of rows with a column so many that its elements are used again.
  const bool expensive = p.expensive && e == 8 && b.inputs.size() == 1;
  b.unroll = !wide    ? 4
             : b.flat ? (expensive ? 4 : 1)
                      : int(std::max<std::size_t>(1, 4 / std::max<std::size_t>(1, b.inputs.size())));
  b.threads = wide && expensive ? 128 : 256;
  // Neither a division nor a product for each row, where few threads lie beyond the row.
  const std::uint64_t accesses = plan.cols / std::uint64_t(b.elements), threads = std::uint64_t(b.threads);
  b.tiled = wide && expensive && !b.flat && (plan.rows + 3) / 4 <= kMostTileRows &&
            (accesses + threads - 1) / threads * threads * 8 <= accesses * 9;
  // Threads beyond the last access count too.
  const bool small = plan.rows < 1ull << 31 && plan.cols < 1ull << 31 &&
                     plan.rows * (plan.cols / std::uint64_t(b.elements)) < (1ull << 32) - 4096;
  b.wide_index = !b.flat && !b.tiled && !small;
  b.op = p.op;
  return plan;
}

Variant make(const ElementProblem& p, const ElementConfig& c) {
  int sm = 75;
  for (const auto* list : {&c.inputs, &c.outputs})
    for (DType t : *list) sm = t == DType::bf16 ? 80 : sm;
  if (c.column == DType::bf16) sm = 80;
  return config_variant(text::cat(p.name, p.form.empty() ? "" : "_", p.form), c, sm, elements);
}

void launch(runtime::Stream& s, const ElementProblem& p, const Plan& plan, std::uint64_t first) {
  const ElementConfig& b = plan.build;
  // Of threads; of accesses where there is but one row.
  const auto unroll = std::uint64_t(b.unroll), groups = b.flat ? 1 : (plan.rows + unroll - 1) / unroll;
  const std::uint64_t total = groups * (plan.cols / std::uint64_t(b.elements));
  if (total == 0) return;
  const auto arg = [&](const auto& list, std::size_t i) {
    return i < list.size() ? list[i].second.from(b.flat ? first : 0).arg() : View().arg();
  };
  const auto pitches = [](const std::vector<Layout>& list) {
    const auto at = [&](std::size_t i) { return i < list.size() ? list[i].pitch : 0; };
    return Pitches<HostValue>{at(0), at(1), at(2)};
  };
  const auto parameter = [&](std::size_t i) { return i < p.parameters.size() ? p.parameters[i] : 0; };
  const Parameters<HostValue> parameters{parameter(0), parameter(1), parameter(2), parameter(3)};
  const auto threads = std::uint64_t(b.threads);
  runtime::Dim3 blocks = runtime::grid_for(total, threads * (b.flat ? unroll : 1));
  if (b.tiled)
    blocks = {std::uint32_t((plan.cols / std::uint64_t(b.elements) + threads - 1) / threads),
              std::uint32_t(groups)};
  launch::launch_kernel(s, load(s.device(), make(p, b)), blocks,
                        ElementArgs<launch::HostArg>{.x0 = arg(p.inputs, 0),
                                                     .x1 = arg(p.inputs, 1),
                                                     .x2 = arg(p.inputs, 2),
                                                     .column = p.column.arg(),
                                                     .y0 = arg(p.outputs, 0),
                                                     .y1 = arg(p.outputs, 1),
                                                     .y2 = arg(p.outputs, 2),
                                                     .rows = plan.rows,
                                                     .cols = plan.cols,
                                                     .x_pitch = pitches(plan.in),
                                                     .y_pitch = pitches(plan.out),
                                                     .first = first,
                                                     .parameters = parameters});
}

Plan tail_of(const Plan& plan) {
  Plan rest = plan;
  rest.cols = plan.tail, rest.tail = 0, rest.build.elements = 1, rest.build.unroll = 1,
  rest.build.threads = 256;
  return rest;
}

}  // namespace

void run_elements(runtime::Stream& s, const ElementProblem& p) {
  const auto all = plan(p);
  launch(s, p, all, 0);
  if (all.tail) launch(s, p, tail_of(all), all.cols);
}

std::vector<Variant> element_variants(const ElementProblem& p) {
  const auto all = plan(p);
  std::vector<Variant> v{make(p, all.build)};
  if (all.tail) v.push_back(make(p, tail_of(all).build));
  return v;
}

}  // namespace cgp::kernels::row
