// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/kernels/cross_entropy/cross_entropy_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

TEST(cross_entropy, every_row_length_matches_the_oracle) {
  for (auto [r, c] : {std::pair{"0", "5"},
                      {"3", "1"},
                      {"17", "7"},
                      {"9", "64"},
                      {"6", "1000"},
                      {"3", "4097"},
                      {"2", "16384"}})
    expect_right(cross_entropy_entry(), {{"rows", r}, {"cols", c}});
  for (const char* t : {"f32", "f16", "bf16"})
    expect_right(cross_entropy_entry(),
                 {{"dtype", t}, {"rows", "7"}, {"cols", "264"}, {"smoothing", "0.1"}, {"z", "1e-2"}});
  expect_right(cross_entropy_entry(),
               {{"rows", "4"}, {"cols", "77"}, {"gradient", "0"}, {"smoothing", "0.2"}});
  expect_right(cross_entropy_entry(), {{"rows", "1"}, {"cols", "70001"}});  // read twice
  expect_right(cross_entropy_entry(),                                       // once
               {{"rows", "2"}, {"cols", "70001"}, {"gradient", "0"}, {"smoothing", "0.1"}});
}

// The gradient of a row is stored while slower blocks of the cluster still read the next.
TEST(cross_entropy, overlapping_ring_in_place) {
  auto device = runtime::Device::open("emu:sm_90a");
  const std::uint64_t rows = 300, cols = 1000;
  const auto x = random_array(DType::bf16, {rows, cols}, 5);
  auto logits = device.upload<bfloat16>(typed<bfloat16>(x));
  std::vector<std::int32_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r) targets[r] = std::int32_t(r * 37 % cols);
  auto to = device.upload<std::int32_t>(targets);
  auto loss = device.zeros<float>(rows);
  CrossEntropy c;
  c.logits = std::as_const(logits), c.dlogits = logits, c.targets = to, c.loss = loss;
  c.rows = rows, c.cols = cols, c.config = row::RowConfig{8, 32, 1, 1, 4, 3, 1, false, false, true};
  cross_entropy(device.stream(), c);
  device.sync();
  const auto want = cross_entropy_ref(x.as_doubles(), {targets.begin(), targets.end()}, rows, cols, -100, 0,
                                      0, 1, DType::bf16);
  HostArray got(DType::bf16, x.shape);
  logits.download(typed<bfloat16>(got));
  const auto check = compare(got, want.dlogits, [&](std::uint64_t i) { return want.dlogits_tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe();
  const auto losses = loss.to_vector();
  for (std::size_t r = 0; r < rows; ++r) EXPECT_NEAR(losses[r], want.loss[r], want.loss_tolerance[r]) << r;
}

namespace {

// In place in rows that begin anywhere: `before` elements into an allocation and `gap` elements apart, none
// of which may change.
void check_misaligned_rows(runtime::Device& device, DType type, const row::RowConfig& t, std::uint64_t rows,
                           std::uint64_t cols, std::uint64_t before, std::uint64_t gap, bool gradient) {
  const std::uint64_t pitch = cols + gap, all = before + rows * pitch;
  auto x = random_array(type, {all}, 5 + cols);
  auto memory = device.alloc<std::byte>(x.bytes.size());
  memory.upload(x.bytes);
  std::vector<std::int32_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r)
    targets[r] = std::int32_t(r % 3 ? r * 37 % cols : (r % 2 ? cols - 1 : 0));
  auto to = device.upload<std::int32_t>(targets);
  auto loss = device.zeros<float>(rows);
  const View logits = View(memory.address(), all, type, true, memory.all().backend()).from(before);
  CrossEntropy c;
  c.logits = logits, c.targets = to, c.loss = loss, c.rows = rows, c.cols = cols, c.config = t;
  c.logits_layout.pitch = c.dlogits_layout.pitch = pitch;
  if (gradient) c.dlogits = logits;
  cross_entropy(device.stream(), c);
  device.sync();
  const auto in = x.as_doubles();
  std::vector<double> packed;
  for (std::uint64_t r = 0; r < rows; ++r)
    packed.insert(packed.end(), in.begin() + long(before + r * pitch),
                  in.begin() + long(before + r * pitch + cols));
  const auto want =
      cross_entropy_ref(packed, {targets.begin(), targets.end()}, rows, cols, -100, 0, 0, 1, type);
  HostArray got(type, {all});
  memory.download(got.bytes);
  std::vector<double> expected = in, tolerance(in.size(), 0.0);
  for (std::uint64_t i = 0; i < rows * cols && gradient; ++i) {
    const auto at = before + i / cols * pitch + i % cols;
    expected[at] = want.dlogits[i], tolerance[at] = want.dlogits_tolerance[i];
  }
  const auto check = compare(got, expected, [&](std::uint64_t i) { return tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe() << row::describe(t) << " " << cols << " " << before << " "
                          << gap;
  const auto losses = loss.to_vector();
  for (std::size_t r = 0; r < rows; ++r)
    EXPECT_NEAR(losses[r], want.loss[r], want.loss_tolerance[r]) << row::describe(t) << " row " << r;
}

// Elements, threads, rows, loads, cluster, stages, min_blocks, persistent, hold_columns, overlap_exchange,
// one_pass, edges.
const row::RowConfig kMisaligned[] = {{8, 64, 1, 2, 1, 0, 0, false, false, false, false, true},
                                      {8, 32, 4, 4, 1, 0, 0, true, false, false, false, true},
                                      {8, 32, 1, 2, 2, 0, 0, false, false, false, false, true},
                                      {8, 64, 1, 2, 1, 3, 1, false, false, false, false, true},
                                      {8, 32, 1, 2, 2, 2, 1, false, false, false, false, true},
                                      {8, 32, 1, 1, 4, 3, 1, false, false, true, false, true},
                                      {8, 64, 1, 0, 2, 0, 0, false, false, false, false, true}};

}  // namespace

TEST(cross_entropy, misaligned_rows_in_place_in_every_skeleton) {
  auto device = runtime::Device::open("emu:sm_90a");
  for (const auto& t : kMisaligned) {
    const std::uint64_t rows = t.visits_many() ? 300 : 9;
    check_misaligned_rows(device, DType::bf16, t, rows, 1001, 0, 0, true);
    check_misaligned_rows(device, DType::f16, t, 9, 930, 3, 5, true);
    check_misaligned_rows(device, DType::bf16, t, 6, 1000, 5, 8, true);
    check_misaligned_rows(device, DType::bf16, t, 5, 6, 1, 0, true);  // no whole access
  }
  const row::RowConfig pass{4, 64, 1, 2, 2, 0, 0, false, false, false, true, true};
  check_misaligned_rows(device, DType::f32, pass, 7, 3001, 1, 0, false);
  check_misaligned_rows(device, DType::f32, {4, 32, 4, 3, 1, 0, 0, false, false, false, false, true}, 9, 383,
                        2, 1, true);
}

namespace {

// Rows of logits and of the gradient that are aligned differently: `before` elements into an allocation, `gap` apart.
void check_shifted_rows(runtime::Device& device, DType type, std::uint64_t rows, std::uint64_t cols,
                        std::uint64_t before, std::uint64_t out_before, std::uint64_t gap,
                        const std::optional<row::RowConfig>& t = {}) {
  const std::uint64_t pitch = cols + gap, all = out_before + rows * pitch;
  auto x = random_array(type, {before + rows * cols}, 7 + cols);
  const auto untouched = random_array(type, {all}, 8);
  auto in = device.alloc<std::byte>(x.bytes.size()), out = device.alloc<std::byte>(untouched.bytes.size());
  in.upload(x.bytes), out.upload(untouched.bytes);
  std::vector<std::int32_t> targets(rows);
  for (std::size_t r = 0; r < rows; ++r)
    targets[r] = std::int32_t(r % 3 ? r * 37 % cols : (r % 2 ? cols - 1 : 0));
  auto to = device.upload<std::int32_t>(targets);
  auto loss = device.zeros<float>(rows);
  CrossEntropy c;
  c.logits = View(in.address(), before + rows * cols, type, false, in.all().backend()).from(before);
  c.dlogits = View(out.address(), all, type, true, out.all().backend()).from(out_before);
  c.dlogits_layout.pitch = pitch;
  c.targets = to, c.loss = loss, c.rows = rows, c.cols = cols, c.config = t;
  cross_entropy(device.stream(), c);
  device.sync();
  const auto values = x.as_doubles();
  const std::vector<double> packed(values.begin() + long(before), values.end());
  const auto want =
      cross_entropy_ref(packed, {targets.begin(), targets.end()}, rows, cols, -100, 0, 0, 1, type);
  HostArray got(type, {all});
  out.download(got.bytes);
  std::vector<double> expected = untouched.as_doubles(), tolerance(expected.size(), 0.0);
  for (std::uint64_t i = 0; i < rows * cols; ++i) {
    const auto at = out_before + i / cols * pitch + i % cols;
    expected[at] = want.dlogits[i], tolerance[at] = want.dlogits_tolerance[i];
  }
  const auto check = compare(got, expected, [&](std::uint64_t i) { return tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe() << " " << name(type) << " " << cols << " " << before << " "
                          << out_before;
  const auto losses = loss.to_vector();
  for (std::size_t r = 0; r < rows; ++r) EXPECT_NEAR(losses[r], want.loss[r], want.loss_tolerance[r]) << r;
}

}  // namespace

TEST(cross_entropy, rows_that_are_aligned_differently) {
  auto device = runtime::Device::open("emu:sm_90a");
  for (DType type : {DType::bf16, DType::f16, DType::f32})
    for (auto [cols, gap] :
         {std::pair<std::uint64_t, std::uint64_t>{1001, 7}, {1001, 6}, {6, 2}, {37, 3}, {333, 0}})
      for (std::uint64_t before : {0, 3}) check_shifted_rows(device, type, 9, cols, before, 1, gap);
  check_shifted_rows(device, DType::bf16, 2, 50257, 0, 0, 7);
  row::RowConfig t;
  t.elements = 8, t.threads = 64, t.rows = 1, t.edges = t.shift = true;
  for (int loads : {0, 1, 3})
    for (int cluster : {1, 2}) {
      t.loads = loads, t.cluster = cluster;
      if (loads * t.threads * cluster * 8 >= 1001 || !loads)
        check_shifted_rows(device, DType::f16, 5, 1001, 1, 2, 4, t);
    }
  check_shifted_rows(device, DType::bf16, 2, 17717, 0, 0, 3);  // 384 threads
  t.loads = 2, t.cluster = 1, t.persistent = true;
  check_shifted_rows(device, DType::bf16, 300, 1001, 5, 0, 7, t);
  auto old = runtime::Device::open("emu:sm_80");
  check_shifted_rows(old, DType::bf16, 3, 4099, 0, 0, 5);
}

TEST(cross_entropy, misaligned_rows_under_every_policy) {
  for (const auto& [async, schedule] :
       {std::pair{"late", "adversarial"}, {"random:1", "random:1"}, {"late", "random:2"}}) {
    auto device = emulator_under(async, schedule);
    for (const auto& t : kMisaligned)
      if (t.stages) check_misaligned_rows(device, DType::bf16, t, 140, 1001, 3, 0, true);
  }
}

TEST(cross_entropy, a_vocabulary_of_50257) {
  const auto c = expect_right(cross_entropy_entry(), {{"rows", "2"}, {"cols", "50257"}});
  // A row's sectors once, its two edges, and what each of 25 warps reads beside it: target and scale.
  EXPECT_LE(c.global_load_sectors, 2u * (50257 * 2 / 32 + 3 + 25 * 2));
  EXPECT_LE(c.global_store_sectors, 2u * (50257 * 2 / 32 + 3 + 2));
  expect_right(cross_entropy_entry(), {{"rows", "300"}, {"cols", "517"}});
}

TEST(cross_entropy, runs_on_every_architecture) {
  for (auto arch : kTargets)
    expect_right(cross_entropy_entry(), {{"dtype", "f16"}, {"rows", "5"}, {"cols", "200"}}, arch);
}

TEST(cross_entropy, the_oracles_gradient_is_a_finite_difference) {
  const std::uint64_t rows = 2, cols = 6;
  auto x = random_array(DType::f64, {rows, cols}, 1).as_doubles();
  const std::vector<double> targets{4, 1};
  const auto loss = [&] {
    const auto o = cross_entropy_ref(x, targets, rows, cols, -100, 0.1, 0.3, 1, DType::f32);
    return o.loss[0] + o.loss[1];
  };
  const auto g = cross_entropy_ref(x, targets, rows, cols, -100, 0.1, 0.3, 1, DType::f32).dlogits;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-6, was = x[i];
    x[i] = was + h;
    const double up = loss();
    x[i] = was - h;
    const double down = loss();
    x[i] = was;
    EXPECT_NEAR(g[i], (up - down) / (2 * h), 1e-7);
  }
}

TEST(cross_entropy, the_mean_counts_and_adds_in_one_launch) {
  auto device = runtime::Device::open("emu");
  for (std::size_t n : {std::size_t(1), std::size_t(77), std::size_t(2500), std::size_t(9001)}) {
    std::vector<std::int64_t> targets(n, 3);
    std::vector<float> losses(n);
    double sum = 0;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (i % 5 == 2) targets[i] = -7;
      kept += targets[i] != -7;
      losses[i] = targets[i] == -7 ? 0.f : float(i % 11) / 4, sum += losses[i];
    }
    auto to = device.upload<std::int64_t>(targets);
    auto from = device.upload<float>(losses);
    auto scale = device.zeros<float>(1), mean = device.zeros<float>(1), all = device.zeros<float>(1);
    mean_loss(device.stream(), std::as_const(from), std::as_const(to), -7, scale, mean);
    mean_loss(device.stream(), std::as_const(from), {}, -7, {}, all);
    device.sync();
    EXPECT_EQ(scale.to_vector()[0], 1.f / float(kept));
    EXPECT_EQ(all.to_vector()[0], float(sum));  // multiples of 1 / 4: exact
    EXPECT_NEAR(mean.to_vector()[0], sum / double(kept), 2e-7 * sum / double(kept) + 1e-9);
  }
  auto loss = device.zeros<float>(1);
  EXPECT_THROW(mean_loss(device.stream(), {}, {}, 0, {}, loss), ArgumentError);
}

TEST(cross_entropy, in_place_bad_targets_and_masked_columns) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t rows = 5, cols = 40;
  auto x = random_array(DType::f32, {rows, cols}, 3);
  x.set(2, -std::numeric_limits<double>::infinity());  // a masked column
  auto logits = device.upload<float>(typed<float>(x));
  const std::vector<std::int32_t> targets{3, 40, -1, -100, 0};
  auto to = device.upload<std::int32_t>(targets);
  auto loss = device.zeros<float>(rows), scale = device.zeros<float>(1);
  auto errors = device.zeros<std::uint32_t>(1);
  count_targets(device.stream(), to, -100, scale);
  CrossEntropy c;
  c.logits = std::as_const(logits), c.dlogits = logits, c.targets = to, c.loss = loss, c.scale = scale;
  c.error_flag = errors, c.rows = rows, c.cols = cols;
  cross_entropy(device.stream(), c);
  device.sync();
  EXPECT_EQ(scale.to_vector()[0], 0.25f);
  EXPECT_EQ(errors.to_vector()[0], 1u);
  const auto got = logits.to_vector(), losses = loss.to_vector();
  std::vector<double> t(targets.begin(), targets.end());
  const auto want = cross_entropy_ref(x.as_doubles(), t, rows, cols, -100, 0, 0, 0.25, DType::f32);
  for (std::size_t i = 0; i < rows * cols; ++i) {
    if (std::isnan(want.dlogits[i]))
      EXPECT_TRUE(std::isnan(got[i])) << i;
    else
      EXPECT_NEAR(got[i], want.dlogits[i], want.dlogits_tolerance[i]) << i;
  }
  EXPECT_NEAR(losses[0], want.loss[0], want.loss_tolerance[0]);
  EXPECT_TRUE(std::isnan(losses[1]) && std::isnan(losses[2]));
  EXPECT_EQ(losses[3], 0.f);
  c.targets = View();
  EXPECT_THROW(cross_entropy(device.stream(), c), ArgumentError);
  const auto kernel = cross_entropy_entry();
  const NamedArray nothing{"logits", HostArray(DType::f32, {5, 0})};
  EXPECT_THROW((void)kernel.prepare(device, Options("cross_entropy", kernel.options), {nothing}, 1),
               ArgumentError);
  const NamedArray input{"logits", HostArray(DType::f32, {3, 8})};
  NamedArray given{"targets", HostArray(DType::s64, {3})};
  given.array.set(0, 7), given.array.set(1, -100);  // the last class, and a row that is ignored
  const auto prepare = [&] {
    (void)kernel.prepare(device, Options("cross_entropy", kernel.options), {input, given}, 1);
  };
  EXPECT_NO_THROW(prepare());
  given.array.set(2, 8);
  EXPECT_THROW(prepare(), ArgumentError);
  given.array.set(2, -1);
  EXPECT_THROW(prepare(), ArgumentError);
}

TEST(cross_entropy, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(cross_entropy_entry(), {{{"rows", "64"}, {"cols", "1024"}},
                                              {{"rows", "300"}, {"cols", "32000"}, {"smoothing", "0.1"}},
                                              {{"rows", "30"}, {"cols", "151936"}, {"z", "1e-3"}},
                                              {{"rows", "300"}, {"cols", "50257"}},
                                              {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}},
                                              {{"dtype", "f16"}, {"rows", "3"}, {"cols", "500001"}}});
}

TEST(cross_entropy, every_variant_assembles_without_spills) { expect_assembles(cross_entropy_entry()); }
