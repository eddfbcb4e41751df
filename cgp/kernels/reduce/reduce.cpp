// SPDX-License-Identifier: Apache-2.0
// reduce: out[o, i] = sum or max over k of in[o, k, i].
//   who      rows (inner = 1): `lanes` threads share a row, or a piece of one; columns: 32 lanes side by
//   side, 8 deep memory   each element is read once, 16 bytes an access when aligned, four accesses in flight
//   per thread sync     shuffles, then shared memory between warps; long rows are split over blocks, whose
//   f32 results a second
//            launch combines in a fixed order
//   needs    any device for f32 and f16, sm_80 for bf16
#include "cgp/kernels/reduce/reduce.h"

#include <algorithm>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/sync/warp.h"
#include "cgp/kernels/common/words.h"
#include "cgp/kernels/reduce/reduce_ref.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kUnroll = 4, kColumnDepth = 8, kThreads = 256;
constexpr float kInf = std::numeric_limits<float>::infinity();

enum class Shape : std::uint8_t { rows, short_rows, columns };
constexpr std::string_view kOps[] = {"sum", "max"}, kShapes[] = {"rows", "short_rows", "columns"};

struct ReduceConfig {
  ReduceOp op = ReduceOp::sum;
  Shape shape = Shape::rows;
  DType in{}, out{};
  int threads = 256, rows = 1;  ///< that share a row, and rows of a block
  bool vector = false;          ///< 16-byte accesses
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("op", kOps, c.op);
    v.choice("shape", kShapes, c.shape);
    v.type("in", "", c.in);
    v.type("out", "out_", c.out, c.in);
    v.extent("threads_x_rows", "", c.threads, c.rows);
    v.flag("vector", c.vector);
  }
};

Val<f32> combine(ReduceOp op, const Val<f32>& a, const Val<f32>& b) {
  if (op == ReduceOp::sum) return a + b;
  const Kernel* k = a.kernel() ? a.kernel() : b.kernel();
  if (k->sm() >= 80) return dsl::max<NaN>(a, b);
  return select(a != a, a, select(b != b, b, dsl::max(a, b)));
}
float identity(ReduceOp op) { return op == ReduceOp::sum ? 0.f : -kInf; }

template <class W>
Val<typename W::Word> fill(ReduceOp op) {
  return op == ReduceOp::sum ? W::zero() : W::minus_infinity();
}

// One result per element of an access, over the accesses i, i + step, ... below `end` (index times `stride`
// words groups apart): kUnroll loads are issued before the first is used.
template <class W, class Src>
RegGroup<f32, W::elements> accumulate(Kernel& k, ReduceOp op, const Src& src, const Val<u64>& from,
                                      const Val<u64>& end, const Val<u64>& step, const Val<u64>& stride) {
  using Acc = RegGroup<f32, W::elements>;
  return k.loop(
      range(from, end, step * kUnroll), Acc::splat(Val<f32>(identity(op))), [&](Val<u64> i, Acc acc) {
        std::vector<typename W::Access> got;
        for (int j = 0; j < kUnroll; ++j) {
          const auto at = i + step * j;
          got.push_back(src.template ld_if<W::per_access, nc>(at < end, at * stride, fill<W>(op)));
        }
        std::vector<Acc> chain{acc};
        for (const auto& g : got) {
          const auto f = W::floats(g);
          chain.push_back(
              Acc::generate([&](int e) { return combine(op, chain.back()[e], f[std::size_t(e)]); }));
        }
        return chain.back();
      });
}

// The launch does not know T and R as types: pointers of all types are alike there.
template <class T, class R>
struct ReduceArgs {
  template <template <class> class V>
  struct Rows {
    V<In<T>> in;
    V<Out<R>> out;
    V<u64> rows, n;
    V<u32> splits;
    V<u64> piece;  ///< accesses of a split
  };
  template <template <class> class V>
  struct ShortRows {
    V<In<T>> in;
    V<Out<R>> out;
    V<u64> rows, n;
  };
  template <template <class> class V>
  struct Columns {
    V<In<T>> in;
    V<Out<R>> out;
    V<u64> outer, n, inner;
    V<u32> tiles, splits;
    V<u64> piece;  ///< rows of a split
  };
};

// Rows: out[row * splits + split] = op over a piece of the row.
template <class T, class R, bool Vector>
void reduce_rows(Kernel& k, ReduceConfig t, typename ReduceArgs<T, R>::template Rows<DeviceArg> p) {
  using W = Words<T, Vector>;
  k.block(t.threads * t.rows);
  auto warp = k.warp();
  const auto block_row = k.ctaid_x() / p.splits, split = k.ctaid_x() % p.splits;
  const auto lanes = std::uint32_t(t.threads);
  const auto row = t.rows == 1 ? to<u64>(block_row) : to<u64>(block_row) * t.rows + to<u64>(k.tid() / lanes);
  const auto part = t.rows == 1 ? k.tid() : k.tid() % lanes;
  const auto first = to<u64>(split) * p.piece;
  // A row beyond the last has nothing to read.
  const auto end = select(row < p.rows, dsl::min(first + p.piece, p.n / W::elements), Val<u64>(0));
  const auto src = p.in.at(row * p.n).template as<typename W::Word>();
  const auto acc = accumulate<W>(k, t.op, src, first + to<u64>(part), end, Val<u64>(t.threads), Val<u64>(1));
  const auto f = [&](Val<f32> a, Val<f32> b) { return combine(t.op, a, b); };
  const auto own = reduce(warp, acc.fold(f), f, std::min(t.threads, 32));
  const auto at = row * to<u64>(p.splits) + to<u64>(split);
  if (t.threads <= 32) {
    k.if_((part == 0) & (row < p.rows), [&] { p.out.st(at, to<R>(own)); });
    return;
  }
  const int warps = t.threads / 32;
  auto slots = k.shared<f32>(warps);
  k.if_(warp.lane() == 0, [&] { slots.st(k.warp_index(), own); });
  k.sync();
  k.cta().one_warp([&](Warp& w) {
    const auto v = slots.ld_if(w.lane() < std::uint32_t(warps), w.lane(), Val<f32>(identity(t.op)))[0];
    const auto total = reduce(w, v, f);
    k.if_(w.lane() == 0, [&] { p.out.st(at, to<R>(total)); });
  });
}

// Rows of at most one access per lane: each group of lanes takes kShortRows rows and loads them all first,
// since one load a thread would leave the memory idle.
constexpr int kShortRows = 8;
template <class T, class R, bool Vector>
void reduce_short_rows(Kernel& k, ReduceConfig t,
                       typename ReduceArgs<T, R>::template ShortRows<DeviceArg> p) {
  using W = Words<T, Vector>;
  k.block(t.threads * t.rows);
  auto warp = k.warp();
  const auto lanes = std::uint32_t(t.threads);
  const auto group = to<u64>(k.ctaid_x()) * t.rows + to<u64>(k.tid() / lanes),
             part = to<u64>(k.tid() % lanes);
  const auto inside = part < p.n / W::elements;
  std::vector<typename W::Access> got;
  for (int r = 0; r < kShortRows; ++r) {
    const auto row = group * kShortRows + r;
    const auto src = p.in.at(row * p.n).template as<typename W::Word>();
    got.push_back(src.template ld_if<W::per_access, nc>(inside & (row < p.rows), part, fill<W>(t.op)));
  }
  const auto f = [&](Val<f32> a, Val<f32> b) { return combine(t.op, a, b); };
  for (int r = 0; r < kShortRows; ++r) {
    std::vector<Val<f32>> level = W::floats(got[std::size_t(r)]);
    while (level.size() > 1) {
      std::vector<Val<f32>> next;
      for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(f(level[i], level[i + 1]));
      level.swap(next);
    }
    const auto total = reduce(warp, level[0], f, t.threads);
    const auto row = group * kShortRows + r;
    k.if_((part == Val<u64>(std::uint64_t(r % t.threads))) & (row < p.rows),
          [&] { p.out.st(row, to<R>(total)); });
  }
}

// Columns: out[(split * outer + o) * inner + c] = op over rows split * piece .. of column c.
template <class T, class R, bool Vector>
void reduce_columns(Kernel& k, ReduceConfig t, typename ReduceArgs<T, R>::template Columns<DeviceArg> p) {
  using W = Words<T, Vector>;
  k.block(kThreads);
  const auto tile = k.ctaid_x() % p.tiles, rest = k.ctaid_x() / p.tiles;
  const auto split = rest % p.splits;
  const auto o = to<u64>(rest / p.splits);
  const auto lane = k.tid() % 32u, depth = k.tid() / 32u;
  const auto column = (to<u64>(tile) * 32 + to<u64>(lane)) * W::elements;
  const auto first = to<u64>(split) * p.piece;
  const auto inside = column < p.inner;
  const auto end = select(inside, dsl::min(first + p.piece, p.n), Val<u64>(0));
  const auto src = p.in.at(o * p.n * p.inner + column).template as<typename W::Word>();
  const auto acc =
      accumulate<W>(k, t.op, src, first + to<u64>(depth), end, Val<u64>(kColumnDepth), p.inner / W::elements);
  // The eight depths of a column meet in shared memory; lane-major, so neighbours use neighbouring banks.
  auto slots = k.shared<f32>(kColumnDepth * 32 * W::elements);
  for (int e = 0; e < W::elements; ++e) slots.st((depth * W::elements + e) * 32 + lane, acc[e]);
  k.sync();
  k.if_((depth == 0) & inside, [&] {
    for (int e = 0; e < W::elements; ++e) {
      std::vector<Val<f32>> total{acc[e]};
      for (int d = 1; d < kColumnDepth; ++d)
        total.push_back(
            combine(t.op, total.back(), slots.ld(lane + std::uint32_t((d * W::elements + e) * 32))));
      p.out.st((to<u64>(split) * p.outer + o) * p.inner + column + e, to<R>(total.back()));
    }
  });
}

}  // namespace

// ---------------------------------------------------------------- the plan
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

std::uint64_t log2_ceil(std::uint64_t n) {
  std::uint64_t l = 0;
  while ((1ull << l) < n) ++l;
  return l;
}

constexpr std::uint64_t kMostSplits = 8192;  // one block combines them in the second launch

}  // namespace

std::string_view name(ReduceOp op) { return op == ReduceOp::sum ? "sum" : "max"; }

ReduceShape reduce_dim(const std::vector<std::uint64_t>& shape, std::int64_t dim) {
  const auto rank = std::int64_t(shape.size());
  if (dim < -rank || dim >= rank)
    throw ArgumentError(
        {"reduce: the dimension must exist",
         {},
         text::cat("dim = ", dim, ", the tensor has ", rank, " dimensions ", describe_shape(shape)),
         {}});
  if (dim < 0) dim += rank;
  ReduceShape s;
  s.n = shape[std::size_t(dim)];
  for (std::int64_t d = 0; d < rank; ++d)
    (d < dim ? s.outer : s.inner) *= d == dim ? 1 : shape[std::size_t(d)];
  return s;
}

ReducePlan plan_reduce(DType t, const ReduceShape& given, bool aligned, const runtime::DeviceInfo& device) {
  ReducePlan p;
  const ReduceShape shape{std::max<std::uint64_t>(given.outer, 1), std::max<std::uint64_t>(given.n, 1),
                          std::max<std::uint64_t>(given.inner, 1)};
  const std::uint64_t per_access = 16 / std::uint64_t(cgp::bytes(t)),
                      sms = std::uint64_t(std::max(1, device.sm_count));
  p.columns = shape.inner > 1;
  p.vector = aligned && (p.columns ? shape.inner : shape.n) % per_access == 0;
  const std::uint64_t e = p.vector ? per_access : 1;
  if (p.columns) {
    const std::uint64_t blocks = ceil_div(shape.inner, 32 * e) * shape.outer;
    // A split should have at least two unrolled turns of work. Four blocks an SM are resident at once and
    // hide the latency; splits beyond one such wave would only leave a tail.
    const std::uint64_t useful = ceil_div(shape.n, kColumnDepth * kUnroll * 2);
    p.splits = std::uint32_t(std::clamp<std::uint64_t>(sms * 4 / blocks, 1, std::min(useful, kMostSplits)));
    p.chain = ceil_div(ceil_div(shape.n, p.splits), kColumnDepth) + kColumnDepth + p.splits;
    p.why = text::cat("columns: ", p.vector ? "16-byte" : "single", " accesses, ", blocks, " tiles in ",
                      p.splits, p.splits == 1 ? " piece" : " pieces");
    return p;
  }
  const std::uint64_t accesses = shape.n / e;
  p.short_rows = shape.outer >= sms * 8 && accesses <= 32;
  if (shape.outer >= sms * 8 && accesses <= 256) {  // many short rows: a warp or less for each
    p.lanes = 32;
    while (p.lanes > 1 && accesses <= std::uint64_t(p.lanes / 2)) p.lanes /= 2;
    if (!p.short_rows) p.lanes = 32;
    p.rows = 128 / p.lanes;
  } else {
    p.lanes = int(std::clamp<std::uint64_t>(ceil_div(ceil_div(accesses, kUnroll), 32) * 32, 64, kThreads));
    // Blocks that come and go overlap their loads better than long-lived ones: pieces of eight unrolled
    // turns.
    if (shape.outer < sms * 8)
      p.splits = std::uint32_t(
          std::clamp<std::uint64_t>(accesses / (std::uint64_t(p.lanes) * kUnroll * 8), 1, kMostSplits));
    if (p.splits > 4) p.splits &= ~3u;  // the second launch reads four at a time
  }
  p.chain = ceil_div(ceil_div(accesses, p.splits), std::uint64_t(p.lanes)) + log2_ceil(e) +
            log2_ceil(std::uint64_t(p.lanes));
  if (p.splits > 1) p.chain += ceil_div(p.splits, kThreads) + 16;
  p.why = text::cat("rows: ", p.vector ? "16-byte" : "single", " accesses, ", p.lanes, " threads a row in ",
                    p.splits, p.splits == 1 ? " piece" : " pieces");
  return p;
}

std::uint64_t reduce_workspace(const ReducePlan& p, const ReduceShape& s) {
  return p.splits > 1 ? std::uint64_t(p.splits) * s.outer * s.inner : 0;
}

// ---------------------------------------------------------------- host side
namespace {

template <class T, class R, bool Vector>
Variant make(const ReduceConfig& c) {
  const int min_sm = c.in == DType::bf16 || c.out == DType::bf16 ? 80 : 75;
  switch (c.shape) {
    case Shape::columns:
      return config_variant("reduce", c, min_sm, reduce_columns<T, R, Vector>);
    case Shape::short_rows:
      if constexpr (std::is_same_v<T, R>)
        return config_variant("reduce", c, min_sm, reduce_short_rows<T, R, Vector>);
      [[fallthrough]];
    default:
      return config_variant("reduce", c, min_sm, reduce_rows<T, R, Vector>);
  }
}
template <class T, class R>
Variant make(const ReduceConfig& c) {
  return c.vector ? make<T, R, true>(c) : make<T, R, false>(c);
}
/// Types are equal, or one is f32.
Variant make(const ReduceConfig& c) {
  if (c.in == DType::f16) return c.out == c.in ? make<f16, f16>(c) : make<f16, f32>(c);
  if (c.in == DType::bf16) return c.out == c.in ? make<bf16, bf16>(c) : make<bf16, f32>(c);
  if (c.out == DType::f16) return make<f32, f16>(c);
  return c.out == DType::bf16 ? make<f32, bf16>(c) : make<f32, f32>(c);
}

/// The launch that reads the input: to partial f32 results, or straight to the output type.
ReduceConfig first_pass(DType t, ReduceOp op, const ReducePlan& p) {
  const auto shape = p.short_rows ? Shape::short_rows : p.columns ? Shape::columns : Shape::rows;
  return {op, shape, t, p.splits > 1 ? DType::f32 : t, p.lanes, p.rows, p.vector};
}
/// Combines f32 results: rows of `splits` for rows, columns of height `splits` for columns.
ReduceConfig second_pass(DType t, ReduceOp op, bool columns, bool vector) {
  return {op, columns ? Shape::columns : Shape::rows, DType::f32, t, kThreads, 1, vector};
}

bool second_is_vector(const ReducePlan& p, const ReduceShape& shape, std::uint64_t workspace) {
  return workspace % 16 == 0 && (p.columns ? shape.outer * shape.inner : p.splits) % 4 == 0;
}

void launch_pass(runtime::Stream& s, const ReduceConfig& c, const runtime::Arg& in, const runtime::Arg& out,
                 const ReduceShape& shape, std::uint32_t splits) {
  const auto fn = load(s.device(), make(c));
  const std::uint64_t elements = c.vector ? 16 / std::uint64_t(cgp::bytes(c.in)) : 1;
  if (c.shape == Shape::columns) {
    const std::uint64_t tiles = ceil_div(shape.inner, 32 * elements);
    launch::launch_kernel(s, fn, runtime::grid_for(tiles * splits * shape.outer, 1),
                          ReduceArgs<b8, b8>::Columns<launch::HostArg>{.in = in,
                                                                       .out = out,
                                                                       .outer = shape.outer,
                                                                       .n = shape.n,
                                                                       .inner = shape.inner,
                                                                       .tiles = std::uint32_t(tiles),
                                                                       .splits = splits,
                                                                       .piece = ceil_div(shape.n, splits)});
  } else {
    const std::uint64_t blocks = ceil_div(shape.outer, std::uint64_t(c.rows));
    launch::launch_kernel(
        s, fn, runtime::grid_for(blocks * splits, 1),
        ReduceArgs<b8, b8>::Rows<launch::HostArg>{.in = in,
                                                  .out = out,
                                                  .rows = shape.outer,
                                                  .n = shape.n,
                                                  .splits = splits,
                                                  .piece = ceil_div(shape.n / elements, splits)});
  }
}

void launch_reduce(runtime::Stream& s, DType t, ReduceOp op, const ReducePlan& p, const ReduceShape& shape,
                   const runtime::Arg& in, const runtime::Arg& out, const runtime::Arg& workspace) {
  const auto first = first_pass(t, op, p);
  if (p.short_rows) {
    launch::launch_kernel(s, load(s.device(), make(first)),
                          runtime::grid_for(shape.outer, std::uint64_t(p.rows) * kShortRows),
                          ReduceArgs<b8, b8>::ShortRows<launch::HostArg>{
                              .in = in, .out = out, .rows = shape.outer, .n = shape.n});
    return;
  }
  launch_pass(s, first, in, p.splits > 1 ? workspace : out, shape, p.splits);
  if (p.splits == 1) return;
  const ReduceShape rest =
      p.columns ? ReduceShape{1, p.splits, shape.outer * shape.inner} : ReduceShape{shape.outer, p.splits, 1};
  const bool vector = second_is_vector(p, shape, workspace.word);
  launch_pass(s, second_pass(t, op, p.columns, vector), workspace, out, rest, 1);
}

}  // namespace

template <class T>
void reduce(runtime::Stream& s, ReduceOp op, const runtime::Slice<const T>& in, const runtime::Slice<T>& out,
            const ReduceShape& shape, const runtime::Slice<float>& workspace) {
  const std::uint64_t results = shape.outer * shape.inner;
  if (in.size() != results * shape.n || out.size() != results)
    throw ArgumentError({"reduce: in must have outer * n * inner elements and out outer * inner",
                         {},
                         text::cat("outer = ", shape.outer, ", n = ", shape.n, ", inner = ", shape.inner,
                                   "; in has ", in.size(), ", out ", out.size()),
                         {}});
  if (results == 0) return;
  if (shape.n == 0)
    throw ArgumentError({"reduce: there is nothing to reduce",
                         {},
                         "n = 0",
                         "fill the output with what an empty reduction means to you"});
  const auto plan = plan_reduce(dtype_of<T>, shape, in.address() % 16 == 0, s.device().info());
  if (workspace.size() < reduce_workspace(plan, shape))
    throw ArgumentError({"reduce: the workspace is too small",
                         {},
                         text::cat("this shape needs ", reduce_workspace(plan, shape),
                                   " f32 elements, it has ", workspace.size()),
                         "ask reduce_workspace()"});
  launch_reduce(s, dtype_of<T>, op, plan, shape, runtime::arg(in), runtime::arg(out),
                runtime::arg(workspace));
}
template void reduce(runtime::Stream&, ReduceOp, const runtime::Slice<const float>&,
                     const runtime::Slice<float>&, const ReduceShape&, const runtime::Slice<float>&);
template void reduce(runtime::Stream&, ReduceOp, const runtime::Slice<const half>&,
                     const runtime::Slice<half>&, const ReduceShape&, const runtime::Slice<float>&);
template void reduce(runtime::Stream&, ReduceOp, const runtime::Slice<const bfloat16>&,
                     const runtime::Slice<bfloat16>&, const ReduceShape&, const runtime::Slice<float>&);

namespace {

template <class T>
class ReduceCase : public Case {
 public:
  ReduceCase(const runtime::Device& d, HostArray in, ReduceOp op, const ReduceShape& shape,
             std::vector<std::uint64_t> out_shape)
      : host_(std::move(in)),
        op_(op),
        shape_(shape),
        out_shape_(std::move(out_shape)),
        in_(d.alloc<T>(host_.size(), "in")),
        out_(d.alloc<T>(shape.outer * shape.inner, "out")),
        plan_(plan_reduce(dtype_of<T>, shape, true, d.info())),
        workspace_(d.alloc<float>(reduce_workspace(plan_, shape), "workspace")) {
    in_.upload(typed<T>(host_));
    const auto first = make(first_pass(dtype_of<T>, op, plan_));
    variant = first.name, why = plan_.why;
    images = {image(first, d.info().arch)};
    if (plan_.splits > 1)
      images.push_back(
          image(make(second_pass(dtype_of<T>, op, plan_.columns, second_is_vector(plan_, shape, 0))),
                d.info().arch));
    flops = double(host_.size());
    bytes = double(in_.bytes() + out_.bytes());
  }
  void launch(runtime::Stream& s) override { reduce<T>(s, op_, in_, out_, shape_, workspace_); }
  std::vector<NamedArray> outputs() override {
    HostArray out(host_.dtype, out_shape_);
    out_.download(typed<T>(out));
    return {{"out", std::move(out)}};
  }
  Check verify() override {
    const auto oracle = reduce_ref(op_, host_, shape_, plan_.chain);
    return compare(outputs()[0].array, oracle.want, [&](std::uint64_t i) { return oracle.tolerance[i]; });
  }

 private:
  HostArray host_;
  ReduceOp op_;
  ReduceShape shape_;
  std::vector<std::uint64_t> out_shape_;
  runtime::Buffer<T> in_, out_;
  ReducePlan plan_;
  runtime::Buffer<float> workspace_;
};

std::vector<std::uint64_t> parse_shape(const std::string& s) {
  std::vector<std::uint64_t> shape;
  for (auto part : text::split(s, 'x')) {
    Options one("reduce", {{"shape", std::string(part), "sizes joined by x, like 64x1024"}});
    shape.push_back(one.size("shape"));
  }
  return shape;
}

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const DType legal[] = {DType::f32, DType::f16, DType::bf16};
  const std::string_view ops[] = {"sum", "max"};
  const HostArray* first = find_input(given, "in");
  if (first) {
    o.agree("in", *first, {});
    if (o.given("shape") && parse_shape(o.text("shape")) != first->shape)
      throw ArgumentError(
          {"option shape and input in of reduce must agree",
           {},
           text::cat("shape=", o.text("shape"), " was given, but in is ", describe_shape(first->shape)),
           "leave shape out: the input decides"});
  }
  HostArray in = first ? *first : random_array(o.dtype("dtype", legal), parse_shape(o.text("shape")), seed);
  const ReduceOp op = o.choice("op", ops) == "sum" ? ReduceOp::sum : ReduceOp::max;
  ReduceShape shape{1, in.size(), 1};
  std::vector<std::uint64_t> out_shape;
  if (o.text("dim") != "all") {
    std::int64_t dim = o.integer("dim");
    shape = reduce_dim(in.shape, dim);
    out_shape = in.shape;
    out_shape.erase(out_shape.begin() + (dim < 0 ? dim + std::int64_t(in.shape.size()) : dim));
  }
  switch (in.dtype) {
    case DType::f32:
      return std::make_unique<ReduceCase<float>>(d, std::move(in), op, shape, out_shape);
    case DType::f16:
      return std::make_unique<ReduceCase<half>>(d, std::move(in), op, shape, out_shape);
    case DType::bf16:
      return std::make_unique<ReduceCase<bfloat16>>(d, std::move(in), op, shape, out_shape);
    default:
      throw Unsupported(text::cat("reduce takes f32, f16 and bf16; the input is ", cgp::name(in.dtype)));
  }
}

}  // namespace

KernelEntry reduce_entry() {
  KernelEntry e;
  e.name = "reduce";
  e.summary = "sum or maximum over all elements or one dimension, f32 inside";
  e.options = {{"op", "sum", "sum or max"},
               {"dtype", "f32", "f32, f16 or bf16"},
               {"shape", "1024x4096", "sizes joined by x"},
               {"dim", "all", "all, or a dimension (negative: from the end)"}};
  e.inputs = {"in"};
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    runtime::DeviceInfo device;
    device.sm_count = 132;
    const ReduceShape shapes[] = {{1, 1 << 24, 1}, {1, 1001, 1},    {100000, 64, 1}, {100000, 8, 1},
                                  {4096, 4096, 1}, {1, 4096, 4096}, {1, 77, 33}};
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::max})
      for (DType t : {DType::f32, DType::f16, DType::bf16}) {
        for (const auto& s : shapes) all.push_back(make(first_pass(t, op, plan_reduce(t, s, true, device))));
        for (bool columns : {false, true})
          for (bool vector : {false, true}) all.push_back(make(second_pass(t, op, columns, vector)));
      }
    return images(all, arch);
  };
  e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
