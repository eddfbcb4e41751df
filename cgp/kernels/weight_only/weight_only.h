// SPDX-License-Identifier: Apache-2.0
#pragma once
// y [m, n] = x [m, k] w', w [n, k] quantised and packed (weight_only_layout.h): 1 to 32 rows of x, as when a language
// model decodes. x and y: f16 or bf16. Codes are multiplied exactly; scales are applied to f32 sums of a group. The kernel
// can end with what follows a product in a language model (WeightOnlyEnd).
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/weight_only/weight_only_layout.h"

namespace cgp::kernels {

/// What becomes of the sums of x w'.
enum class WeightOnlyEnd : std::uint8_t {
  store,      ///< y = sum, rounded to the type
  store_f32,  ///< y = sum, f32
  add_f32,    ///< y += sum, f32: a residual stream
  /// y [m, n / 2] = f(gate) * up, rounded to the type once. Of each 16 rows of w the first 8 are rows of the gate, the others
  /// the same rows of up; n is a multiple of 16.
  gate
};

/// When a launch with `pdl` begins and when it lets the next one begin.
enum class WeightOnlyOrder : std::uint8_t {
  after,  ///< x is read once the work queued right before has ended; the next launch may begin at once
  first,  ///< the same, but the next launch begins only then: it may be `beside`
  /// x is read at once: the launch right before is `first` or `beside` and has the same x. This one ends after it.
  beside
};

/// How much of a multiprocessor's shared memory a block takes. Of products that follow each other, each beginning while the one
/// before runs (pdl), every other one is `larger`: there is room for a block of both, and for no second one of either, so
/// that every product has a block on every multiprocessor. One row of x; more take what they need.
enum class WeightOnlySpace : std::uint8_t { whole, smaller, larger };

struct WeightOnlyProblem {
  WeightFormat format = WeightFormat::q4_0;
  DType type = DType::bf16;  ///< of x and y: f16 or bf16
  std::uint64_t m = 1, n = 0, k = 0;
  std::uint64_t x = 0, ldx = 0;  ///< [m, k]; elements between rows, 0: dense; multiples of 16 bytes
  std::uint64_t w = 0;           ///< packed
  std::uint64_t y = 0, ldy = 0;  ///< [m, columns()]; elements between rows, 0: dense
  /// Programmatic dependent launch (sm_90): weights are asked for before the work queued right before has ended. That work
  /// must not write them.
  bool pdl = false;
  WeightOnlyEnd end = WeightOnlyEnd::store;
  Activation activation = Activation::identity;  ///< of a gate
  WeightOnlyOrder order = WeightOnlyOrder::after;
  WeightOnlySpace space = WeightOnlySpace::whole;
  /// f32 [k]; 0: none. x, one row, is f32 then and its RMSNorm with this weight is multiplied, rounded to the type:
  /// x / sqrt(mean(x^2) + eps) * norm.
  std::uint64_t norm = 0;
  float eps = 1e-6f;
  /// u32 [k], at a multiple of 16 bytes; 0: none. Column i of the packed weights is multiplied by column gather[i] of x: weights whose
  /// inputs were packed in another order (packed_inputs()). Not on wgmma, with a norm, or `beside`.
  std::uint64_t gather = 0;
  /// Experts of a mixture, on wgmma: 0 is one weight; else as many packed weights [n, k] one after the other, and group g has the rows of x
  /// and y from ends[g - 1] to ends[g], numbers of 32 (wide_ends: 64) bits on the device, as grouped_gemm has them. Rows behind the
  /// last end are left alone; m are all rows.
  std::uint64_t groups = 0, ends = 0;
  bool wide_ends = false;

  std::uint64_t columns() const { return end == WeightOnlyEnd::gate ? n / 2 : n; }  ///< of y
};
inline constexpr std::uint64_t kWeightOnlyMaxRows = 32;
/// What the choice of a config knows of a device.
struct WeightOnlyDevice {
  WeightOnlyDevice(int sms = 132) : sms(sms) {}  // NOLINT: an H200 with so many multiprocessors
  explicit WeightOnlyDevice(const runtime::DeviceInfo& d);
  int sms, cc = 90;
  int smem = 227 * 1024;  ///< bytes that a block can have
  /// Copies of weights are bulk copies; on sm_80 to sm_89 cp.async, without clusters and programmatic launches.
  bool bulk() const { return cc >= 90; }
};
/// Why it cannot run, naming the argument; empty: it can.
std::string reject(const WeightOnlyProblem& p, const WeightOnlyDevice& d = {});
/// Of the end of a product, and of its groups, on mma and on wgmma.
std::string reject_end(const WeightOnlyProblem& p);
std::string reject_group(const WeightOnlyProblem& p);

inline constexpr std::string_view kWeightOnlyEnds[] = {"", "f32", "add", "gate"};
inline constexpr std::string_view kWeightOnlyOrders[] = {"", "first", "beside"};
inline constexpr std::string_view kWeightOnlyActivations[] = {"", "relu", "silu", "gelu", "gelu_tanh"};

struct WeightOnlyConfig {
  DType type = DType::bf16;
  WeightFormat format = WeightFormat::q4_0;
  int k_tiles = 1;             ///< of 256 columns along K
  int rows = 1;                ///< of x: 1, 2, 4, 8, 16 or 32
  int cluster = 1;             ///< blocks that share K
  int warps = 16, share = 16;  ///< of a block; that share the block's part of K
  int y_tiles = 1;             ///< of 16 columns of y for each fragment of x: 1 or 2
  int slots = 2;               ///< of a warp's ring, a tile of weights (of each y tile) each
  int rounds = 1;              ///< of tiles of y between two additions of the parts of K
  int buffers = 1;             ///< of results; 1: there is one addition
  bool pdl = false;
  WeightOnlyEnd end = WeightOnlyEnd::store;
  Activation activation = Activation::identity;
  WeightOnlyOrder order = WeightOnlyOrder::after;
  bool norm = false;    ///< x is normalised when it is loaded
  int min_blocks = 1;   ///< to an SM
  int smem_kb = 0;      ///< of shared memory that a block takes (WeightOnlySpace); 0: what it needs
  bool pairs = false;   ///< numbers of two codes are looked up in shared memory: NF4, IQ4_NL
  bool gather = false;  ///< columns of x by index
  bool async = false;   ///< weights are copied by cp.async: sm_80 and later
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.choice("format", kWeightFormatNames, c.format), v.type("type", "", c.type),
        v.number("k_tiles", "k_tiles", c.k_tiles);
    v.number("rows", "rows", c.rows), v.number("cluster", "cluster", c.cluster);
    v.number("warps", "warps", c.warps), v.number("share", "share", c.share);
    v.number("y_tiles", "y_tiles", c.y_tiles), v.number("slots", "s", c.slots);
    v.number("rounds", "rounds", c.rounds), v.number("buffers", "buffers", c.buffers);
    v.flag("pdl", c.pdl);
    v.choice("end", kWeightOnlyEnds, c.end), v.choice("activation", kWeightOnlyActivations, c.activation);
    v.choice("order", kWeightOnlyOrders, c.order);
    v.flag("norm", c.norm), v.number("min_blocks", "blocks", c.min_blocks, 1);
    v.number("smem_kb", "smem", c.smem_kb, 0), v.flag("pairs", c.pairs), v.flag("gather", c.gather);
    v.flag("async", c.async);
  }
  int block_tiles() const { return (k_tiles + cluster - 1) / cluster; }  ///< of K, of a block
  int parts() const { return cluster * share; }                          ///< that K is cut into
  int row_bytes() const {
    return gather && rows == 1 ? 512 * k_tiles : 0;
  }  ///< of a row of x whose columns are gathered
  int smem_bytes() const;
};
/// Chooses `rounds` and `buffers` so that all fits into shared memory; false: nothing does.
bool weight_only_fit(WeightOnlyConfig& c, std::uint64_t n, const WeightOnlyDevice& d);
WeightOnlyConfig weight_only_config(const WeightOnlyProblem& p, const WeightOnlyDevice& d);
Variant weight_only_variant(const WeightOnlyConfig& c);

/// Unsupported with reject()'s sentence.
void weight_only_gemm(runtime::Stream& s, const WeightOnlyProblem& p);
/// With a config of the caller's, for tuning; `p` is one that reject() takes.
void weight_only_gemm(runtime::Stream& s, const WeightOnlyProblem& p, const WeightOnlyConfig& c);

}  // namespace cgp::kernels
