// SPDX-License-Identifier: Apache-2.0
// softmax: y[r, :] = exp(x[r, :] - max) / sum.
//   who      `lanes` threads of a block (and `cluster` blocks) share a row; each keeps its part in registers
//   memory   x is read once and y written once, 16 bytes an access; rows beyond the registers are read twice
//   sync     shuffles inside a warp; one exchange of (max, sum) pairs through shared memory between warps,
//   through
//            distributed shared memory between the blocks of a cluster
//   needs    any device for f32 and f16, sm_80 for bf16, sm_90 for clusters
#include "cgp/kernels/softmax/softmax.h"

#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/arith.h"
#include "cgp/dsl/warp.h"
#include "cgp/kernels/softmax/softmax_ref.h"
#include "cgp/kernels/words.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kInf = std::numeric_limits<float>::infinity();

Val<f32> max_of(const std::vector<Val<f32>>& v) {
  std::vector<Val<f32>> level = v;
  while (level.size() > 1) {
    std::vector<Val<f32>> next;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(dsl::max(level[i], level[i + 1]));
    if (level.size() % 2) next.push_back(level.back());
    level.swap(next);
  }
  return level[0];
}
Val<f32> add(Val<f32> a, Val<f32> b) { return a + b; }
Val<f32> larger(Val<f32> a, Val<f32> b) { return dsl::max(a, b); }
// The difference first: v * log2(e) would overflow for values that softmax has no trouble with.
Val<f32> exp_minus(const Val<f32>& v, const Val<f32>& m) { return ex2<approx, ftz>((v - m) * kLog2e); }
// The reference point of a partial sum: 0 for a part that is all -inf, so that its sum is 0 and not NaN.
Val<f32> reference(const Val<f32>& m) { return select(m == -kInf, Val<f32>(0.f), m); }

struct Stat {  // of a row or a part of it: the sum is relative to `max`
  Val<f32> max, sum;
  static auto carried() { return std::tuple(&Stat::max, &Stat::sum); }
};

// One Stat from many held by the lanes of a warp.
Stat combine_lanes(Warp& w, const Stat& s, int width) {
  const auto m = reduce(w, s.max, larger, width);
  const auto scaled = s.sum * exp_minus(s.max, reference(m));
  return {m, reduce(w, scaled, add, width)};
}

// The exchange between the warps of a row: every thread ends with the row's Stat.
class Exchange {
 public:
  Exchange(Kernel& k, const SoftmaxTuning& t)
      : k_(k), warps_(t.lanes / 32), slots_(k.shared<f32>(2 * warps_)) {}
  Stat operator()(Warp& w, const Stat& mine) {
    const auto lane = w.lane();
    k_.if_(lane == 0, [&] {
      slots_.st(k_.warp_index() * 2, mine.max);
      slots_.st(k_.warp_index() * 2 + 1, mine.sum);
    });
    k_.sync();
    const auto have = lane < std::uint32_t(warps_);
    const auto m = slots_.ld_if(have, lane * 2, Val<f32>(-kInf))[0];
    const auto s = slots_.ld_if(have, lane * 2 + 1, Val<f32>(0.f))[0];
    return combine_lanes(w, {m, s}, 32);
  }

 private:
  Kernel& k_;
  int warps_;
  Ptr<shared, f32> slots_;
};

// Which row and which part of it this thread has.
struct Place {
  Val<u64> row;
  Val<u32> part;
};
Place place(Kernel& k, const SoftmaxTuning& t) {
  const auto lanes = std::uint32_t(t.lanes);
  if (t.rows == 1) return {to<u64>(k.ctaid_x()), k.tid()};
  return {to<u64>(k.ctaid_x()) * t.rows + to<u64>(k.tid() / lanes), k.tid() % lanes};
}

// The whole row in registers: `loads` accesses per thread.
template <class T, bool Vector>
void softmax_registers(Kernel& k, SoftmaxTuning t, In<T> x, Out<T> y, Val<u64> rows, Val<u32> cols,
                       Val<u64> x_pitch, Val<u64> y_pitch) {
  using W = Words<T, Vector>;
  constexpr int n = W::per_access;
  constexpr std::uint32_t step = W::elements;
  k.block(t.lanes * t.rows);
  auto warp = k.warp();
  const auto at = place(k, t);
  const auto x_row = x.at(at.row * x_pitch).template as<typename W::Word>();
  const auto y_row = y.at(at.row * y_pitch).template as<typename W::Word>();

  std::vector<Val<u32>> access;  // index of the j-th access of this thread in the row
  std::vector<Val<pred>> inside;
  std::vector<Val<typename W::Word>> words;
  const auto accesses = cols / step;
  for (int j = 0; j < t.loads; ++j) {
    access.push_back(at.part + std::uint32_t(j * t.lanes));
    inside.push_back((access.back() < accesses) & (at.row < rows));
    const auto got =
        x_row.template ld_if<n, nc, no_allocate>(inside.back(), access.back(), W::minus_infinity());
    for (int i = 0; i < n; ++i) words.push_back(got[i]);
  }
  std::vector<Val<f32>> values;
  for (const auto& w : words)
    for (const auto& f : W::floats(w)) values.push_back(f);

  const int width = t.lanes < 32 ? t.lanes : 32;
  const auto m = reduce(warp, max_of(values), larger, width);
  const auto base = reference(m);
  // Four chains of additions: one would wait four cycles a step.
  std::vector<std::vector<Val<f32>>> chain(4);
  for (std::size_t i = 0; i < values.size(); ++i) {
    auto& c = chain[i % 4];
    const auto e = exp_minus(values[i], base);
    c.push_back(c.empty() ? e : c.back() + e);
  }
  std::vector<Val<f32>> sums{chain[0].back()};
  for (int i = 1; i < 4; ++i)
    if (!chain[std::size_t(i)].empty()) sums.push_back(sums.back() + chain[std::size_t(i)].back());
  const Stat part{m, reduce(warp, sums.back(), add, width)};
  const Stat stat = t.lanes > 32 ? Exchange(k, t)(warp, part) : part;

  const auto scale = rcp<rn>(stat.sum);
  for (int j = 0; j < t.loads; ++j) {
    std::vector<Value> out;
    for (int i = 0; i < n; ++i) {
      std::vector<Val<f32>> f;
      for (const auto& v : W::floats(words[std::size_t(j * n + i)]))
        f.push_back(exp_minus(v, stat.max) * scale);
      out.push_back(W::word(f));
    }
    y_row.template st_if<n>(inside[std::size_t(j)], access[std::size_t(j)], W::Access::from(out));
  }
}

// Rows too long for registers: a running (max, sum) per thread, then a second reading.
template <class T, bool Vector>
void softmax_loop(Kernel& k, SoftmaxTuning t, In<T> x, Out<T> y, Val<u64> rows, Val<u64> cols,
                  Val<u64> x_pitch, Val<u64> y_pitch) {
  using W = Words<T, Vector>;
  constexpr int n = W::per_access;
  constexpr std::uint32_t step = W::elements;
  k.block(t.lanes);
  auto warp = k.warp();
  const auto at = place(k, t);
  const auto x_row = x.at(at.row * x_pitch).template as<typename W::Word>();
  const auto y_row = y.at(at.row * y_pitch).template as<typename W::Word>();
  (void)rows;  // one block a row, so there is none to leave out

  const auto turns = range(to<u64>(at.part), cols / step, Val<u64>(t.lanes));
  const auto part = k.loop(turns, Stat{Val<f32>(-kInf), Val<f32>(0.f)}, [&](Val<u64> i, Stat s) {
    const auto got = x_row.template ld<n>(i);
    std::vector<Val<f32>> values{s.max};
    for (int j = 0; j < n; ++j)
      for (const auto& f : W::floats(got[j])) values.push_back(f);
    const auto m = max_of(values);
    const auto base = reference(m);
    std::vector<Val<f32>> sum{s.sum * exp_minus(s.max, base)};
    for (std::size_t j = 1; j < values.size(); ++j) sum.push_back(sum.back() + exp_minus(values[j], base));
    return Stat{m, sum.back()};
  });
  const auto stat = Exchange(k, t)(warp, combine_lanes(warp, part, 32));
  const auto scale = rcp<rn>(stat.sum);
  k.loop(turns, [&](Val<u64> i) {
    const auto got = x_row.template ld<n>(i);
    std::vector<Value> out;
    for (int j = 0; j < n; ++j) {
      std::vector<Val<f32>> f;
      for (const auto& v : W::floats(got[j])) f.push_back(exp_minus(v, stat.max) * scale);
      out.push_back(W::word(f));
    }
    y_row.template st<n>(i, W::Access::from(out));
  });
}

}  // namespace

// ---------------------------------------------------------------- selection and host side
namespace {

template <class T, bool Vector>
Variant make_variant(std::string name, int min_sm, const SoftmaxTuning& t) {
  return t.loads ? variant(std::move(name), min_sm, softmax_registers<T, Vector>, t)
                 : variant(std::move(name), min_sm, softmax_loop<T, Vector>, t);
}
Variant make_variant(DType t, bool vector, const SoftmaxTuning& tune) {
  auto name = text::cat("softmax_", cgp::name(t), vector ? "_v" : "", "__", tune.lanes, "x", tune.rows, "_",
                        tune.loads ? text::cat("l", tune.loads) : std::string("loop"));
  if (t == DType::f32)
    return vector ? make_variant<f32, true>(name, 75, tune) : make_variant<f32, false>(name, 75, tune);
  if (t == DType::f16)
    return vector ? make_variant<f16, true>(name, 75, tune) : make_variant<f16, false>(name, 75, tune);
  return vector ? make_variant<bf16, true>(name, 80, tune) : make_variant<bf16, false>(name, 80, tune);
}

constexpr int kRowThreads = 128;  // threads of a block whose rows need fewer

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

}  // namespace

SoftmaxChoice select_softmax(DType t, const SoftmaxShape& shape, bool aligned, const runtime::DeviceInfo&) {
  const std::uint64_t per_access = 16 / std::uint64_t(cgp::bytes(t));
  const auto multiple = [&](std::uint64_t pitch) { return (pitch ? pitch : shape.cols) % per_access == 0; };
  const bool vector =
      aligned && shape.cols % per_access == 0 && multiple(shape.x_pitch) && multiple(shape.y_pitch);
  const std::uint64_t accesses = vector ? shape.cols / per_access : shape.cols;
  const int most_loads = vector ? 4 : 16;  // 16 words in registers either way
  SoftmaxTuning tune;
  if (accesses <= 32) {
    tune.lanes = accesses <= 8 ? 8 : accesses <= 16 ? 16 : 32;
    tune.loads = 1;
  } else if (accesses <= 32u * unsigned(most_loads)) {
    tune.lanes = 32;
    tune.loads = int((accesses + 31) / 32);
  } else if (accesses <= 1024u * unsigned(most_loads)) {
    tune.lanes = int(round_up((accesses + unsigned(most_loads) - 1) / unsigned(most_loads), 32));
    tune.loads = most_loads;
  } else {
    tune.lanes = 1024;
    tune.loads = 0;
  }
  tune.rows = tune.lanes <= 32 ? kRowThreads / tune.lanes : 1;
  std::string why = vector ? text::cat("aligned rows: ", accesses, " 16-byte accesses a row")
                           : text::cat("rows are not 16-byte aligned: ", accesses, " single accesses a row");
  text::append(why, tune.loads ? text::cat(", kept in registers of ", tune.lanes, " threads")
                               : std::string(", too many for registers: the row is read twice"));
  return {make_variant(t, vector, tune), tune, std::move(why)};
}

namespace {

template <class T>
void check(const char* what, const T& slice, std::uint64_t rows, std::uint64_t cols, std::uint64_t pitch) {
  if (pitch < cols)
    throw ArgumentError({text::cat("softmax: the pitch of ", what, " must be at least cols"),
                         {},
                         text::cat("pitch = ", pitch, ", cols = ", cols),
                         {}});
  const std::uint64_t need = rows && cols ? (rows - 1) * pitch + cols : 0;
  if (slice.size() < need)
    throw ArgumentError({text::cat("softmax: ", what, " must hold all rows"),
                         {},
                         text::cat("rows = ", rows, " with pitch ", pitch, " need ", need,
                                   " elements, it has ", slice.size()),
                         {}});
}

}  // namespace

template <class T>
void softmax(runtime::Stream& s, const runtime::Slice<const T>& x, const runtime::Slice<T>& y,
             const SoftmaxShape& shape) {
  const std::uint64_t xp = shape.x_pitch ? shape.x_pitch : shape.cols,
                      yp = shape.y_pitch ? shape.y_pitch : shape.cols;
  check("x", x, shape.rows, shape.cols, xp);
  check("y", y, shape.rows, shape.cols, yp);
  if (shape.rows == 0 || shape.cols == 0) return;
  const auto choice =
      select_softmax(dtype_of<T>, shape, (x.address() | y.address()) % 16 == 0, s.device().info());
  const auto fn = load(s.device(), choice.variant);
  // One launch takes at most 2^31 - 1 blocks.
  const std::uint64_t most = 0x7fffffffull * std::uint64_t(choice.tuning.rows);
  for (std::uint64_t from = 0; from < shape.rows; from += most) {
    const std::uint64_t rows = std::min(most, shape.rows - from);
    const auto grid = runtime::grid_for(rows, std::uint64_t(choice.tuning.rows));
    const auto xs = x.slice(from * xp, x.size() - from * xp);
    const auto ys = y.slice(from * yp, y.size() - from * yp);
    if (choice.tuning.loads)
      fn(s, grid, xs, ys, rows, std::uint32_t(shape.cols), xp, yp);
    else
      fn(s, grid, xs, ys, rows, shape.cols, xp, yp);
  }
}
template void softmax(runtime::Stream&, const runtime::Slice<const float>&, const runtime::Slice<float>&,
                      const SoftmaxShape&);
template void softmax(runtime::Stream&, const runtime::Slice<const half>&, const runtime::Slice<half>&,
                      const SoftmaxShape&);
template void softmax(runtime::Stream&, const runtime::Slice<const bfloat16>&,
                      const runtime::Slice<bfloat16>&, const SoftmaxShape&);

namespace {

template <class T>
class SoftmaxCase : public Case {
 public:
  SoftmaxCase(const runtime::Device& d, HostArray x)
      : host_(std::move(x)), x_(d.alloc<T>(host_.size())), y_(d.alloc<T>(host_.size())) {
    shape_.cols = host_.shape.empty() ? 1 : host_.shape.back();
    shape_.rows = shape_.cols ? host_.size() / shape_.cols : 0;
    x_.upload(typed<T>(host_));
    const auto choice = select_softmax(dtype_of<T>, shape_, true, d.info());
    variant = choice.variant.name, why = choice.why;
    images = {image(choice.variant, d.info().arch)};
    flops = 5.0 * double(host_.size());  // subtract, exp, add, multiply, compare
    bytes = 2.0 * double(host_.bytes.size());
  }
  void launch(runtime::Stream& s) override { softmax<T>(s, x_, y_, shape_); }
  std::vector<NamedArray> outputs() override {
    HostArray y(host_.dtype, host_.shape);
    y_.download(typed<T>(y));
    return {{"y", std::move(y)}};
  }
  Check verify() override {
    const auto want = softmax_ref(host_, shape_.rows, shape_.cols);
    std::vector<double> span(shape_.rows, 0);  // of the exponents in base 2, per row
    for (std::uint64_t i = 0; i < want.size(); ++i) {
      auto& v = span[i / shape_.cols];
      if (want[i] > 0) v = std::max(v, -std::log2(want[i]));
    }
    return compare(outputs()[0].array, want, [&](std::uint64_t i) {
      return softmax_tolerance(host_.dtype, want[i], span[i / shape_.cols], shape_.cols);
    });
  }

 private:
  HostArray host_;
  SoftmaxShape shape_;
  runtime::Buffer<T> x_, y_;
};

}  // namespace

KernelEntry softmax_entry() {
  KernelEntry e;
  e.name = "softmax";
  e.summary = "y[r, :] = softmax(x[r, :]), f32 inside";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"}, {"rows", "1024", "rows"}, {"cols", "4096", "columns"}};
  e.inputs = {"x"};
  e.images = [](std::string_view arch) {
    std::vector<Variant> all;
    for (DType t : {DType::f32, DType::f16, DType::bf16})
      for (std::uint64_t cols : {32, 100, 1000, 1024, 4096, 16384, 100000, 262144})
        all.push_back(select_softmax(t, {1, cols, 0, 0}, true, {}).variant);
    return images(all, arch);
  };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    const DType legal[] = {DType::f32, DType::f16, DType::bf16};
    const HostArray* first = find_input(given, "x");
    HostArray x =
        first ? *first : random_array(o.dtype("dtype", legal), {o.size("rows"), o.size("cols")}, seed);
    switch (x.dtype) {
      case DType::f32:
        return std::make_unique<SoftmaxCase<float>>(d, std::move(x));
      case DType::f16:
        return std::make_unique<SoftmaxCase<half>>(d, std::move(x));
      case DType::bf16:
        return std::make_unique<SoftmaxCase<bfloat16>>(d, std::move(x));
      default:
        throw Unsupported(text::cat("softmax takes f32, f16 and bf16; the input is ", cgp::name(x.dtype)));
    }
  };
  return e;
}

}  // namespace cgp::kernels
