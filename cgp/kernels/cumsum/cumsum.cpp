// SPDX-License-Identifier: Apache-2.0
// cumsum: running sums along rows.
//   who      a warp for a row of up to kShort accesses, else a block of eight warps; tiles of four accesses a
//            thread, one tile after the other
//   sync     a thread's elements in order, 32 threads by shuffles; the 8 warps' 4 totals each are scanned by
//            every warp at once, one value a lane: one barrier a tile, its slots alternate
//   memory   read once, written once
#include "cgp/kernels/cumsum/cumsum.h"

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/row/elements.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats;

constexpr int kLoads = 4, kWarps = 8, kRowsPerBlock = 4;
constexpr std::uint64_t kShort = 256;  // accesses
static_assert(kLoads * kWarps == 32, "the totals of a tile are one value a lane");

struct CumSumConfig {
  DType type{};
  int elements = 1;    ///< of an access
  bool block = false;  ///< a block for a row, else a warp
  bool exclusive = false;
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
    v.number("elements", "vec", c.elements, 1);
    v.flag("block_a_row", c.block);
    v.flag("exclusive", c.exclusive);
  }
};

Val<f32> add(Val<f32> a, Val<f32> b) { return a + b; }

struct Scanned {
  std::vector<Floats> inside;   // sums of a thread's own elements up to each
  Floats lane_prefix, through;  // of the warp's elements before, and up to and with this thread's
};

Scanned scan_warp(Warp& w, const std::vector<Floats>& x) {
  Scanned s;
  for (const auto& v : x) {
    Floats p{v[0]};
    for (std::size_t e = 1; e < v.size(); ++e) p.push_back(p.back() + v[e]);
    const auto through = inclusive_scan(w, p.back(), add);
    // Shuffled, not subtracted: an infinity of this thread's would leave a NaN below it.
    s.lane_prefix.push_back(select(w.lane() == 0, Val<f32>(0.f), shfl<up>(w, through, 1)));
    s.through.push_back(through);
    s.inside.push_back(p);
  }
  return s;
}

// What lies before each of this warp's accesses in the tile, and the tile's total behind it.
Floats before_block(Kernel& k, Warp& w, const Ptr<shared, f32>& slots, const Scanned& s) {
  const auto own_slot = k.warp_index();
  k.if_(w.lane() == 31, [&] {
    for (int j = 0; j < kLoads; ++j)
      slots.st(own_slot + std::uint32_t(j * kWarps), s.through[std::size_t(j)]);
  });
  k.sync();
  const auto all = inclusive_scan(w, slots.ld(w.lane()), add);
  Floats before;
  for (int j = 0; j < kLoads; ++j) {
    const auto place = own_slot + std::uint32_t(j * kWarps);
    const auto of = shfl<idx>(w, all, select(place == 0, Val<u32>(0), place - 1));
    before.push_back(select(place == 0, Val<f32>(0.f), of));
  }
  before.push_back(shfl<idx>(w, all, 31));
  return before;
}
Floats before_warp(Warp& w, const Scanned& s) {
  Floats before{Val<f32>(0.f)};
  for (const auto& t : s.through) {
    const auto total = shfl<idx>(w, t, 31);
    before.push_back(before.size() == 1 ? total : before.back() + total);
  }
  return before;
}

template <template <class> class V>
struct CumSumArgs {
  V<In<b8>> x;
  V<Out<b8>> out;
  V<u64> rows, accesses;      ///< accesses of a row
  V<u64> x_pitch, out_pitch;  ///< in elements
};

void cumsum_rows(Kernel& k, CumSumConfig b, CumSumArgs<DeviceArg> p) {
  const int lanes = b.block ? kWarps * 32 : 32;
  k.block(b.block ? lanes : 32 * kRowsPerBlock);
  auto w = k.warp();
  const row::Format f{b.type, b.elements};
  const auto size = std::uint64_t(cgp::bytes(b.type));
  const auto row =
      b.block ? to<u64>(k.ctaid_x()) : to<u64>(k.ctaid_x() * std::uint32_t(kRowsPerBlock) + k.warp_index());
  const auto part = to<u64>(b.block ? k.tid() : w.lane());
  const auto from = p.x.at(row * (p.x_pitch * size));
  const auto target = p.out.at(row * (p.out_pitch * size));
  std::optional<Ptr<shared, f32>> slots;
  if (b.block) slots.emplace(k.shared<f32>(64));
  const auto end = b.block ? p.accesses : select(row < p.rows, p.accesses, Val<u64>(0));
  const auto tiles = range(Val<u64>(0), end, Val<u64>(lanes * kLoads));
  (void)k.loop(tiles, std::pair{Val<f32>(0.f), Val<u32>(0)},
               [&](const Val<u64>& base, std::pair<Val<f32>, Val<u32>> state) {
                 const auto& [carry, set] = state;
                 std::vector<row::Access> got;
                 std::vector<Val<u64>> at;
                 for (int j = 0; j < kLoads; ++j) {
                   at.push_back(base + part + std::uint64_t(j * lanes));
                   got.push_back(row::load<nc>(f, from, at.back(), at.back() < end));
                 }
                 std::vector<Floats> v;
                 for (const auto& a : got) v.push_back(row::floats(f, a));
                 const auto s = scan_warp(w, v);
                 const auto before = b.block ? before_block(k, w, slots->at(set), s) : before_warp(w, s);
                 for (std::size_t j = 0; j < kLoads; ++j) {
                   const auto first = carry + (before[j] + s.lane_prefix[j]);
                   Floats prefix;
                   if (b.exclusive) prefix.push_back(first);
                   for (const auto& p : s.inside[j])
                     if (prefix.size() < std::size_t(b.elements)) prefix.push_back(first + p);
                   row::store(f, target, at[j], at[j] < end, row::pack(f, prefix));
                 }
                 return std::pair{carry + before.back(), set ^ 32};
               });
}

Variant make(const CumSumConfig& c) {
  return config_variant("cumsum", c, c.type == DType::bf16 ? 80 : 75, cumsum_rows);
}

struct Problem {
  CumSum c;
  CumSumConfig build;
  std::string why;
};

Problem checked(CumSum c) {
  const row::Checker check{"cumsum"};
  check.present("x", c.x, row::kFloats, false);
  check.present("out", c.out, {c.x.dtype}, true);
  if (c.x_layout.inner > 1 || c.out_layout.inner > 1)
    check.fail("x", "cannot have its rows in groups", "inner > 1");
  c.x_layout = check.rows("x", c.x, c.rows, c.cols, c.x_layout);
  c.out_layout = check.rows("out", c.out, c.rows, c.cols, c.out_layout);
  if (c.x.address == c.out.address && c.rows && c.x_layout.pitch != c.out_layout.pitch)
    check.fail("out", "over x must have its pitch",
               text::cat("it has ", c.out_layout.pitch, ", x has ", c.x_layout.pitch));
  if (c.rows > 0x7fffffffull) check.fail("rows", "must be below 2^31", text::cat("rows = ", c.rows));
  const int n = 16 / cgp::bytes(c.x.dtype);
  const bool wide = row::fits(c.x, c.cols, c.x_layout, n) && row::fits(c.out, c.cols, c.out_layout, n);
  const int elements = wide ? n : 1;
  const bool block = c.cols / std::uint64_t(elements) > kShort;
  const CumSumConfig b{c.x.dtype, elements, block, c.exclusive};
  return {std::move(c), b,
          text::cat(block ? "a block" : "a warp", " for a row, ", wide ? "16-byte" : "single", " accesses")};
}

// ---------------------------------------------------------------- catalogue
std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> all;
  for (DType t : {DType::bf16, DType::f16, DType::f32})
    for (std::uint64_t cols : {64, 7, 1 << 20, (1 << 20) + 1}) {
      CumSum c;
      c.x = c.out = View::stand_in(t);
      c.rows = 4, c.cols = cols, c.exclusive = cols == 64;
      all.push_back(cumsum_variant(c, nullptr));
    }
  return images(all, arch);
}

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const auto [t, rows, cols] = row::row_shape(o, given, "x");
  CumSum p;
  p.rows = rows, p.cols = cols, p.exclusive = o.flag("exclusive");
  auto c = std::make_unique<row::TensorCase>(d);
  p.x = c->input("x", input_or_random(given, "x", t, {p.rows, p.cols}, seed));
  p.out = c->output("out", t, {p.rows, p.cols});
  std::string why;
  const auto v = cumsum_variant(p, &why);
  c->runs({v}, why);
  c->flops = double(p.rows * p.cols);
  c->run = [p](runtime::Stream& s) { cumsum(s, p); };
  c->oracle = [p, t](const row::TensorCase& in) {
    row::Expected out{"out", {}, {}};
    const auto& x = in.host("x");
    const double u = unit_roundoff(DType::f32);
    for (std::uint64_t r = 0; r < p.rows; ++r) {
      double sum = 0, size = 0;
      for (std::uint64_t i = 0; i < p.cols; ++i) {
        const double v = x.at(r * p.cols + i), before = sum;
        sum += v, size += std::fabs(v);
        const double want = p.exclusive ? before : sum;
        // Additions on the way of an element: its thread, lanes, warps, tiles (of 128 accesses or more).
        const double error = size * u * (8 + 5 + 5 + 4 + double(i) / 128);
        out.want.push_back(want);
        out.tolerance.push_back(error + (std::fabs(want) + error) * unit_roundoff(t) +
                                (t == DType::f16 ? 0x1p-25 : 0));
      }
    }
    return std::vector<row::Expected>{out};
  };
  return c;
}

}  // namespace

void cumsum(runtime::Stream& s, const CumSum& given) {
  const auto p = checked(given);
  const auto& c = p.c;
  if (c.rows == 0 || c.cols == 0) return;
  const auto& b = p.build;
  launch::launch_kernel(s, load(s.device(), make(b)), runtime::grid_for(c.rows, b.block ? 1 : kRowsPerBlock),
                        CumSumArgs<launch::HostArg>{.x = c.x.arg(),
                                                    .out = c.out.arg(),
                                                    .rows = c.rows,
                                                    .accesses = c.cols / std::uint64_t(b.elements),
                                                    .x_pitch = c.x_layout.pitch,
                                                    .out_pitch = c.out_layout.pitch});
}

Variant cumsum_variant(const CumSum& c, std::string* why) {
  auto p = checked(c);
  if (why) *why = std::move(p.why);
  return make(p.build);
}

KernelEntry cumsum_entry() {
  KernelEntry e;
  e.name = "cumsum", e.summary = "running sums along rows, inclusive or exclusive";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"rows", "1024", "rows"},
               {"cols", "4096", "columns"},
               {"exclusive", "0", "without the element itself"}};
  e.inputs = {"x"};
  e.images = ships, e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
