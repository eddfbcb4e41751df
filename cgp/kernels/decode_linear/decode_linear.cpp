// SPDX-License-Identifier: Apache-2.0
// decode_linear: every byte of the weights once, straight from global memory into the fragments of mma.sync.
//   who      a block owns 16 rows of one weight (32 of a long one; gated: 16 of each of both); its 8 warps share K
//   memory   lane 4 g + q has rows g and g + 8 and reads 16 bytes of each: 8 neighbours of K, which are the pairs
//            of two steps of mma. Both operands use the same order of K, so it does not matter. Weights bypass L1.
//            x comes from L1, or, normalised, from shared memory (rows 64 bytes apart from multiples of 128: no
//            bank conflicts)
//   sync     the first weights are asked for before anything else; then the norm (a warp a row), one barrier;
//            one more at the end, where the accumulators of the warps are added in the order of the warps
//   launch   pdl: the first weights are asked for before the work queued before this has ended. x is then not
//            constant: a kernel that ran beside the one before may have left old lines of it in L1, which
//            ld.nc would find
//   ranks    each thread sends its element's sum to all ranks and adds theirs (collective/exchange.h, LowLatency). Blocks wait
//            for those of the other ranks, so all of a launch must fit on the GPU at once
//   needs    sm_80; k a multiple of 8, everything at multiples of 16 bytes
#include "cgp/kernels/decode_linear/decode_linear.h"

#include <algorithm>
#include <array>
#include <bit>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/kernel.h"
#include "cgp/dsl/mma/mma.h"
#include "cgp/kernels/activation/activation_code.h"
#include "cgp/kernels/collective/exchange.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kWarps = 8, kColumns = 8;
constexpr std::uint64_t kLong = 16384;  // from so many rows of a weight on, a block owns 32 of them

template <template <class> class V>
struct DecodeLinearParams {
  V<u64> x, x_pitch, y, y_pitch, residual, residual_pitch, norm_weight, norm_bias;
  V<u64> w0, w1, w2, b0, b1, b2, prefetch0, prefetch1, table;
  V<u32> m, n0, n1, n2;
  V<u32> end0, end1;      ///< blocks of the first weight, of the first two
  V<u32> lines0, lines1;  ///< of 128 bytes to prefetch
  V<u32> rank;
  V<f32> eps, weight_offset;
};

template <class T, int Rows>
class Product {
 public:
  using Words = RegGroup<b32, 4>;
  using Sum = WarpAcc<f32, Rows, kColumns>;

  Product(Kernel& k, const DecodeLinearConfig& b, const DecodeLinearParams<Val>& p)
      : k_(k),
        b_(b),
        p_(p),
        warp_(k.warp()),
        group_(warp_.lane() / 4u),
        quad_(warp_.lane() % 4u),
        own_(choose()),
        partial_(k.shared<f32>(kWarps * Rows * kColumns, 128)) {
    for (int i = 0; i < Rows / 8; ++i) {
      const bool second = b_.gated && i >= Rows / 16;
      const auto row = own_.first + group_ + std::uint32_t(8 * (second ? i - Rows / 16 : i));
      inside_.push_back(row < own_.n);
      at_.push_back(In<b32>((second ? p.w1 : own_.weight) + to<u64>(row) * std::uint64_t(2 * b_.k), 0, true));
    }
    if (b_.norm != DecodeLinearNorm::none) normed_.push_back(k.shared<b32>(b_.rows * pitch() * 4, 128));
  }

  void run() {
    const auto first = weights(start());
    if (b_.pdl && k_.sm() >= 90) {
      if (b_.prefetch) prefetch_weights(p_.prefetch0, p_.lines0), prefetch_weights(p_.prefetch1, p_.lines1);
      griddepcontrol_launch_dependents(k_);
      griddepcontrol_wait(k_);
    }
    if (b_.ranks > 1) of_ranks_.emplace(k_, b_.ranks, In<u64>(p_.table, 0, true), p_.rank);
    if (b_.norm != DecodeLinearNorm::none) {
      normalise();
      k_.sync();
    }
    auto sum = multiply_batch(zeros<f32, Rows, kColumns>(warp_), start(), first);
    const std::uint32_t step = std::uint32_t(batch() * kWarps);
    if (accesses() <= int(step)) return finish(sum);
    const auto rest = range(start() + step, Val<u32>(std::uint32_t(accesses())), Val<u32>(step));
    finish(k_.loop(rest, std::move(sum), [&](Val<u32> base, Sum now) {
      return multiply_batch(std::move(now), base, weights(base));
    }));
  }

 private:
  struct WeightRows {
    Val<u64> weight, bias;
    Val<u32> n, first, column;  // rows of this weight; the block's first; the weight's first column of y
  };
  WeightRows choose() {
    const auto block = k_.ctaid_x();
    if (!b_.several)
      return {p_.w0, p_.b0, p_.n0, block * std::uint32_t(b_.gated ? Rows / 2 : Rows), Val<u32>(0)};
    const Val<pred> second = block >= p_.end0, third = block >= p_.end1;
    const auto of = [&](const auto& a, const auto& b, const auto& c) {
      return select(third, c, select(second, b, a));
    };
    return {of(p_.w0, p_.w1, p_.w2), of(p_.b0, p_.b1, p_.b2), of(p_.n0, p_.n1, p_.n2),
            (block - of(Val<u32>(0), p_.end0, p_.end1)) * std::uint32_t(Rows),
            of(Val<u32>(0), p_.n0, p_.n0 + p_.n1)};
  }
  void prefetch_weights(const Val<u64>& from, const Val<u32>& lines) {
    const std::uint32_t threads = 32 * kWarps;
    k_.loop(range(k_.ctaid_x() * threads + k_.tid(), lines, k_.nctaid_x() * threads),
            [&](Val<u32> line) { prefetch<L2>(Out<b8>(from), to<u64>(line) * std::uint64_t(128)); });
  }
  // K counted in accesses of 8 elements; a warp takes a batch of them, then the next warp.
  int accesses() const { return b_.k / 8; }
  int unroll() const {
    return std::min(Rows == 16 ? 8 : 4, std::max(1, (accesses() + 4 * kWarps - 1) / (4 * kWarps)));
  }
  int batch() const { return 4 * unroll(); }
  int pitch() const { return b_.k / 8 + 4; }  // of normalised rows, in accesses
  Val<u32> start() { return warp_.index * std::uint32_t(batch()); }
  Val<u32> access(const Val<u32>& base, int u) { return base + quad_ + std::uint32_t(4 * u); }

  std::vector<std::vector<Words>> weights(const Val<u32>& base) {
    std::vector<std::vector<Words>> out;
    for (int u = 0; u < unroll(); ++u) {
      const auto a = access(base, u);
      const Val<pred> there = a < std::uint32_t(accesses());
      out.emplace_back();
      for (std::size_t i = 0; i < at_.size(); ++i)
        out.back().push_back(at_[i].template ld_if<4, nc, no_allocate>(inside_[i] & there, a, Val<b32>(0)));
    }
    return out;
  }
  Words inputs(const Val<u32>& a) {
    const Val<pred> there = (group_ < p_.m) & (a < std::uint32_t(accesses()));
    if (!normed_.empty())
      return normed_[0].template ld_if<4>(there, group_ * std::uint32_t(pitch()) + a, Val<b32>(0));
    return In<b32>(p_.x + to<u64>(group_) * p_.x_pitch * 2u, 0, !b_.pdl)
        .template ld_if<4>(there, a, Val<b32>(0));
  }
  Sum multiply_batch(Sum acc, const Val<u32>& base, const std::vector<std::vector<Words>>& w) {
    std::vector<Words> x;
    for (int u = 0; u < unroll(); ++u) x.push_back(inputs(access(base, u)));
    std::vector<Sum> totals;
    totals.push_back(std::move(acc));
    for (std::size_t u = 0; u < w.size(); ++u)
      for (int half = 0; half < 4; half += 2) {
        std::vector<FragA<T, 16, 16>> rows;
        for (std::size_t r = 0; r < w[u].size(); r += 2)
          rows.push_back(
              FragA<T, 16, 16>({w[u][r][half], w[u][r + 1][half], w[u][r][half + 1], w[u][r + 1][half + 1]}));
        const std::vector<FragB<T, 16, 8>> columns{FragB<T, 16, 8>({x[u][half], x[u][half + 1]})};
        totals.push_back(multiply<T>(warp_, std::move(totals.back()), rows, columns));
      }
    return std::move(totals.back());
  }

  // ------------------------------------------------------------ norm: kWarps / rows warps a row
  // Rows are read again in every pass: from L1, instead of registers that the first weights need.
  std::vector<Val<f32>> floats(const Words& w) {
    std::vector<Val<f32>> out;
    for (int i = 0; i < 4; ++i) {
      const auto two = unpack<T>(w[i]);
      out.push_back(to<f32>(two[0])), out.push_back(to<f32>(two[1]));
    }
    return out;
  }
  int share() const { return kWarps / b_.rows; }
  /// The mean of f(element) over the row, by all warps of it; `slot` counts the calls.
  template <class F>
  Val<f32> mean(const Val<u32>& row, const In<b32>& x, int slot, F&& f) {
    const auto sum = k_.loop(columns_of_lane(row), Val<f32>(0), [&](Val<u32> at, Val<f32> now) {
      std::vector<Val<f32>> totals{now};
      for (const auto& v : floats(x.template ld<4>(at))) totals.push_back(totals.back() + f(v));
      return totals.back();
    });
    const auto add = [](const Val<f32>& a, const Val<f32>& b) { return a + b; };
    const auto of_warp = reduce(warp_, sum, add);
    std::vector<Val<f32>> all{of_warp};
    if (share() > 1) {
      const auto part = partial_.at(kWarps * slot);
      part.st(warp_.index, of_warp);
      k_.sync();
      const auto first = warp_.index / std::uint32_t(share()) * std::uint32_t(share());
      for (int i = 0; i < share(); ++i)
        all.push_back(i ? all.back() + part.ld(first + std::uint32_t(i)) : part.ld(first));
    }
    return all.back() * (1.0f / float(b_.k));
  }
  /// Of a row beyond m: none.
  Range<u32> columns_of_lane(const Val<u32>& row) {
    const auto first = warp_.index % std::uint32_t(share()) * 32u + warp_.lane();
    return range(first, select(row < p_.m, Val<u32>(std::uint32_t(accesses())), Val<u32>(0)),
                 Val<u32>(std::uint32_t(32 * share())));
  }
  void normalise() {
    const auto row = warp_.index / std::uint32_t(share());
    const In<b32> x(p_.x + to<u64>(row) * p_.x_pitch * 2u, 0, !b_.pdl), weight(p_.norm_weight, 0, true),
        bias(p_.norm_bias, 0, true);
    const bool layer = b_.norm == DecodeLinearNorm::layer;
    const auto centre = layer ? mean(row, x, 0, [](const Val<f32>& v) { return v; }) : Val<f32>(0);
    const auto squares = mean(row, x, 1, [&](const Val<f32>& v) {
      const auto d = layer ? v - centre : v;
      return d * d;
    });
    const auto rstd = rsqrt<approx>(squares + p_.eps);
    k_.loop(columns_of_lane(row), [&](Val<u32> at) {
      const auto v = floats(x.template ld<4>(at)), w = floats(weight.template ld<4>(at));
      const auto c = layer ? floats(bias.template ld<4>(at)) : w;
      const auto value = [&](int i) {
        const auto n = std::size_t(i);
        const auto scaled = (layer ? v[n] - centre : v[n]) * rstd, factor = w[n] + p_.weight_offset;
        return layer ? fma(scaled, factor, c[n]) : scaled * factor;
      };
      const auto word = [&](int i) { return dsl::pack<T>(value(2 * i), value(2 * i + 1)); };
      normed_[0].template st<4>(row * std::uint32_t(pitch()) + at,
                                RegGroup<b32, 4>(word(0), word(1), word(2), word(3)));
    });
  }

  // ------------------------------------------------------------ results
  void finish(const Sum& sum) {
    for (int i = 0; i < Sum::count; ++i)
      partial_.st((warp_.index * std::uint32_t(Sum::count) + std::uint32_t(i)) * 32u + warp_.lane(), sum[i]);
    k_.sync();
    constexpr int outputs = Rows * kColumns;
    const std::uint32_t rows = std::uint32_t(b_.gated ? Rows / 2 : Rows);
    const auto store = [&] {
      const auto row = k_.tid() % rows, column = k_.tid() / rows, at = own_.first + row;
      const Val<pred> there = (column < p_.m) & (at < own_.n);
      const auto a = b_.activation == Activation::identity
                         ? total(row, column, at, there, 0)
                         : activation_code(b_.activation, total(row, column, at, there, 0));
      const auto v = b_.gated ? a * total(row, column, at, there, 1) : a;
      const auto place = to<u64>(own_.column + at);
      if (!b_.residual) return Out<T>(p_.y).st_if(there, to<u64>(column) * p_.y_pitch + place, to<T>(v));
      const auto r =
          Out<T>(p_.residual).ld_if(there, to<u64>(column) * p_.residual_pitch + place, Val<T>(0))[0];
      Out<T>(p_.y).st_if(there, to<u64>(column) * p_.y_pitch + place, to<T>(v + to<f32>(r)));
    };
    if (int(rows) * kColumns < 32 * kWarps)
      k_.if_(k_.tid() < rows * std::uint32_t(kColumns), store);
    else
      store();
    static_assert(outputs <= 32 * kWarps);
    if (of_ranks_) of_ranks_->end();
  }
  /// Element (row, column) of this block's product with the first or the second weight, with its bias.
  Val<f32> total(const Val<u32>& row, const Val<u32>& column, const Val<u32>& at, const Val<pred>& there,
                 int which) {
    const auto r = row + std::uint32_t(which * Rows / 2);
    const auto lane = r % 8u * 4u + column / 2u;
    const auto reg = r / 16u * 4u + r / 8u % 2u * 2u + column % 2u;
    std::vector<Val<f32>> sum;
    for (int w = 0; w < kWarps; ++w) {
      const auto part = partial_.ld((reg + std::uint32_t(w * Sum::count)) * 32u + lane);
      sum.push_back(w ? sum.back() + part : part);
    }
    if (of_ranks_) {
      const auto columns = b_.gated ? p_.n0 : p_.n0 + p_.n1 + p_.n2;
      const auto line = column + p_.m * std::uint32_t(which);
      sum.push_back(of_ranks_->sum(sum.back(), line * columns + own_.column + at, there));
    }
    if (!b_.bias) return sum.back();
    const In<T> bias(which ? p_.b1 : own_.bias, 0, true);
    return sum.back() + to<f32>(bias.ld_if(there, at, Val<T>(0))[0]);
  }

  Kernel& k_;
  const DecodeLinearConfig& b_;
  const DecodeLinearParams<Val>& p_;
  Warp warp_;
  Val<u32> group_, quad_;
  WeightRows own_;
  Ptr<shared, f32> partial_;
  std::vector<Ptr<shared, b32>> normed_;  // one, or none
  std::vector<In<b32>> at_;
  std::vector<Val<pred>> inside_;
  std::optional<LowLatency> of_ranks_;
};

template <class T, int Rows>
void decode_linear_kernel(Kernel& k, DecodeLinearConfig c, DecodeLinearParams<Val> p) {
  k.block(32 * kWarps);
  Product<T, Rows>(k, c, p).run();
}

bool is_long(const DecodeLinear& p) {
  return p.gated || (p.all && p.columns() >= 4096) ||  // fewer blocks: all of them must be on the GPU at once
         std::any_of(p.weights.begin(), p.weights.end(), [](const auto& w) { return w.n >= kLong; });
}

}  // namespace

std::uint64_t DecodeLinear::columns() const {
  std::uint64_t n = 0;
  for (const auto& w : weights) n += w.n;
  return gated ? n / 2 : n;
}

std::string reject(const DecodeLinear& p) {
  if (p.type != DType::f16 && p.type != DType::bf16)
    return text::cat("type = ", name(p.type), ": it must be f16 or bf16");
  if (p.m > kMostDecodeLinearRows)
    return text::cat("m = ", p.m, ": 0 to ", kMostDecodeLinearRows, " rows are possible");
  if (!p.k || p.k % 8 || p.k > 0xfffff) return text::cat("k = ", p.k, " is no multiple of 8 from 8 to 2^20");
  if (p.weights.empty() || p.weights.size() > 3)
    return text::cat(p.weights.size(), " weights; 1 to 3 are possible");
  if (p.gated && (p.weights.size() != 2 || p.weights[0].n != p.weights[1].n))
    return "gated needs two weights of one shape";
  for (const auto& w : p.weights) {
    if (!w.address || w.address % 16 || w.n > 0x7fffffff)
      return "weights must lie at multiples of 16 bytes and have less than 2^31 rows";
    if (!w.bias != !p.weights[0].bias) return "all weights must have a bias, or none";
  }
  if (!p.x || p.x % 16 || p.x_pitch % 8) return "x and its rows must lie at multiples of 16 bytes";
  if (!p.y) return "y is not given";
  for (const auto& a : p.prefetch)
    if (a.address % 128 || a.bytes / 128 > 0x7fffffff)
      return "memory to prefetch must begin at multiples of 128 bytes";
  if (p.all) {
    if (p.rank < 0 || p.rank >= p.all->size())
      return text::cat("rank = ", p.rank, ": there are ", p.all->size(), " ranks");
    if (p.norm != DecodeLinearNorm::none)
      return "norm: a rank has a part of each row, which it cannot normalise";
    if (const auto values = p.m * p.columns() * (p.gated ? 2 : 1); values > kLowLatencyElements)
      return text::cat(values, " values; ranks exchange at most ", kLowLatencyElements, " in one launch");
  }
  if (p.norm == DecodeLinearNorm::none) return {};
  if (p.k > kMostNormedColumns)
    return text::cat("k = ", p.k, ": rows of at most ", kMostNormedColumns, " are normalised");
  if (!p.norm_weight || p.norm_weight % 16)
    return "norm_weight must be given and lie at a multiple of 16 bytes";
  if (p.norm == DecodeLinearNorm::layer && (!p.norm_bias || p.norm_bias % 16))
    return "norm_bias must be given and lie at a multiple of 16 bytes";
  return {};
}

DecodeLinearConfig DecodeLinearConfig::of(const DecodeLinear& p) {
  DecodeLinearConfig c;
  c.type = p.type, c.k = int(p.k), c.norm = p.norm, c.activation = p.activation;
  c.several = p.weights.size() > 1 && !p.gated, c.gated = p.gated, c.rows32 = is_long(p);
  c.bias = p.weights[0].bias != 0, c.residual = p.residual != 0, c.pdl = p.pdl;
  c.prefetch = p.pdl && (p.prefetch[0].bytes || p.prefetch[1].bytes);
  c.ranks = p.all ? p.all->size() : 1;
  if (p.norm != DecodeLinearNorm::none) c.rows = int(std::bit_ceil(std::max<std::uint64_t>(p.m, 1)));
  return c;
}
Variant decode_linear_variant(const DecodeLinearConfig& c) {
  const auto make = [&](auto fn) { return variant(c.name(), 80, fn, c); };
  if (c.type == DType::f16)
    return c.rows32 ? make(decode_linear_kernel<f16, 32>) : make(decode_linear_kernel<f16, 16>);
  return c.rows32 ? make(decode_linear_kernel<bf16, 32>) : make(decode_linear_kernel<bf16, 16>);
}

std::vector<Variant> decode_linear_variants() {
  std::vector<Variant> all;
  const auto add = [&](auto&& change) {
    DecodeLinear p;
    p.k = 2048, p.weights = {{16, 0, 64}};
    change(p);
    all.push_back(decode_linear_variant(DecodeLinearConfig::of(p)));
  };
  add([](DecodeLinear& p) { p.residual = 16, p.pdl = true, p.prefetch[0] = {128, 256}; });
  add([](DecodeLinear& p) { p.k = 8192, p.residual = 16, p.type = DType::f16; });
  add([](DecodeLinear& p) { p.norm = DecodeLinearNorm::rms, p.weights.resize(3), p.pdl = true; });
  add([](DecodeLinear& p) {
    p.norm = DecodeLinearNorm::rms, p.weights.resize(2), p.gated = true, p.activation = Activation::silu,
    p.pdl = true;
  });
  add([](DecodeLinear& p) {
    p.norm = DecodeLinearNorm::layer, p.k = 768, p.weights[0].bias = 16, p.activation = Activation::gelu_tanh;
  });
  add([](DecodeLinear& p) { p.norm = DecodeLinearNorm::rms, p.k = 4096, p.m = 8, p.weights[0].n = kLong; });
  for (const bool gated : {false, true}) {
    DecodeLinearConfig c;
    c.k = 2048, c.residual = true, c.pdl = true, c.ranks = gated ? kMostRanks : 2, c.gated = gated,
    c.rows32 = gated;
    all.push_back(decode_linear_variant(c));
  }
  return all;
}

namespace {

/// Blocks of the first weight, of the first two, of all.
std::array<std::uint32_t, 3> block_ends(const DecodeLinear& p) {
  const std::uint64_t rows = p.gated || !is_long(p) ? 16 : 32;
  std::array<std::uint32_t, 3> ends{};
  std::uint32_t blocks = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (i < (p.gated ? 1 : p.weights.size())) blocks += std::uint32_t((p.weights[i].n + rows - 1) / rows);
    ends[i] = blocks;
  }
  return ends;
}
std::uint32_t blocks_at_once(const DecodeLinear& p) {
  const auto& device = p.all->device(p.rank);
  const auto fn = load(device, decode_linear_variant(DecodeLinearConfig::of(p)));
  return p.all->blocks(std::uint32_t(fn.blocks_per_sm({32 * kWarps, 1, 1}) * device.info().sm_count));
}

}  // namespace

bool fits_at_once(const DecodeLinear& p) {
  return !p.all || p.all->size() == 1 || block_ends(p)[2] <= blocks_at_once(p);
}

void decode_linear(runtime::Stream& s, const DecodeLinear& p) {
  if (auto why = reject(p); !why.empty()) throw ArgumentError(text::cat("decode_linear: ", why));
  const std::uint64_t columns = p.columns();
  if (!p.m || !columns) return;
  const auto [end0, end1, grid] = block_ends(p);
  DecodeLinear::Weight w[3];
  std::copy(p.weights.begin(), p.weights.end(), w);
  const auto pitch = [](std::uint64_t given, std::uint64_t dense) { return given ? given : dense; };
  const auto u32 = [](std::uint64_t v) { return std::uint32_t(v); };
  const DecodeLinearParams<HostValue> n{.x = p.x,
                                        .x_pitch = pitch(p.x_pitch, p.k),
                                        .y = p.y,
                                        .y_pitch = pitch(p.y_pitch, columns),
                                        .residual = p.residual,
                                        .residual_pitch = pitch(p.residual_pitch, columns),
                                        .norm_weight = p.norm_weight,
                                        .norm_bias = p.norm_bias,
                                        .w0 = w[0].address,
                                        .w1 = w[1].address,
                                        .w2 = w[2].address,
                                        .b0 = w[0].bias,
                                        .b1 = w[1].bias,
                                        .b2 = w[2].bias,
                                        .prefetch0 = p.prefetch[0].address,
                                        .prefetch1 = p.prefetch[1].address,
                                        .table = p.all ? runtime::arg(p.all->table(p.rank)).word : 0,
                                        .m = u32(p.m),
                                        .n0 = u32(w[0].n),
                                        .n1 = u32(w[1].n),
                                        .n2 = u32(w[2].n),
                                        .end0 = end0,
                                        .end1 = end1,
                                        .lines0 = u32(p.prefetch[0].bytes / 128),
                                        .lines1 = u32(p.prefetch[1].bytes / 128),
                                        .rank = u32(std::uint64_t(p.rank)),
                                        .eps = p.eps,
                                        .weight_offset = p.weight_offset};
  if (p.all && p.all->size() > 1) {
    if (!(s.device() == p.all->device(p.rank)))
      throw ArgumentError(text::cat("decode_linear: rank = ", p.rank, ": the stream is of another device"));
    if (const auto at_once = blocks_at_once(p); grid > at_once)
      throw Unsupported({"decode_linear: ranks wait for each other, so all blocks must be on the GPU at once",
                         {},
                         text::cat(grid, " blocks for ", columns, " columns; ", at_once, " fit"),
                         "decode_linear without ranks, then all_reduce"});
  }
  const auto fn = load(s.device(), decode_linear_variant(DecodeLinearConfig::of(p)));
  fn(s, runtime::Launch{.grid = {grid}, .programmatic = p.pdl && s.device().info().cc() >= 90}, n);
}

}  // namespace cgp::kernels
