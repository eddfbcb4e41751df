// SPDX-License-Identifier: Apache-2.0
// softmax: y[r, :] = exp(x[r, :] - max) / sum.
//   who      `lanes` threads of a block (and `cluster` blocks) share a row; each keeps its part in registers
//   memory   x is read once and y written once, 16 bytes an access; rows beyond the registers are read twice
//   sync     shuffles inside a warp; one exchange of (max, sum) pairs through shared memory between warps,
//   through
//            distributed shared memory between the blocks of a cluster
//   needs    any device for f32 and f16, sm_80 for bf16, sm_90 for clusters
#include "cgp/kernels/softmax/softmax.h"

#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/cluster.h"
#include "cgp/kernels/softmax/softmax_parts.h"
#include "cgp/kernels/softmax/softmax_ref.h"
#include "cgp/kernels/softmax/softmax_rows.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using namespace softmax_parts;

// The exchange between the warps of a row, in one block or in all blocks of a cluster: every thread ends with
// the row's Stat.
class Exchange {
 public:
  Exchange(Kernel& k, const SoftmaxTuning& t)
      : k_(k), warps_(t.lanes / 32), cluster_(t.cluster), slots_(k.shared<f32>(2 * warps_ * cluster_)) {
    // A block's shared memory may be written by its peers only once it runs.
    if (cluster_ > 1) {
      auto cta = k.cta();
      started_.push_back(cluster_arrive(cta));
    }
  }
  Stat operator()(Warp& w, const Stat& mine) {
    const auto lane = w.lane();
    auto cta = k_.cta();
    if (cluster_ == 1) {
      k_.if_(lane == 0, [&] { put(slots_, k_.warp_index(), mine); });
      k_.sync();
    } else {
      std::move(started_.back()).wait(cta);
      const auto slot = k_.cluster_ctarank() * std::uint32_t(warps_) + k_.warp_index();
      // Lane r of each warp tells block r.
      k_.if_(lane < std::uint32_t(cluster_), [&] { put(mapa(slots_, lane), slot, mine); });
      cluster_sync(cta);
    }
    return combine_slots(w, slots_, warps_ * cluster_);
  }

 private:
  Kernel& k_;
  int warps_, cluster_;
  Ptr<shared, f32> slots_;
  std::vector<ClusterArrived> started_;
};

// Which row and which part of it this thread has.
struct Place {
  Val<u64> row;
  Val<u32> part;
};
Place place(Kernel& k, const SoftmaxTuning& t) {
  const auto lanes = std::uint32_t(t.lanes);
  if (t.cluster > 1)
    return {to<u64>(k.ctaid_x() / std::uint32_t(t.cluster)), k.cluster_ctarank() * lanes + k.tid()};
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
  if (t.cluster > 1) k.cluster(t.cluster);
  // At most 64 registers a thread: what else is resident hides this block's waits.
  if (k.sm() >= 90 && t.lanes * t.rows <= 512 && t.loads * W::per_access <= 32)
    k.min_blocks(1024 / (t.lanes * t.rows));
  auto warp = k.warp();
  std::vector<Exchange> exchange;
  if (t.lanes > 32) exchange.emplace_back(k, t);
  const auto at = place(k, t);
  // Each thread's first access; the others lie a build-time number of accesses further, so one address serves
  // all.
  const auto mine = at.part * std::uint32_t(n);
  const auto x_at = x.at(at.row * x_pitch).template as<typename W::Word>().at(mine);
  const auto y_at = y.at(at.row * y_pitch).template as<typename W::Word>().at(mine);
  const int stride = t.lanes * t.cluster;

  // Accesses of this row from this thread's first one on; none for a row beyond the last.
  const auto left = select((at.part < cols / step) & (at.row < rows), cols / step - at.part, Val<u32>(0));
  const auto inside = [&](int j) { return left > std::uint32_t(j * stride); };
  std::vector<Val<typename W::Word>> words;
  for (int j = 0; j < t.loads; ++j) {
    const auto got = x_at.template ld_if<n, nc>(inside(j), j * stride, W::minus_infinity());
    for (int i = 0; i < n; ++i) words.push_back(got[i]);
  }

  const int width = t.lanes < 32 ? t.lanes : 32;
  const auto m = reduce(warp, largest<T, Vector>(words), larger, width);
  const auto base = reference(m);
  const Stat part{m, reduce(warp, sum_of_exp<T, Vector>(words, base), add, width)};
  const Stat stat = t.lanes > 32 ? exchange.back()(warp, part) : part;

  const auto scale = rcp<rn>(stat.sum);
  for (int j = 0; j < t.loads; ++j) {
    std::vector<Value> out;
    for (int i = 0; i < n; ++i) {
      std::vector<Val<f32>> f;
      for (const auto& v : W::floats(words[std::size_t(j * n + i)]))
        f.push_back(exp_minus(v, stat.max) * scale);
      out.push_back(W::word(f));
    }
    y_at.template st_if<n>(inside(j), j * stride, W::Access::from(out));
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
  if (t.cluster > 1) k.cluster(t.cluster);
  auto warp = k.warp();
  Exchange exchange(k, t);
  const auto at = place(k, t);
  const auto x_row = x.at(at.row * x_pitch).template as<typename W::Word>();
  const auto y_row = y.at(at.row * y_pitch).template as<typename W::Word>();
  (void)rows;  // one block a row, so there is none to leave out

  const auto turns = range(to<u64>(at.part), cols / step, Val<u64>(t.lanes * t.cluster));
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
  const auto stat = exchange(warp, combine_lanes(warp, part, 32));
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
                        tune.loads ? text::cat("l", tune.loads) : std::string("loop"), "_c", tune.cluster);
  if (tune.stages) {
    text::append(name, text::cat("_s", tune.stages, "_r", tune.resident));
    return softmax_ring_variant(t, std::move(name), tune);
  }
  const int clustered = tune.cluster > 1 ? 90 : 0;
  if (t == DType::f32)
    return vector ? make_variant<f32, true>(name, std::max(75, clustered), tune)
                  : make_variant<f32, false>(name, std::max(75, clustered), tune);
  if (t == DType::f16)
    return vector ? make_variant<f16, true>(name, std::max(75, clustered), tune)
                  : make_variant<f16, false>(name, std::max(75, clustered), tune);
  return vector ? make_variant<bf16, true>(name, std::max(80, clustered), tune)
                : make_variant<bf16, false>(name, std::max(80, clustered), tune);
}

constexpr int kRowThreads = 128;  // threads of a block whose rows need fewer

std::uint64_t round_up(std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; }

// Long rows on a device with clusters: blocks that stay, with three row parts in flight. Worth it when each
// block has several rows to visit.
std::optional<SoftmaxTuning> ring(DType type, std::uint64_t rows, std::uint64_t accesses,
                                  const runtime::DeviceInfo& device) {
  constexpr std::uint64_t lanes = 512, part = lanes * 8, most_blocks = 8;
  if (device.max_cluster < int(most_blocks) || accesses <= part / 2 || accesses > part * most_blocks)
    return {};
  SoftmaxTuning t;
  while (accesses > part * std::uint64_t(t.cluster)) t.cluster *= 2;
  if (rows * std::uint64_t(t.cluster) < 2 * std::uint64_t(device.sm_count)) return {};
  const std::uint64_t share = (accesses + std::uint64_t(t.cluster) - 1) / std::uint64_t(t.cluster);
  t.lanes = int(lanes), t.loads = int((share + lanes - 1) / lanes), t.stages = 3;
  const std::uint64_t bytes = std::uint64_t(t.stages) * std::uint64_t(t.loads) * lanes * 16 + 2048;
  if (bytes > device.smem_per_block_optin) return {};
  const bool narrow = t.loads * 16 / cgp::bytes(type) <= 32;  // exponentials a thread holds: 64 registers do
  t.resident = narrow && 2 * (bytes + 1024) <= device.smem_per_sm ? 2 : 1;
  return t;
}

}  // namespace

Variant softmax_variant(DType t, bool vector, const SoftmaxTuning& tune) {
  return make_variant(t, vector, tune);
}

SoftmaxChoice select_softmax(DType t, const SoftmaxShape& shape, bool aligned,
                             const runtime::DeviceInfo& device) {
  const std::uint64_t per_access = 16 / std::uint64_t(cgp::bytes(t));
  const auto multiple = [&](std::uint64_t pitch) { return (pitch ? pitch : shape.cols) % per_access == 0; };
  const bool vector =
      aligned && shape.cols % per_access == 0 && multiple(shape.x_pitch) && multiple(shape.y_pitch);
  const std::uint64_t accesses = vector ? shape.cols / per_access : shape.cols;
  const std::uint64_t most = vector ? 8 : 16;  // accesses a thread keeps in registers
  // A block of 256 threads leaves room for others that load while it waits; longer rows go to clusters of
  // them.
  const std::uint64_t block = 256 * most, clusters = device.max_cluster >= 8 ? 8 : 1;
  SoftmaxTuning tune;
  if (accesses <= 32) {
    tune.lanes = accesses <= 8 ? 8 : accesses <= 16 ? 16 : 32;
    tune.loads = 1;
  } else if (accesses <= 32 * most) {
    tune.lanes = 32;
    tune.loads = int((accesses + 31) / 32);
  } else if (const auto staged = vector ? ring(t, shape.rows, accesses, device) : std::nullopt) {
    tune = *staged;
  } else if (accesses <= block * clusters) {
    while (accesses > block * std::uint64_t(tune.cluster)) tune.cluster *= 2;
    const std::uint64_t share = (accesses + std::uint64_t(tune.cluster) - 1) / std::uint64_t(tune.cluster);
    tune.lanes = int(round_up((share + most - 1) / most, 32));
    tune.loads = int(most);
  } else if (accesses <= 1024 * most / 2) {  // no clusters: one large block
    tune.lanes = 1024;
    tune.loads = int(most / 2);
  } else {
    tune.lanes = 1024;
    tune.loads = 0;
    tune.cluster = int(clusters);
  }
  tune.rows = tune.lanes <= 32 ? kRowThreads / tune.lanes : 1;
  std::string why = vector ? text::cat("aligned rows: ", accesses, " 16-byte accesses a row")
                           : text::cat("rows are not 16-byte aligned: ", accesses, " single accesses a row");
  text::append(why, tune.loads ? text::cat(", kept in registers of ", tune.lanes, " threads")
                               : std::string(", too many for registers: the row is read twice"));
  if (tune.cluster > 1) text::append(why, text::cat(" in each of ", tune.cluster, " blocks"));
  if (tune.stages) text::append(why, text::cat(", with ", tune.stages, " rows in flight"));
  return {make_variant(t, vector, tune), tune, std::move(why)};
}

void run_softmax(runtime::Stream& s, const SoftmaxChoice& choice, const SoftmaxShape& shape,
                 const runtime::Arg& x, const runtime::Arg& y) {
  const auto fn = load(s.device(), choice.variant);
  const auto& t = choice.tuning;
  auto grid = runtime::grid_for(shape.rows, std::uint64_t(t.rows));
  if (t.stages) {  // blocks that stay: as many as run at the same time
    const std::uint64_t fit =
        t.cluster > 1 ? std::uint64_t(fn.max_active_clusters({.grid = {std::uint32_t(t.cluster)}}))
                      : std::uint64_t(fn.blocks_per_sm() * s.device().info().sm_count);
    grid.x = std::uint32_t(std::min<std::uint64_t>(shape.rows, std::max<std::uint64_t>(fit, 1)));
  }
  grid.x *= std::uint32_t(t.cluster);
  if (choice.tuning.loads)
    fn(s, grid, x, y, shape.rows, std::uint32_t(shape.cols), shape.x_pitch, shape.y_pitch);
  else
    fn(s, grid, x, y, shape.rows, shape.cols, shape.x_pitch, shape.y_pitch);
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

// The problem for softmax_rows() where that has wide accesses and softmax() has not.
template <class T>
std::optional<SoftmaxRows> crooked(const runtime::Slice<const T>& x, const runtime::Slice<T>& y,
                                   const SoftmaxShape& shape) {
  SoftmaxRows r;
  r.in = x, r.out = y, r.rows = shape.rows, r.cols = shape.cols;
  r.in_layout.pitch = shape.x_pitch ? shape.x_pitch : shape.cols;
  r.out_layout.pitch = shape.y_pitch ? shape.y_pitch : shape.cols;
  const auto fit = row::fit(16 / int(sizeof(T)), r.cols, {{r.in, r.in_layout}, {r.out, r.out_layout}});
  return fit == row::Fit::edges ? std::optional(r) : std::nullopt;
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
  if (const auto rows = crooked<T>(x, y, shape)) return softmax_rows(s, *rows);
  const auto choice =
      select_softmax(dtype_of<T>, shape, (x.address() | y.address()) % 16 == 0, s.device().info());
  // One launch takes at most 2^31 - 1 blocks.
  const std::uint64_t most =
      0x7fffffffull / std::uint64_t(choice.tuning.cluster) * std::uint64_t(choice.tuning.rows);
  for (std::uint64_t from = 0; from < shape.rows; from += most) {
    const SoftmaxShape part{std::min(most, shape.rows - from), shape.cols, xp, yp};
    run_softmax(s, choice, part, runtime::arg(x.slice(from * xp, x.size() - from * xp)),
                runtime::arg(y.slice(from * yp, y.size() - from * yp)));
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
      : host_(std::move(x)), x_(d.alloc<T>(host_.size(), "x")), y_(d.alloc<T>(host_.size(), "y")) {
    shape_.cols = host_.shape.empty() ? 1 : host_.shape.back();
    shape_.rows = shape_.cols ? host_.size() / shape_.cols : 0;
    x_.upload(typed<T>(host_));
    const auto choice = select_softmax(dtype_of<T>, shape_, true, d.info());
    variant = choice.variant.name, why = choice.why;
    images = {image(choice.variant, d.info().arch)};
    if (const auto rows = crooked<T>(x_, y_, shape_)) {
      const auto v = softmax_rows_variant(SoftmaxOp::softmax, *rows, d.info(), &why);
      variant = v.name, images = {image(v, d.info().arch)};
    }
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
      for (std::uint64_t cols : {32, 100, 1000, 1024, 4096, 16384, 32768, 65536, 1048576})
        for (int cluster : {1, 8}) {
          runtime::DeviceInfo device;
          device.max_cluster = cluster;
          device.smem_per_block_optin = device.smem_per_sm =
              arch.substr(0, 5) == "sm_12" ? 99 * 1024 : 227 * 1024;
          for (std::uint64_t rows : {std::uint64_t(0), std::uint64_t(1) << 20}) {
            device.sm_count = 132;
            all.push_back(select_softmax(t, {rows, cols, 0, 0}, true, device).variant);
          }
        }
    for (DType t : {DType::f32, DType::bf16}) {
      row::RowNeeds n;
      n.inputs = n.outputs = {t}, n.fold_size = 2, n.dear = true;
      for (const auto& tuning : row::shipped_tunings(n, arch)) {
        if (!tuning.edges) continue;
        SoftmaxRows r;
        r.in = r.out = View::stand_in(t), r.rows = r.cols = 1, r.tuning = tuning;
        all.push_back(softmax_rows_variant(SoftmaxOp::softmax, r, {}, nullptr));
      }
    }
    return images(all, arch);
  };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    const DType legal[] = {DType::f32, DType::f16, DType::bf16};
    const HostArray* first = find_input(given, "x");
    if (first) {
      const std::uint64_t cols = first->shape.empty() ? 1 : first->shape.back();
      o.agree("x", *first, {{"rows", cols ? first->size() / cols : 0}, {"cols", cols}});
    }
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
