// SPDX-License-Identifier: Apache-2.0
// Grouped products of every type, with scales, beta and epilogues, against loops in double.
#include "cgp/base/error.h"
#include "cgp/kernels/gemm/bench/gemm_trial.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"
#include "cgp/testing/assemble.h"

using namespace cgp;
using namespace cgp::kernels;
using trial::OnDevice;
using Words = runtime::Buffer<std::uint32_t>;

namespace {

// One of the products as the oracle sees it: where its operands begin, and what its rows of A and C are.
struct One {
  std::uint64_t a = 0, b = 0, c = 0, m = 0, k = 0, row0 = 0;
};

struct GroupedTrial {
  GroupedProblem p;
  std::vector<std::uint32_t> index{};
  const char* spread = "ragged";
  /// Of the oracle: what the epilogue does with an element (of a pair), in place.
  std::function<void(std::uint64_t row, std::uint64_t col, double& x, double& error)> map{};
  std::string kind = "mixed_sm90";

  std::vector<One> products(const std::vector<std::uint64_t>& ends) const {
    std::vector<One> out;
    for (std::uint64_t g = 0; g < p.groups; ++g) {
      const std::uint64_t from = g ? ends[g - 1] : 0, rows = ends[g] - from;
      switch (p.form) {
        case GroupedForm::rows:
          out.push_back({0, g * p.n * p.k, from * p.columns(), rows, p.k, from});
          break;
        case GroupedForm::depth:
          out.push_back({from * p.m, from * p.n, g * p.m * p.columns(), p.m, rows, 0});
          break;
        default:  // rows of A behind each other, also transposed
          out.push_back({from * p.k, g * p.n * p.k, from * p.columns(), rows, p.k, 0});
      }
    }
    return out;
  }

  void check(std::string_view arch) { check_on(trial::emulator(arch)); }
  void check_on(const runtime::Device& d) {
    p = p.whole();
    const auto ends = ragged_ends(p.groups, p.rows, spread, 5);
    const bool depth = p.form == GroupedForm::depth, problems = p.form == GroupedForm::problems;
    const std::uint64_t a_rows = p.a_rows ? p.a_rows : p.rows, blocks = (p.k + 127) / 128;
    OnDevice a(d, p.type, a_rows * (depth ? p.m : p.k), 1),
        b(d, *p.type_b, (depth ? p.rows : p.groups * p.n) * (depth ? p.n : p.k), 2),
        c(d, *p.type_c, (depth ? p.groups * p.m : p.rows) * p.columns(), 3);
    const bool by_block = p.scaling == GemmScaling::block, by_channel = p.scaling == GemmScaling::channel;
    const OnDevice fa(d, DType::f32,
                      by_block     ? a_rows * blocks
                      : by_channel ? a_rows
                                   : p.groups,
                      4),
        fb(d, DType::f32,
           by_block ? p.groups * ((p.n + 127) / 128) * blocks : p.groups * (by_channel ? p.n : 1), 5);
    Words on_ends(d, std::max<std::size_t>(ends.size(), 1)),
        on_index(d, std::max<std::size_t>(index.size(), 1));
    std::vector<std::uint32_t> narrow(ends.begin(), ends.end());
    on_ends.upload(narrow);
    if (!index.empty()) on_index.upload(index);
    const auto list = products(ends);
    std::vector<GroupedItem> items;
    for (std::uint64_t g = 0; g < p.groups; ++g) {
      const auto at = [](const OnDevice& x, std::uint64_t i) {
        return x.address() + i * std::uint64_t(bytes(x.host.dtype));
      };
      const auto& o = list[g];
      items.push_back({at(a, o.a), at(b, o.b), at(c, o.c), std::uint32_t(o.m), std::uint32_t(p.n),
                       std::uint32_t(o.k), std::uint32_t(p.trans_a ? o.m : o.k),
                       std::uint32_t(p.trans_b ? p.k : p.n), std::uint32_t(p.columns())});
    }
    runtime::Buffer<std::byte> on_items(d, items.size() * sizeof(GroupedItem));
    on_items.upload(std::as_bytes(std::span(items)));
    const GroupedAddresses at{a.address(),
                              b.address(),
                              c.address(),
                              on_ends.address(),
                              index.empty() ? 0 : on_index.address(),
                              problems ? on_items.address() : 0,
                              fa.address(),
                              fb.address()};
    const auto choice = select_grouped_gemm(p, at, d.info());
    EXPECT_EQ(name(choice.kind), kind) << choice.why;
    runtime::Stream s(d);
    grouped_gemm(s, p, at);
    s.wait();
    compare(list, a, b, c, fa, fb, choice.variant.name);
  }

  // Element (i, j) of a product, scaled, and the error of its sum.
  std::pair<double, double> element(std::uint64_t g, const One& o, std::uint64_t i, std::uint64_t j,
                                    const OnDevice& a, const OnDevice& b, const OnDevice& fa,
                                    const OnDevice& fb) const {
    const bool depth = p.form == GroupedForm::depth;
    const std::uint64_t row = p.form == GroupedForm::rows ? (index.empty() ? o.row0 + i : index[o.row0 + i])
                                                          : i,
                        blocks = (o.k + 127) / 128;
    double sum = 0, size = 0;
    for (std::uint64_t l = 0; l < o.k; ++l) {
      double x = a.values.at(o.a + (depth       ? l * p.m + i
                                    : p.trans_a ? l * o.m + i
                                                : row * p.k + l)) *
                 b.values.at(o.b + (depth       ? l * p.n + j
                                    : p.trans_b ? j * p.k + l
                                                : l * p.n + j));
      if (p.scaling == GemmScaling::block)
        x *= fa.values.at(row * blocks + l / 128) *
             fb.values.at((g * ((p.n + 127) / 128) + j / 128) * blocks + l / 128);
      sum += x, size += std::fabs(x);
    }
    double relative = p.type == DType::s8 ? 0x1p-22 : double(o.k + 16) * 0x1p-24;
    if (bytes(p.type) == 1 && p.type != DType::s8) relative += 0x1p-11;
    double f = p.alpha;
    if (p.scaling == GemmScaling::tensor)
      f *= fa.host.at(p.form == GroupedForm::rows ? 0 : g) * fb.host.at(g);
    if (p.scaling == GemmScaling::channel) f *= fa.host.at(row) * fb.host.at(g * p.n + j);
    return {f * sum, std::fabs(f) * size * relative};
  }

  void compare(const std::vector<One>& list, const OnDevice& a, const OnDevice& b, const OnDevice& c,
               const OnDevice& fa, const OnDevice& fb, const std::string& variant) const {
    const auto got = c.back();
    std::vector<bool> touched(c.host.size());
    std::vector<std::pair<std::uint64_t, std::uint64_t>> all;  // group and row in it
    double work = 0;
    for (std::uint64_t g = 0; g < p.groups; ++g)
      for (std::uint64_t i = 0; i < list[g].m; ++i) {
        const auto first = touched.begin() + std::ptrdiff_t(list[g].c + i * p.columns());
        std::fill(first, first + std::ptrdiff_t(p.columns()), true);
        all.emplace_back(g, i), work += double(p.columns()) * double(list[g].k);
      }
    const auto pairing = p.epilogue.pairing();
    const auto found = trial::over_rows(all.size(), work, [&](std::uint64_t r, trial::Checked& into) {
      const auto [g, i] = all[r];
      for (std::uint64_t j = 0; j < p.columns(); ++j) {
        const auto& o = list[g];
        const std::uint64_t to = o.c + i * p.columns() + j, row = o.row0 + i;
        const auto side = [&, g = g, i = i](std::uint64_t col) {
          return element(g, o, i, col, a, b, fa, fb);
        };
        auto [x, e] = side(pairing == Pairing::interleaved ? 2 * j : j);
        const double old = p.beta == 0 ? 0 : p.beta * c.host.at(to);
        if (pairing != Pairing::none) {
          const auto [y, ey] = side(pairing == Pairing::interleaved ? 2 * j + 1 : j + p.n / 2);
          const double silu = x / (1 + std::exp(-x));
          e = 1.1 * e * std::fabs(y) + std::fabs(silu) * ey + std::fabs(silu * y) * 0x1p-20, x = silu * y;
        }
        x += old, e += std::fabs(old) * 0x1p-23;
        if (map) map(row, j, x, e);
        if (p.type_c == DType::e4m3) x = std::clamp(x, -448.0, 448.0);
        const double tolerance =
            e * 1.01 + std::fabs(x) * 0x1p-22 + trial::type_error(*p.type_c, x) * 1.001 + 0x1p-120;
        const double have = got.at(to), ratio = std::isnan(have) ? 1e30 : std::fabs(have - x) / tolerance;
        if (ratio > into.worst)
          into.worst = ratio, into.where = text::cat("group ", g, " [", i, "][", j, "] is ", have,
                                                     ", oracle ", x, ", allowed ", tolerance);
      }
    });
    EXPECT_LE(found.worst, 1) << variant << ": " << found.where;
    for (std::uint64_t i = 0; i < touched.size(); ++i)
      if (!touched[i] && got.at(i) != c.host.at(i)) {
        ADD_FAILURE() << variant << ": element " << i << " belongs to no group and was written";
        break;
      }
  }
};

GroupedProblem rows(DType t, std::uint64_t groups, std::uint64_t m, std::uint64_t n, std::uint64_t k) {
  GroupedProblem p;
  p.type = t, p.trans_b = true, p.groups = groups, p.rows = m, p.n = n, p.k = k;
  return p;
}

}  // namespace

TEST(grouped_mixed, eight_bit_rows_on_hopper) {
  auto p = rows(DType::e4m3, 4, 200, 136, 272);
  GroupedTrial{p}.check("sm_90a");
  p.trans_b = false, p.scaling = GemmScaling::tensor, p.precision = GemmPrecision::fast, p.alpha = 2;
  GroupedTrial{p}.check("sm_90a");
  p = rows(DType::e4m3, 3, 150, 264, 400);
  p.type_b = DType::e5m2, p.type_c = DType::f32, p.scaling = GemmScaling::channel, p.beta = 0.5f;
  GroupedTrial{p}.check("sm_90a");
  p.scaling = GemmScaling::block, p.beta = 0;
  GroupedTrial{p}.check("sm_90a");
  auto s = rows(DType::s8, 3, 100, 72, 208);
  GroupedTrial{s, {}, "holes"}.check("sm_90a");
  s.type_c = DType::bf16, s.scaling = GemmScaling::channel, s.alpha = 0.01f;
  GroupedTrial{s}.check("sm_90a");
}

TEST(grouped_mixed, rows_by_an_index_and_misaligned_ones) {
  auto p = rows(DType::e4m3, 3, 90, 72, 144);
  p.a_rows = 40, p.scaling = GemmScaling::channel;
  std::vector<std::uint32_t> index;
  for (std::uint32_t r = 0; r < 90; ++r) index.push_back(r * 7 % 40);
  GroupedTrial{p, index}.check("sm_90a");
  p.scaling = GemmScaling::block;
  GroupedTrial{p, index}.check("sm_90a");
  GroupedTrial{rows(DType::bf16, 3, 90, 72, 75)}.check("sm_90a");
}

TEST(grouped_mixed, beta_and_epilogues) {
  const auto d = trial::emulator("sm_90a");
  auto p = rows(DType::bf16, 4, 150, 144, 72);
  const OnDevice bias(d, DType::f32, p.n, 9);
  p.alpha = 0.5f, p.beta = 2;
  GroupedTrial{p}.check("sm_90a");
  p.beta = 0;
  p.epilogue = epilogue::swiglu(Pairing::interleaved);
  GroupedTrial{p}.check("sm_90a");
  p = rows(DType::e4m3, 2, 100, 512, 272);
  p.epilogue = epilogue::swiglu(Pairing::halves), p.scaling = GemmScaling::block;
  GroupedTrial{p}.check("sm_90a");
  p.type_c = DType::e4m3, p.n = 256;
  GroupedTrial{p}.check("sm_90a");
}

TEST(grouped_mixed, every_form_without_tensor_cores) {
  for (const char* arch : {"sm_75", "sm_89", "sm_90a"}) {
    const bool small = std::string_view(arch) != "sm_75";
    GroupedProblem p = rows(small ? DType::bf16 : DType::f16, 3, 40, 34, 21);
    p.form = GroupedForm::depth, p.m = 20, p.beta = 0.5f, p.type_c = DType::f32,
    p.scaling = GemmScaling::tensor;
    GroupedTrial{p, {}, "holes", {}, "simt"}.check(arch);
    p = rows(DType::e5m2, 3, 40, 34, 21);
    p.form = GroupedForm::problems, p.trans_a = true, p.trans_b = false, p.beta = -1,
    p.scaling = GemmScaling::tensor;
    p.type_c = small ? DType::e4m3 : DType::f16;
    GroupedTrial{p, {}, "ragged", {}, "simt"}.check(arch);
    p = rows(DType::s8, 2, 30, 18, 3000);
    p.form = GroupedForm::problems;
    GroupedTrial{p, {}, "ragged", {}, "simt"}.check(arch);
    p = rows(DType::f32, 3, 40, 34, 150);
    p.scaling = GemmScaling::channel, p.epilogue = epilogue::swiglu(Pairing::halves);
    GroupedTrial{p, {}, "ragged", {}, "simt"}.check(arch);
    p = rows(DType::e4m3, 2, 30, 130, 150);
    p.scaling = GemmScaling::block, p.type_c = DType::f32;
    if (std::string_view(arch) != "sm_90a") GroupedTrial{p, {}, "ragged", {}, "simt"}.check(arch);
  }
}

TEST(grouped_mixed, what_does_not_fit_is_said) {
  auto p = rows(DType::e4m3, 2, 10, 16, 16);
  p.form = GroupedForm::depth, p.m = 8, p.scaling = GemmScaling::channel;
  EXPECT_NE(reject(p).find("scaling = channel"), std::string::npos);
  p = rows(DType::bf16, 2, 10, 16, 16);
  p.type_b = DType::f16;
  EXPECT_NE(reject(p).find("type_b"), std::string::npos);
  p = rows(DType::bf16, 2, 10, 16, 16);
  p.epilogue = epilogue::amax(DeviceArray(16, 100, DType::f32));
  EXPECT_NE(reject(p).find("amax"), std::string::npos);
}

TEST(grouped_mixed, right_on_a_gpu) {
  const auto d = trial::a_gpu();
  if (!d) GTEST_SKIP() << "no GPU";
  if (d->info().arch != "sm_90a") GTEST_SKIP() << "made for sm_90a";
  auto p = rows(DType::e4m3, 16, 3000, 264, 1040);
  for (auto scaling : {GemmScaling::none, GemmScaling::tensor, GemmScaling::channel, GemmScaling::block}) {
    p.scaling = scaling;
    GroupedTrial{p}.check_on(*d);
    GroupedTrial{p, {}, "skewed"}.check_on(*d);
  }
  p.n = 512, p.epilogue = epilogue::swiglu(Pairing::halves), p.type_c = DType::e4m3;
  GroupedTrial{p, {}, "holes"}.check_on(*d);
  p = rows(DType::bf16, 16, 2000, 264, 520);
  p.alpha = 0.5f, p.beta = 2;
  GroupedTrial{p}.check_on(*d);
  p.beta = 0, p.alpha = 1, p.k = 525;
  GroupedTrial{p}.check_on(*d);
  p = rows(DType::s8, 16, 1000, 264, 528);
  GroupedTrial{p}.check_on(*d);
  p.form = GroupedForm::problems, p.beta = 1;
  GroupedTrial{p, {}, "ragged", {}, "simt"}.check_on(*d);
}

TEST(grouped_mixed, variants_assemble_without_spills) {
  if (cgp::find_ptxas().empty()) GTEST_SKIP() << "ptxas is not installed: nothing was assembled";
  auto blocks = rows(DType::e4m3, 4, 4096, 4096, 4096), beta = rows(DType::bf16, 4, 4096, 4096, 4096),
       pairs = blocks;
  blocks.scaling = GemmScaling::block, beta.beta = 1;
  pairs.scaling = GemmScaling::channel, pairs.epilogue = epilogue::swiglu(Pairing::halves),
  pairs.type_c = DType::e4m3;
  for (const auto& p : {blocks, beta, pairs}) {
    const auto v = grouped_mixed_sm90(p, grouped_mixed_tuning(p));
    const auto a = cgp::testing::assemble(v.build(v.name, "sm_90a").ptx(), "sm_90a");
    EXPECT_TRUE(a.ok && !a.spill_bytes && !a.stack_bytes && !a.serialised) << v.name << "\n" << a.log;
  }
}
