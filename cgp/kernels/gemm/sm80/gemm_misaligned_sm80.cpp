// SPDX-License-Identifier: Apache-2.0
// gemm misaligned: tensor cores through mma.sync for rows at any multiple of 2 bytes, which neither TMA nor
// cp.async can address, and of which copies into scratch memory would cost more than the product.
//   who      256 threads make a tile of C; eight warps share its rows, its columns and each stage of K
//   memory   stages of A and B go through registers into swizzled shared memory, in accesses as wide as the
//            alignment of each operand allows (2 to 16 bytes), neighbouring threads along what is contiguous
//   sync     the next stage is on its way while this one is multiplied; one block barrier a stage
//   split_k  K over several blocks, which store fp32 partial sums (gemm_split_k_reduce.cpp adds them up)
//   row      one row of A against rows of B at odd elements: no tensor cores, B from memory into fused
//            multiply-adds
//   needs    sm_80; 16-bit types; every layout, size and alignment
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/dyn_warp.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/kernels/common/params.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm/epilogue/gemm_epilogue.h"
#include "cgp/kernels/gemm/select/gemm_calibration.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 256, kSlice = 64;  // of K that a warp multiplies of a stage

// Warps of a tile along its rows, its columns and K; what each of them makes.
struct MisalignedTile {
  int rows, cols, warps_m, warps_n, warps_k;
  int warp_rows() const { return rows / warps_m; }
  int warp_cols() const { return cols / warps_n; }
  int depth() const { return warps_k * kSlice; }
};
constexpr MisalignedTile kMisalignedTiles[] = {
    {16, 32, 1, 2, 4}, {32, 16, 2, 1, 4}, {32, 32, 2, 2, 2}, {64, 64, 4, 2, 1}};

struct MisalignedBuild {
  ptx::Mod type;
  bool trans_a, trans_b;
  MisalignedTile tile;
  int wide_a, wide_b;  ///< elements of an access
  bool partial;        ///< fp32 partial sums of a slice of K are stored
};

// The tiles of one operand on their way into shared memory. Rows of the matrix as it is stored are `pitch`
// apart; rows of a stage are rows of the matrix.
class MisalignedPanel {
 public:
  // k_contiguous: `extent` rows of depth elements, else depth rows of `extent` elements.
  MisalignedPanel(Kernel& k, bool k_contiguous, int extent, int depth, int wide)
      : k_contiguous_(k_contiguous),
        wide_(wide),
        layout_(layout(k_contiguous, extent, depth)),
        per_row_(layout_.cols / wide),
        step_(std::max(1, kThreads / per_row_)),
        passes_(layout_.rows / step_),
        row_(divided(k.tid(), per_row_)),
        col_(times(remainder(k.tid(), per_row_), wide)) {}

  static TileLayout layout(bool k_contiguous, int extent, int depth) {
    const int rows = k_contiguous ? extent : depth, cols = k_contiguous ? depth : extent;
    return {rows, cols, 2, widest_swizzle(2 * cols), rows};
  }
  const TileLayout& tile() const { return layout_; }
  Major major() const { return k_contiguous_ ? Major::k : Major::mn; }

  // Where the matrix begins, its sizes along K and across, and the tile's first row or column across.
  void source(const Val<u64>& address, const Val<u64>& pitch, const Val<u32>& first, const Val<u32>& across) {
    const auto left = [](const Val<u32>& all, const Val<u32>& from) {
      return select(from < all, all - from, Val<u32>(0));
    };
    const auto row = k_contiguous_ ? first + row_ : row_ + 0u, col = k_contiguous_ ? col_ + 0u : first + col_;
    start_.emplace(address + (to<u64>(row) * pitch + to<u64>(col)) * 2u);
    pitch_.emplace(pitch * std::uint32_t(2 * step_));
    pass_.emplace(k_contiguous_ ? Val<u64>(2) : pitch * 2u);
    across_.emplace(k_contiguous_ ? left(across, first + row_) : left(across, first + col_));
  }
  using Held = std::vector<std::vector<Value>>;
  // Of the stage that begins at `from`; nothing behind `end`.
  Held load(const Val<u32>& from, const Val<u32>& end) const {
    Held out;
    const auto along = select(from < end, end - from, Val<u32>(0));
    std::vector<Val<u64>> at{*start_ + to<u64>(from) * *pass_};
    const auto inside = k_contiguous_ ? col_ < along : *across_ > 0u;
    const auto& rows = k_contiguous_ ? *across_ : along;
    for (int j = 0; j < passes_; ++j) {
      if (j) at.push_back(at.back() + *pitch_);
      const auto offset = std::uint32_t(j * step_);
      // `rows` counts from this thread's first row where rows lie across, from the stage's where they lie
      // along K.
      const auto have = inside & (k_contiguous_ ? rows > offset : row_ + offset < rows);
      out.push_back(one(at.back(), have));
    }
    return out;
  }
  void store(const Val<u32>& base, const Held& held) const {
    const int period = 8 / std::gcd(8, step_);
    std::vector<Val<u32>> at;
    for (int j = 0; j < passes_; ++j) {
      if (j < period) at.push_back(base + tile_offset(layout_, row_ + std::uint32_t(j * step_), col_));
      const int further = j / period * period * step_ * layout_.span();
      const Ptr<shared, b16> to(at[std::size_t(j % period)], further);
      const auto& v = held[std::size_t(j)];
      if (wide_ == 1)
        to.st(0, Val<b16>(v[0]));
      else if (wide_ == 2)
        to.as<b32>().st(0, Val<b32>(v[0]));
      else if (wide_ == 4)
        to.as<b32>().template st<2>(0, RegGroup<b32, 2>::from(v));
      else
        to.as<b32>().template st<4>(0, RegGroup<b32, 4>::from(v));
    }
  }

 private:
  std::vector<Value> one(const Val<u64>& at, const Val<pred>& have) const {
    const Ptr<global, const b16> from(at, 0, true);
    const auto words = from.as<b32>();
    if (wide_ == 1) return from.template ld_if<1, nc>(have, 0, Val<b16>(0)).values();
    if (wide_ == 2) return words.template ld_if<1, nc>(have, 0, Val<b32>(0)).values();
    if (wide_ == 4) return words.template ld_if<2, nc>(have, 0, Val<b32>(0)).values();
    return words.template ld_if<4, nc>(have, 0, Val<b32>(0)).values();
  }
  bool k_contiguous_;
  int wide_;
  TileLayout layout_;
  int per_row_, step_, passes_;
  Val<u32> row_, col_;
  std::optional<Val<u64>> start_, pitch_, pass_;
  std::optional<Val<u32>> across_;
};

// Results from shared memory, where the accumulators of each slice of K lie `pitch` apart in rows: neighbouring
// threads have neighbouring columns.
struct MisalignedOutput {
  Val<u64> c, ldc;
  Val<u32> m, n, m0, n0, paired;
  Val<f32> alpha, beta;
};
int staging_pitch(const MisalignedTile& t) { return t.cols + 8; }

template <class T>
void misaligned_store(Kernel& k, const MisalignedBuild& b, const Ptr<shared, f32>& met,
                      const MisalignedOutput& to_c) {
  const auto& t = b.tile;
  const int pitch = staging_pitch(t), slice = t.rows * pitch;
  const auto total = [&](const Val<u32>& at) {
    std::vector<Val<f32>> sum{met.ld(at)};
    for (int s = 1; s < t.warps_k; ++s) sum.push_back(sum.back() + met.at(s * slice).ld(at));
    return sum.back();
  };
  // `wide` columns a thread.
  const auto each = [&](int wide, auto&& put) {
    const int per_row = t.cols / wide, step = kThreads / per_row;
    const auto row = divided(k.tid(), per_row), col = times(remainder(k.tid(), per_row), wide);
    for (int r = 0; r < t.rows; r += step) {
      const auto y = to_c.m0 + row + std::uint32_t(r), x = to_c.n0 + col;
      const auto inside = (y < to_c.m) & (x < to_c.n);
      put(inside, to<u64>(y) * to_c.ldc + to<u64>(x), times(row + std::uint32_t(r), pitch) + col);
    }
  };
  if (b.partial)
    return each(1, [&](const Val<pred>& inside, const Val<u64>& at, const Val<u32>& from) {
      Ptr<global, f32>(to_c.c).at(at).st_if(inside, 0, total(from));
    });
  const auto reads = to_c.beta != 0.f;
  const Ptr<global, T> c(to_c.c);
  const auto result = [&](const Val<f32>& sum, const Val<f32>& old) {
    return to<T>(fma(sum, to_c.alpha, old * to_c.beta));
  };
  k.if_(
      to_c.paired != 0u,
      [&] {
        each(2, [&](const Val<pred>& inside, const Val<u64>& at, const Val<u32>& from) {
          const auto word = c.at(at).template as<b32>();
          const auto old = unpack<T>(word.ld_if(inside & reads, 0, Val<b32>(0))[0]);
          word.st_if(
              inside, 0,
              pack<b32>(result(total(from), to<f32>(old[0])), result(total(from + 1u), to<f32>(old[1]))));
        });
      },
      [&] {
        each(1, [&](const Val<pred>& inside, const Val<u64>& at, const Val<u32>& from) {
          const auto old = c.at(at).ld_if(inside & reads, 0, Val<T>(0.f))[0];
          c.at(at).st_if(inside, 0, result(total(from), to<f32>(old)));
        });
      });
}

template <class Side>
struct MisalignedParams {
  Field<Side, In<b16>> a, b;
  Field<Side, InOut<b16>> c;  ///< or the f32 partial sums: [slice][row][ldc]
  Field<Side, Val<u32>> m, n, k;
  Field<Side, Val<u64>> lda, ldb, ldc, stride_a, stride_b, stride_c;
  Field<Side, Val<f32>> alpha, beta;
  Field<Side, Val<u32>> tiles_m, slice_k, paired;

  template <class F>
  void visit(F&& f) {
    f(a, b, c, m, n, k, lda, ldb, ldc, stride_a, stride_b, stride_c, alpha, beta, tiles_m, slice_k, paired);
  }
};

void gemm_misaligned_kernel(Kernel& k, MisalignedBuild b) {
  const auto p = declare_params<MisalignedParams<OnDevice>>(k);
  const auto& t = b.tile;

  k.block(kThreads);
  const auto batch = to<u64>(k.ctaid_z());
  const auto m0 = k.ctaid_x() % *p.tiles_m * std::uint32_t(t.rows),
             n0 = k.ctaid_x() / *p.tiles_m * std::uint32_t(t.cols);
  MisalignedPanel pa(k, !b.trans_a, t.rows, t.depth(), b.wide_a),
      pb(k, b.trans_b, t.cols, t.depth(), b.wide_b);
  pa.source(p.a->at(batch * *p.stride_a).address(), *p.lda, m0, *p.m);
  pb.source(p.b->at(batch * *p.stride_b).address(), *p.ldb, n0, *p.n);
  const int bytes_a = pa.tile().bytes(), stage = bytes_a + pb.tile().bytes();
  const auto smem = k.smem_addr(k.smem(std::max(2 * stage, t.warps_k * t.rows * staging_pitch(t) * 4), 1024));
  const auto first = k.ctaid_y() * *p.slice_k, end = dsl::min(*p.k, first + *p.slice_k);

  // This warp's part of a stage.
  const auto warp = divided(k.tid(), 32);
  const auto wk = divided(warp, t.warps_m * t.warps_n), in_k = remainder(warp, t.warps_m * t.warps_n);
  const auto wm = remainder(in_k, t.warps_m), wn = divided(in_k, t.warps_m);
  const auto lanes = [&](const MisalignedPanel& p, Operand which, const Val<u32>& from) {
    const int slice = p.major() == Major::k ? p.tile().panel_bytes() : kSlice * p.tile().span();
    return DynWarpProduct::lane_offset(k, which, p.major(), p.tile(), from) + times(wk, slice);
  };
  const auto lane_a = lanes(pa, Operand::a, times(wm, t.warp_rows())),
             lane_b = lanes(pb, Operand::b, times(wn, t.warp_cols()));
  DynWarpProduct product(k, b.type, t.warp_rows(), t.warp_cols(), {pa.tile(), pa.major(), lane_a},
                         {pb.tile(), pb.major(), lane_b});
  const auto fill = [&](const Val<u32>& base, const MisalignedPanel::Held& x,
                        const MisalignedPanel::Held& y) {
    pa.store(base, x), pb.store(base + std::uint32_t(bytes_a), y);
  };
  fill(smem, pa.load(first, end), pb.load(first, end));
  k.sync();
  const auto depth = std::uint32_t(t.depth());
  k.loop(range(first, end, Val<u32>(depth)), keep_uniform(smem * 0u), [&](Val<u32> from, Val<u32> now) {
    const auto then = Val<u32>(std::uint32_t(stage)) - now;
    const auto x = pa.load(from + depth, end), y = pb.load(from + depth, end);
    product.add(smem + now, 0, bytes_a, kSlice / 16);
    fill(smem + then, x, y);
    k.sync();
    return then;
  });

  // Nobody reads the last stage any more: the accumulators meet there, and slices of K are added in their order.
  const auto met = Ptr<shared, f32>(smem);
  const auto& accumulators = product.values();
  const int pitch = staging_pitch(t);
  const auto origin = DynWarpProduct::origin(k);
  const auto warp_tile = times(wk, t.rows * pitch) + times(times(wm, t.warp_rows()) + origin.row, pitch) +
                         times(wn, t.warp_cols()) + origin.col;
  const int across = t.warp_cols() / 8;
  for (int i = 0; i < t.warp_rows() / 16; ++i)
    for (int j = 0; j < across; ++j)
      for (int h = 0; h < 2; ++h) {
        const auto at = std::size_t((i * across + j) * 4 + 2 * h);
        const int offset = (16 * i + 8 * h) * pitch + 8 * j;
        met.at(warp_tile).at(offset).template st<2>(
            0, RegGroup<f32, 2>::from({accumulators[at], accumulators[at + 1]}));
      }
  k.sync();
  const MisalignedOutput place{
      p.c->at(b.partial ? to<u64>(k.ctaid_y()) * *p.stride_c * 2u : batch * *p.stride_c).address(),
      *p.ldc,
      *p.m,
      *p.n,
      m0,
      n0,
      *p.paired,
      *p.alpha,
      *p.beta};
  b.type == ptx::Mod::f16 ? misaligned_store<f16>(k, b, met, place)
                          : misaligned_store<bf16>(k, b, met, place);
}

// ---------------------------------------------------------------- one row of A
// K contiguous in B: a warp for each column of C. Else lanes are columns and 32 warps share K. B is read
// once, an element an access, 16 of them in flight for each thread.
constexpr int kRowFlight = 16;

struct RowBuild {
  bool f16, k_contiguous;
  bool dense;  ///< the row of A
  int warps() const { return k_contiguous ? 8 : 32; }
};

template <class T>
void gemm_row(Kernel& k, const RowBuild& how, const In<T>& a, const In<T>& b, const InOut<T>& c,
              const Val<u32>& n, const Val<u32>& kk, const Val<u64>& a_step, const Val<u64>& ldb,
              const Val<f32>& alpha, const Val<f32>& beta) {
  auto warp = k.warp();
  const auto lane = warp.lane();
  const auto col = how.k_contiguous ? k.ctaid_x() * 8u + warp.index : k.ctaid_x() * 32u + lane;
  const auto inside = col < n;
  // Of a step of K this thread's first element, and from each to the next.
  const auto first = how.k_contiguous ? lane + 0u : warp.index * std::uint32_t(kRowFlight);
  const std::uint32_t each = how.k_contiguous ? 32 : 1, step = 512;
  const auto start = how.k_contiguous ? b.at(to<u64>(col) * ldb) : b.at(to<u64>(col));
  const auto sum =
      k.loop(range(Val<u32>(0), kk, Val<u32>(step)), Val<f32>(0.f), [&](Val<u32> from, Val<f32> sum) {
        const auto begin = to<u64>(from + first);
        // Neighbours along K are an offset, others the next pointer.
        std::vector<In<T>> next_b{start.at(how.k_contiguous ? begin : begin * ldb)},
            next_a{a.at(how.dense ? begin : begin * a_step)};
        std::vector<Val<T>> of_b, of_a;
        for (int i = 0; i < kRowFlight; ++i) {
          const auto have = inside & (from + first + std::uint32_t(i) * each < kk);
          const int along = i * int(each);
          of_b.push_back(
              next_b.back().template ld_if<1, nc>(have, how.k_contiguous ? along : 0, Val<T>(0.f))[0]);
          of_a.push_back(next_a.back().template ld_if<1, nc>(have, how.dense ? along : 0, Val<T>(0.f))[0]);
          if (!how.k_contiguous) next_b.push_back(next_b.back().at(ldb));
          if (!how.dense) next_a.push_back(next_a.back().at(a_step * each));
        }
        std::vector<Val<f32>> chain{sum};
        for (int i = 0; i < kRowFlight; ++i)
          chain.push_back(fma(to<f32>(of_a[std::size_t(i)]), to<f32>(of_b[std::size_t(i)]), chain.back()));
        return chain.back();
      });
  const auto put = [&](const Val<pred>& writes, const Val<f32>& total) {
    k.if_(writes, [&] {
      const auto old = k.if_(
          beta == 0.f, [&] { return Val<f32>(0.f); }, [&] { return to<f32>(c.ld(col)) * beta; });
      c.st(col, to<T>(fma(total, alpha, old)));
    });
  };
  if (how.k_contiguous) {
    const auto total = reduce(warp, sum, [](const Val<f32>& x, const Val<f32>& y) { return x + y; });
    return put(inside & (lane == 0u), total);
  }
  const auto met = k.shared<f32>(32 * 32);
  met.st(warp.index * 32u + lane, sum);
  k.sync();
  k.if_(warp.index == 0u, [&] {
    std::vector<Val<f32>> total{met.ld(lane)};
    for (std::uint32_t w = 1; w < 32; ++w) total.push_back(total.back() + met.ld(lane + 32u * w));
    put(inside, total.back());
  });
}

void gemm_row_kernel(Kernel& k, RowBuild how, In<b16> a, In<b16> b, InOut<b16> c, Val<u32> n, Val<u32> kk,
                     Val<u64> a_step, Val<u64> ldb, Val<u64> stride_a, Val<u64> stride_b, Val<u64> stride_c,
                     Val<f32> alpha, Val<f32> beta) {
  k.block(32 * how.warps());
  k.min_blocks(how.k_contiguous ? 4 : 1);
  const auto batch = to<u64>(k.ctaid_z());
  const auto of_a = a.at(batch * stride_a), of_b = b.at(batch * stride_b);
  const auto of_c = c.at(batch * stride_c);
  const auto run = [&]<class T>(T) {
    gemm_row<T>(k, how, of_a.template as<T>(), of_b.template as<T>(), InOut<T>(of_c.template as<T>()), n, kk,
                a_step, ldb, alpha, beta);
  };
  how.f16 ? run(f16()) : run(bf16());
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

// Elements of an access that every row of a stored matrix, its length and its batches are multiples of.
int access_width(std::uint64_t address, std::uint64_t cols, std::uint64_t rows, std::uint64_t ld,
                 std::uint64_t stride, std::uint64_t batch) {
  const std::uint64_t all = address / 2 | cols | (rows > 1 ? ld : 0) | (batch > 1 ? stride : 0);
  return int(std::min<std::uint64_t>(8, all & (~all + 1)));
}

// Microseconds, fitted to 560 measurements of 38 problems (its favourite costs 0.5 % over the
// fastest): a stage takes the way from memory or what the accesses, elements and products of an SM's blocks
// take.
double predict_misaligned(const GemmProblem& p, const MisalignedTile& t, int wide_a, int wide_b, int slices,
                          const runtime::DeviceInfo& d) {
  const auto& m = gemm_calibration(d).misaligned;
  const double sms = gemm_sms(d);
  const double blocks = double(ceil_div(p.m, std::uint64_t(t.rows))) *
                        double(ceil_div(p.n, std::uint64_t(t.cols))) * double(p.batch) * slices;
  const double depth = t.depth(), accesses = depth * (double(t.rows) / wide_a + double(t.cols) / wide_b);
  const double work = accesses * m.access + depth * (t.rows + t.cols) * m.element +
                      depth * t.rows * t.cols * m.product + m.stage;
  const double each = std::ceil(blocks / sms), concurrent = std::min(each, 2.0);
  const double stages = std::ceil(std::ceil(double(p.k) / depth) / slices);
  const double time = m.launch + std::ceil(each / concurrent) * (stages + 0.5) *
                                     std::max(m.flight + accesses * m.flight_access, concurrent * work);
  const double bytes = 2.0 * double(p.batch) *
                       (double(p.m) * double(p.k) + double(p.n) * double(p.k) + double(p.m) * double(p.n));
  return std::max(time, m.latency + bytes / m.bytes_per_us) +
         (slices > 1 ? m.reduce + 8.0 * slices * double(p.m) * double(p.n) / m.partial_bytes_per_us : 0);
}

}  // namespace

GemmVariant gemm_misaligned(DType type, bool trans_a, bool trans_b, int tile, int wide_a, int wide_b,
                            int slices) {
  const auto& t = kMisalignedTiles[tile];
  const bool f16 = type == DType::f16;
  const GemmConfig config{.family = GemmFamily::misaligned,
                          .a = type,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = t.rows,
                          .tile_n = t.cols,
                          .tile_k = t.depth(),
                          .vec_a = 2 * wide_a,
                          .vec_b = 2 * wide_b,
                          .partial = slices > 1};
  return {variant(print(config), 80, gemm_misaligned_kernel,
                  {f16 ? ptx::Mod::f16 : ptx::Mod::bf16, trans_a, trans_b, t, wide_a, wide_b, slices > 1}),
          config};
}

GemmChoice choose_misaligned(const GemmProblem& p, const GemmAddresses& at, const runtime::DeviceInfo& d,
                             int tile, int slices) {
  const auto& t = kMisalignedTiles[tile];
  const int wide_a =
                access_width(at.a, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.stride_a, p.batch),
            wide_b =
                access_width(at.b, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.stride_b, p.batch);
  GemmChoice c{GemmFamily::misaligned,
               gemm_misaligned(p.type, p.trans_a, p.trans_b, tile, wide_a, wide_b, slices),
               {},
               std::uint32_t(t.cols)};
  c.tile_m = std::uint32_t(t.rows), c.tile_k = std::uint32_t(t.depth()), c.split_k = slices;
  c.microseconds = predict_misaligned(p, t, wide_a, wide_b, slices, d);
  c.why = text::cat("rows of any alignment through registers, tiles of ", t.rows, " x ", t.cols,
                    slices > 1 ? text::cat(", K in ", slices, " slices") : std::string(), ", predicted ",
                    std::lround(c.microseconds), " us");
  return c;
}

namespace {

GemmVariant gemm_row(DType type, bool trans_a, bool trans_b) {
  const GemmConfig config{.family = GemmFamily::misaligned,
                          .a = type,
                          .layout = gemm_layout(trans_a, trans_b),
                          .tile_m = 1,
                          .tile_n = trans_b ? 8 : 32};
  return {variant(print(config), 80, gemm_row_kernel, {type == DType::f16, trans_b, !trans_a}), config};
}

// One row of A, and a B whose rows are at odd elements: the fewest accesses under way decide.
GemmChoice choose_row(const GemmProblem& p, const runtime::DeviceInfo& d) {
  GemmChoice c{GemmFamily::misaligned, gemm_row(p.type, p.trans_a, p.trans_b), {}, p.trans_b ? 8u : 32u};
  const auto& m = gemm_calibration(d).misaligned;
  const double sms = gemm_sms(d), bytes = 2.0 * double(p.batch) * double(p.n) * double(p.k);
  const double blocks = std::ceil(double(p.n) / c.tile_n) * double(p.batch), together = p.trans_b ? 6 : 1;
  const double steps = std::ceil(double(p.k) / 512) * std::ceil(blocks / (together * sms));
  c.tile_m = 1,
  c.microseconds = std::max(m.latency + m.row_step * steps, m.latency + bytes / m.row_bytes_per_us);
  c.why =
      text::cat("one row of A, rows of B of any alignment, predicted ", std::lround(c.microseconds), " us");
  return c;
}

void run_gemm_row(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                  const GemmAddresses& at) {
  const auto fn = load(s.device(), choice.variant);
  auto grid = runtime::grid_for(ceil_div(p.n, choice.tile_n), 1);
  grid.z = std::uint32_t(p.batch);
  fn(s, grid, runtime::Arg::address(at.a), runtime::Arg::address(at.b), runtime::Arg::address(at.c),
     std::uint32_t(p.n), std::uint32_t(p.k), p.trans_a ? p.lda : std::uint64_t(1), p.ldb, p.stride_a,
     p.stride_b, p.stride_c, p.alpha, p.beta);
}

}  // namespace

std::vector<GemmChoice> gemm_misaligned_candidates(const GemmProblem& q, const GemmAddresses& at,
                                                   const runtime::DeviceInfo& d) {
  const GemmProblem p = q.dense();
  std::vector<GemmChoice> out;
  if (!reject(GemmFamily::misaligned, p, at, d).empty()) return out;
  const double sms = gemm_sms(d);
  if (p.m == 1 && p.n <= 0x7fffffffull &&
      access_width(at.b, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.stride_b, p.batch) == 1)
    out.push_back(choose_row(p, d));
  for (int i = 0; i < 4; ++i) {
    const auto& t = kMisalignedTiles[i];
    const double tiles = double(ceil_div(p.m, std::uint64_t(t.rows))) *
                         double(ceil_div(p.n, std::uint64_t(t.cols))) * double(p.batch);
    const auto stages = ceil_div(p.k, std::uint64_t(t.depth()));
    std::optional<GemmChoice> split;
    for (int slices : {1, 2, 4, 8, 16}) {
      const bool fits = slices == 1 || (p.batch == 1 && d.cc() >= 90 && stages >= std::uint64_t(2 * slices) &&
                                        tiles * slices <= 8 * sms && p.m * ceil_div(p.n, 4) <= 0x7fffffffull);
      if (!fits) continue;
      auto c = choose_misaligned(p, at, d, i, slices);
      if (slices == 1)
        out.push_back(std::move(c));
      else if (!split || c.microseconds < split->microseconds)
        split = std::move(c);
    }
    if (split) out.push_back(std::move(*split));
  }
  return out;
}

void run_gemm_misaligned(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                         const GemmAddresses& at) {
  if (choice.tile_m == 1) return run_gemm_row(s, choice, p, at);
  const std::uint64_t tm = ceil_div(p.m, choice.tile_m), tn = ceil_div(p.n, choice.tile_n);
  const auto fn = load(s.device(), choice.variant);
  const auto slices = std::uint64_t(choice.split_k), depth = std::uint64_t(choice.tile_k);
  auto grid = runtime::grid_for(tm * tn, 1);
  grid.y = std::uint32_t(slices), grid.z = std::uint32_t(p.batch);
  const auto each = ceil_div(ceil_div(p.k, depth), slices) * depth, quads = ceil_div(p.n, 4);
  const auto word = [](std::uint64_t v) { return std::uint32_t(v); };
  const bool paired =
      p.n % 2 == 0 && p.ldc % 2 == 0 && (p.batch == 1 || p.stride_c % 2 == 0) && at.c % 4 == 0;
  MisalignedParams<OnHost> args;
  args.a = at.a, args.b = at.b, args.c = at.c, args.m = word(p.m), args.n = word(p.n), args.k = word(p.k);
  args.lda = p.lda, args.ldb = p.ldb, args.ldc = slices > 1 ? quads * 4 : p.ldc;
  args.stride_a = p.stride_a, args.stride_b = p.stride_b;
  args.stride_c = slices > 1 ? p.m * quads * 4 : p.stride_c;
  args.alpha = p.alpha, args.beta = p.beta;
  args.tiles_m = word(tm), args.slice_k = word(each), args.paired = word(paired);
  launch(s, fn, grid, args);
}

}  // namespace cgp::kernels
