// SPDX-License-Identifier: Apache-2.0
// The calls: what is checked, the variant, the pieces that staging memory has room for.
#include "cgp/kernels/gemm_collective/gemm_collective.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/collective/collective.h"
#include "cgp/kernels/decode_linear/decode_linear.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm/api/gemm_tuning.h"
#include "cgp/kernels/gemm_collective/gemm_collective_config.h"

namespace cgp::kernels {
namespace {

using text::cat;
using Config = GemmCollectiveConfig;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

enum class Rows : std::uint8_t { whole, part };

// Views that fit the problem: x and y have all rows of m, or this rank's.
void check(std::string_view call, runtime::Stream& s, const Communicator& all, int rank,
           const GemmCollective& p, Rows of_x, Rows of_y) {
  const auto fail = [&](std::string rule, std::string why) {
    throw ArgumentError({cat(call, ": ", rule), {}, std::move(why), {}});
  };
  if (rank < 0 || rank >= all.size())
    fail("a rank is one of the communicator's", cat("rank ", rank, " of ", all.size()));
  if (!(s.device() == all.device(rank)))
    fail("the stream is of the rank's device",
         cat("rank ", rank, " has another device, or is another process"));
  const auto ranks = std::uint64_t(all.size());
  if ((of_x == Rows::part || of_y == Rows::part) && p.m % ranks)
    fail("m is a multiple of the ranks", cat("m = ", p.m, ", ", ranks, " ranks"));
  const auto matrix = [&](std::string_view name, const View& v, std::uint64_t rows, std::uint64_t cols) {
    if (!v.given) fail(cat(name, " must be given"), {});
    if (v.dtype != p.type)
      fail(cat(name, " is of the problem's type"), cat(cgp::name(v.dtype), " and ", cgp::name(p.type)));
    if (v.elements != rows * cols)
      fail(cat(name, " has ", rows, " x ", cols, " elements"), cat("it has ", v.elements));
  };
  matrix("x", p.x, of_x == Rows::part ? p.m / ranks : p.m, p.k);
  matrix("weight", p.weight, p.n, p.k);
  matrix("y", p.y, of_y == Rows::part ? p.m / ranks : p.m, p.n);
  if (!p.y.writable) fail("y must be writable", {});
}
void check(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p, Config::Op op) {
  const bool gathers = op == Config::Op::all_gather_gemm;
  const std::string_view call = gathers ? "all_gather_gemm" : "gemm_reduce_scatter";
  check(call, s, all, rank, p, gathers ? Rows::part : Rows::whole, gathers ? Rows::whole : Rows::part);
  if (auto why = reject(p, all); !why.empty())
    throw Unsupported({cat(call, ": one launch cannot do it"),
                       {},
                       std::move(why),
                       gathers ? "all_gather, then gemm" : "gemm, then reduce_scatter"});
}

void run(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p, Config::Op op) {
  check(s, all, rank, p, op);
  const auto ranks = std::uint64_t(all.size()), part = p.m / ranks, own = std::uint64_t(rank);
  if (part == 0 || (op == Config::Op::gemm_reduce_scatter && p.n == 0)) return;
  const Config c{.op = op,
                 .type = p.type,
                 .transposed = p.transposed,
                 .ranks = all.size(),
                 .cols = p.n <= 128 ? 128 : 256,
                 .cluster = part <= 128 ? 1 : 2};
  const auto tile = c.tile();
  const auto fn = load(s.device(), gemm_collective_variant(c));
  const auto height = std::uint64_t(tile.height()) * std::uint64_t(c.cluster),
             width = std::uint64_t(tile.width());
  // Bytes of a part's place in staging memory, and the rows that fit and have flags.
  const std::uint64_t pitch = all.slot_bytes() / ranks, row = 2 * (c.gathers() ? p.k : p.n);
  const std::uint64_t flagged =
      c.gathers() ? kFlags * std::uint64_t(kGatheredRows)
                  : kFlags / std::uint64_t(tile.warpgroups * c.cluster) / ceil_div(p.n, width) * height;
  const std::uint64_t piece = std::min({part, flagged, pitch / row});
  if (!piece)
    throw ArgumentError({"gemm_collective: the communicator's staging memory is too small",
                         {},
                         cat("a row of ", row, " bytes of each rank; ", all.slot_bytes(), " bytes a slot"),
                         "give Communicator more bytes"});
  const auto map = [&](std::size_t param, std::uint64_t address, std::vector<std::uint64_t> dims,
                       std::uint64_t from_batch_to_batch) {
    auto spec = tensor_map_spec(fn.image(), param);
    spec.strides = {dims[0] * 2, from_batch_to_batch};
    spec.dims = std::move(dims);
    spec.l2 = runtime::L2Promotion::b128;
    return s.device().tensor_map(spec, address);
  };
  const auto sms = all.blocks(std::uint32_t(usable_sms(s.device().info().sm_count, c.cluster)));
  for (std::uint64_t first = 0; first < part; first += piece) {
    const std::uint64_t now = std::min(piece, part - first);
    const std::uint64_t rows = ceil_div(now, height), cols = std::max<std::uint64_t>(ceil_div(p.n, width), 1),
                        tiles = rows * cols * ranks;
    const std::uint64_t x = p.x.address + first * p.k * 2, y = p.y.address + first * p.n * 2;
    GemmCollectiveParams<OnHost> args;
    const std::uint64_t x_part = part * p.k * 2, y_part = part * p.n * 2;
    if (c.gathers()) {
      args.x = map(0, x, {p.k, now, 1}, x_part);
      args.y = map(2, y, {p.n, now, ranks}, y_part);
      args.gathered = map(3, all.staging_address(rank), {p.k, now, 2 * ranks}, pitch);
      args.own = x;
    } else {
      args.x = map(0, x, {p.k, now, ranks}, x_part);
      args.y = map(2, y, {p.n, now, 1}, y_part);
      for (int r = 0; r < all.size(); ++r)
        args.to[std::size_t(r)] =
            map(3 + std::size_t(r), all.staging_address(r) + own * pitch, {p.n, now, 2}, all.slot_bytes());
    }
    args.w = p.transposed ? map(1, p.weight.address, {p.k, p.n, 1}, p.n * p.k * 2)
                          : map(1, p.weight.address, {p.n, p.k, 1}, p.n * p.k * 2);
    args.table = all.table(rank).address();
    args.slot = all.slot_bytes(), args.pitch = pitch;
    args.rank = std::uint32_t(rank), args.part = std::uint32_t(now);
    args.n = std::uint32_t(p.n), args.k = std::uint32_t(p.k);
    args.rows = std::uint32_t(rows), args.cols = std::uint32_t(cols), args.tiles = std::uint32_t(tiles);
    const auto clusters = std::min<std::uint64_t>(tiles, std::max(1u, sms / std::uint32_t(c.cluster)));
    launch(s, fn, runtime::Launch{.grid = {std::uint32_t(clusters) * std::uint32_t(c.cluster)}}, args, c);
  }
}

}  // namespace

std::string reject(const GemmCollective& p, const Communicator& all) {
  for (int r = 0; r < all.size(); ++r)
    if (const auto& arch = all.arch(r); arch != "sm_90a")
      return cat("it needs sm_90a; rank ", r, " has ", arch);
  if (p.type != DType::bf16 && p.type != DType::f16)
    return cat("it needs f16 or bf16; the type is ", name(p.type));
  if (p.k == 0 || p.n == 0 || p.k % 8 || p.n % 8)
    return cat("it needs n and k that are multiples of 8, above 0; they are ", p.n, " and ", p.k);
  if ((p.x.address | p.weight.address | p.y.address) % 16)
    return "it needs addresses at multiples of 16 bytes";
  if (std::max({p.m, p.n, p.k}) > 0x7fffffff) return "m, n and k must be below 2^31";
  return {};
}

void all_gather_gemm(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p) {
  run(s, all, rank, p, Config::Op::all_gather_gemm);
}
void gemm_reduce_scatter(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p) {
  run(s, all, rank, p, Config::Op::gemm_reduce_scatter);
}

void gemm_all_reduce(runtime::Stream& s, const Communicator& all, int rank, const GemmCollective& p) {
  check("gemm_all_reduce", s, all, rank, p, Rows::whole, Rows::whole);
  if ((p.x.address | p.weight.address | p.y.address) % 16)
    throw Unsupported("gemm_all_reduce: it needs addresses at multiples of 16 bytes");
  if (p.m == 0 || p.n == 0) return;
  const auto ranks = std::uint64_t(all.size());
  if (p.m <= kMostDecodeLinearRows && p.transposed && s.device().info().cc() >= 80) {
    DecodeLinear d;
    d.type = p.type, d.m = p.m, d.k = p.k, d.all = &all, d.rank = rank;
    d.weights = {{p.weight.address, 0, p.n}};
    d.x = p.x.address, d.y = p.y.address;
    if (reject(d).empty() && fits_at_once(d)) return decode_linear(s, d);
  }
  if (p.m % ranks == 0 && reject(p, all).empty()) {
    const std::uint64_t part = p.m / ranks * p.n;
    GemmCollective own = p;
    own.y = View(p.y.address + std::uint64_t(rank) * part * 2, part, p.type, true, p.y.backend);
    gemm_reduce_scatter(s, all, rank, own);
    return all_gather(s, all, rank, own.y, p.y);
  }
  GemmProblem g;
  g.type = p.type, g.trans_b = p.transposed, g.m = p.m, g.n = p.n, g.k = p.k;
  gemm(s, g, {p.x.address, p.x.elements, p.type}, {p.weight.address, p.weight.elements, p.type},
       {p.y.address, p.y.elements, p.type});
  all_reduce(s, all, rank, p.y, p.y);
}

std::vector<Variant> gemm_collective_variants() {
  std::vector<Variant> variants;
  for (auto op : {Config::Op::all_gather_gemm, Config::Op::gemm_reduce_scatter})
    for (bool transposed : {false, true})
      for (DType type : {DType::bf16, DType::f16})
        variants.push_back(gemm_collective_variant({.op = op, .type = type, .transposed = transposed}));
  variants.push_back(gemm_collective_variant({.op = Config::Op::gemm_reduce_scatter, .ranks = kMostRanks}));
  variants.push_back(gemm_collective_variant({.ranks = kMostRanks, .cols = 128, .cluster = 1}));
  return variants;
}

}  // namespace cgp::kernels
