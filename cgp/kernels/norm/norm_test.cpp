// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/kernels/norm/norm_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

const KernelEntry kForward[] = {rms_norm_entry(), layer_norm_entry()};
const KernelEntry kBackward[] = {rms_norm_backward_entry(), layer_norm_backward_entry()};

}  // namespace

TEST(norm, every_row_length_matches_the_oracle) {
  for (const auto& kernel : kForward) {
    for (auto [r, c] : {std::pair{"0", "5"},
                        {"3", "1"},
                        {"17", "7"},
                        {"9", "64"},
                        {"20", "33"},
                        {"2", "1000"},
                        {"3", "1024"},
                        {"1", "4097"}})
      for (const char* residual : {"0", "1"})
        expect_right(kernel, {{"rows", r}, {"cols", c}, {"residual", residual}});
    for (const char* t : {"f32", "f16"}) {
      expect_right(kernel, {{"dtype", t}, {"rows", "5"}, {"cols", "264"}, {"offset", "1"}});
      expect_right(kernel, {{"dtype", t}, {"rows", "5"}, {"cols", "77"}, {"weight", "0"}});
    }
    expect_right(kernel, {{"rows", "2"}, {"cols", "16384"}});
    expect_right(kernel, {{"dtype", "f32"}, {"rows", "1"}, {"cols", "66000"}});  // read twice
  }
}

TEST(norm, gradients_match_the_oracle) {
  for (const auto& kernel : kBackward) {
    for (auto [r, c] : {std::pair{"0", "5"},
                        {"3", "1"},
                        {"17", "7"},
                        {"70", "64"},
                        {"20", "33"},
                        {"280", "1000"},
                        {"30", "1024"},
                        {"3", "4097"}})
      expect_right(kernel, {{"rows", r}, {"cols", c}});
    expect_right(kernel, {{"rows", "5"}, {"cols", "72"}, {"residual", "1"}, {"offset", "1"}});
    for (const char* t : {"f32", "f16"})
      expect_right(kernel,
                   {{"dtype", t}, {"rows", "9"}, {"cols", "264"}, {"weight", t[1] == '1' ? "0" : "1"}});
    expect_right(kernel, {{"rows", "300"}, {"cols", "520"}});
    expect_right(kernel, {{"rows", "3"}, {"cols", "16384"}});
  }
}

namespace {

// The loss sum(y * dy) of a forward pass in double, for finite differences.
double loss(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b,
            const std::vector<double>& dy, std::uint64_t rows, std::uint64_t cols, bool layer) {
  const auto o = norm_ref(x, w, b, rows, cols, layer, 1e-6, 0, DType::f32);
  double sum = 0;
  for (std::size_t i = 0; i < dy.size(); ++i) sum += o.y[i] * dy[i];
  return sum;
}

// LayerNorm forward and, where sums over rows are possible, backward with this config.
void check_skeleton(runtime::Device& device, const row::RowConfig& t, std::uint64_t rows,
                    std::uint64_t cols) {
  const auto x = random_array(DType::bf16, {rows, cols}, 7), dy = random_array(DType::bf16, {rows, cols}, 8),
             w = random_array(DType::bf16, {cols}, 9);
  const auto want = norm_ref(x.as_doubles(), w.as_doubles(), {}, rows, cols, true, 1e-6, 0, DType::bf16);
  auto dx = device.alloc<bfloat16>(rows * cols), dev_x = device.upload<bfloat16>(typed<bfloat16>(x)),
       dev_dy = device.upload<bfloat16>(typed<bfloat16>(dy)),
       dev_w = device.upload<bfloat16>(typed<bfloat16>(w)), y = device.alloc<bfloat16>(rows * cols),
       dw = device.alloc<bfloat16>(cols);
  auto mean = device.alloc<float>(rows), rstd = device.alloc<float>(rows);
  Norm n;
  n.x = dev_x, n.y = y, n.weight = dev_w, n.mean = mean, n.rstd = rstd, n.rows = rows, n.cols = cols;
  n.config = t;
  layer_norm(device.stream(), n);
  HostArray got(DType::bf16, x.shape);
  device.sync();
  y.download(typed<bfloat16>(got));
  auto check = compare(got, want.y, [&](std::uint64_t i) { return want.y_tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe() << row::describe(t) << " " << cols;
  if (!t.visits_many()) return;
  NormBackward b;
  b.x = dev_x, b.dy = dev_dy, b.weight = dev_w, b.mean = mean, b.rstd = rstd, b.dx = dx, b.dweight = dw;
  b.rows = rows, b.cols = cols, b.config = t;
  auto workspace = device.alloc<float>(norm_backward_workspace(b, true, device.info()));
  b.workspace = workspace;
  layer_norm_backward(device.stream(), b);
  device.sync();
  std::vector<double> means, rstds;
  for (float v : mean.to_vector()) means.push_back(double(v));
  for (float v : rstd.to_vector()) rstds.push_back(double(v));
  const auto back = norm_backward_ref(x.as_doubles(), dy.as_doubles(), {}, w.as_doubles(), means, rstds, rows,
                                      cols, 0, DType::bf16, DType::bf16);
  dx.download(typed<bfloat16>(got));
  check = compare(got, back.dx, [&](std::uint64_t i) { return back.dx_tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe() << row::describe(t) << " dx " << cols;
  HostArray got_w(DType::bf16, {cols});
  dw.download(typed<bfloat16>(got_w));
  check = compare(got_w, back.dweight, [&](std::uint64_t i) { return back.dweight_tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe() << row::describe(t) << " dweight " << cols;
}

}  // namespace

// The bias that was added before the norm: dx with the residual's gradient, summed over rows.
TEST(norm, dx_is_summed_over_rows) {
  auto device = runtime::Device::open("emu:sm_90a");
  for (bool layer : {false, true})
    for (auto [rows, cols] :
         {std::pair<std::uint64_t, std::uint64_t>{300, 768}, {5, 40}, {7, 4104}, {9, 31}}) {
      const auto x = random_array(DType::bf16, {rows, cols}, 7),
                 dy = random_array(DType::bf16, {rows, cols}, 8),
                 more = random_array(DType::bf16, {rows, cols}, 9), w = random_array(DType::bf16, {cols}, 10);
      const auto up = [&](const HostArray& a) { return device.upload<bfloat16>(typed<bfloat16>(a)); };
      const auto dev_x = up(x), dev_dy = up(dy), dev_more = up(more), dev_w = up(w);
      const auto f = norm_ref(x.as_doubles(), w.as_doubles(), {}, rows, cols, layer, 1e-6, 0, DType::bf16);
      const std::vector<float> means(f.mean.begin(), f.mean.end()), rstds(f.rstd.begin(), f.rstd.end());
      const auto mean = device.upload<float>(means), rstd = device.upload<float>(rstds);
      auto dx = device.alloc<bfloat16>(rows * cols);
      auto dw = device.alloc<float>(cols), db = device.alloc<float>(cols), sum = device.alloc<float>(cols);
      NormBackward b;
      b.x = dev_x, b.dy = dev_dy, b.dsum = dev_more, b.weight = dev_w, b.rstd = rstd, b.dx = dx,
      b.dweight = dw;
      if (layer) b.mean = mean, b.dbias = db;
      b.dx_sum = sum, b.rows = rows, b.cols = cols;
      auto workspace = device.alloc<float>(norm_backward_workspace(b, layer, device.info()));
      b.workspace = workspace;
      layer ? layer_norm_backward(device.stream(), b) : rms_norm_backward(device.stream(), b);
      device.sync();
      const std::vector<double> used_means(means.begin(), means.end()),
          used_rstds(rstds.begin(), rstds.end());
      const auto back = norm_backward_ref(x.as_doubles(), dy.as_doubles(), more.as_doubles(), w.as_doubles(),
                                          layer ? used_means : std::vector<double>(), used_rstds, rows, cols,
                                          0, DType::f32, DType::f32);
      const auto got = sum.to_vector();
      for (std::uint64_t c = 0; c < cols; ++c) {
        double want = 0, terms = 0, tolerance = 0;
        for (std::uint64_t r = 0; r < rows; ++r) {
          const auto at = r * cols + c;
          want += back.dx[at], terms += std::fabs(back.dx[at]), tolerance += back.dx_tolerance[at];
        }
        ASSERT_NEAR(double(got[c]), want, tolerance + double(rows) * 0x1p-24 * terms)
            << (layer ? "layer_norm " : "rms_norm ") << rows << " x " << cols << ", column " << c;
      }
    }
}

TEST(norm, the_oracles_gradients_are_finite_differences) {
  const std::uint64_t rows = 3, cols = 7;
  for (bool layer : {false, true}) {
    auto x = random_array(DType::f64, {rows, cols}, 1).as_doubles();
    auto w = random_array(DType::f64, {cols}, 2).as_doubles(),
         b = random_array(DType::f64, {cols}, 3).as_doubles();
    const auto dy = random_array(DType::f64, {rows, cols}, 4).as_doubles();
    if (!layer) b.clear();
    const auto f = norm_ref(x, {}, {}, rows, cols, layer, 1e-6, 0, DType::f32);
    const auto g = norm_backward_ref(x, dy, {}, w, layer ? f.mean : std::vector<double>(), f.rstd, rows, cols,
                                     0, DType::f32, DType::f32);
    const auto slope = [&](double& at) {
      const double h = 1e-6, was = at;
      at = was + h;
      const double up = loss(x, w, b, dy, rows, cols, layer);
      at = was - h;
      const double down = loss(x, w, b, dy, rows, cols, layer);
      at = was;
      return (up - down) / (2 * h);
    };
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(g.dx[i], slope(x[i]), 1e-6);
    for (std::size_t i = 0; i < cols; ++i) EXPECT_NEAR(g.dweight[i], slope(w[i]), 1e-6);
    for (std::size_t i = 0; i < b.size(); ++i) EXPECT_NEAR(g.dbias[i], slope(b[i]), 1e-6);
  }
}

TEST(norm, every_skeleton_takes_ragged_rows) {
  auto device = runtime::Device::open("emu");
  // Elements, threads, rows, loads, cluster, stages, min_blocks, persistent, hold_columns, overlap_exchange,
  // one_pass, edges, prefetch.
  const row::RowConfig configs[] = {{8, 64, 1, 2, 1, 3, 2, false, true},
                                    {8, 64, 1, 1, 2, 2, 1, false, false},
                                    {8, 32, 1, 2, 1, 2, 1, false, false},
                                    {8, 64, 1, 2, 1, 0, 2, true, true},
                                    {8, 64, 1, 1, 2, 0, 1, true, false},
                                    {8, 32, 4, 4, 1, 0, 1, true, true},
                                    {8, 64, 1, 1, 2, 0, 0, false, false},
                                    {8, 96, 1, 0, 2, 0, 0, false, false},
                                    {8, 64, 1, 1, 2, 3, 1, false, false, true},
                                    {8, 32, 1, 2, 2, 4, 1, false, true, true},
                                    {8, 32, 1, 1, 2, 6, 1, false, true, true},
                                    {8, 64, 1, 2, 1, 3, 2, false, true, false, false, false, true},
                                    {8, 32, 1, 2, 2, 4, 1, false, true, false, false, false, true}};
  for (const auto& t : configs)
    for (std::uint64_t cols : {1024u, 1000u, 520u, 8u})
      if (t.threads > 32 || !t.stages || cols <= 512) check_skeleton(device, t, 300, cols);
  // Rows that begin anywhere; rows of a team always equally far from where memory is aligned.
  for (auto t : configs) {
    t.edges = true;
    const int most = t.loads ? 8 * t.threads * t.loads * t.cluster : 1001;
    check_skeleton(device, t, t.visits_many() ? 300 : 11, std::uint64_t(std::min(most - 5, 523)));
  }
}

TEST(norm, overlapping_ring_under_every_policy) {
  for (const auto& [async, schedule] : {std::pair{"late", "adversarial"},
                                        {"random:1", "random:1"},
                                        {"late", "random:2"},
                                        {"eager", "adversarial"}}) {
    auto device = cgp::testing::emulator_under(async, schedule);
    check_skeleton(device, {8, 32, 1, 1, 4, 3, 1, false, true, true, false, true}, 301, 523);
    check_skeleton(device, {8, 32, 1, 2, 2, 3, 1, false, true, false, false, true, true}, 140, 523);
    // More rows than teams, so that stages and slots come round.
    check_skeleton(device, {8, 32, 1, 1, 4, 3, 1, false, false, true}, 301, 520);
  }
}

// What is selected for rows that do not begin at multiples of 16 bytes: forms, types, lengths.
TEST(norm, misaligned_rows_match_the_oracle) {
  for (const auto& kernel : kForward) {
    const auto run = [&](const char* t, const char* rows, const char* cols, const char* weight,
                         const char* residual) {
      expect_right(
          kernel, {{"dtype", t}, {"rows", rows}, {"cols", cols}, {"weight", weight}, {"residual", residual}});
    };
    run("bf16", "270", "387", "1", "1"), run("f32", "19", "203", "1", "1");
    run("bf16", "20", "4099", "1", "0"), run("bf16", "5", "1283", "0", "0"), run("f16", "7", "130", "1", "0");
  }
  for (const auto& kernel : kBackward) {
    expect_right(kernel, {{"rows", "280"}, {"cols", "263"}, {"residual", "1"}});
    expect_right(kernel, {{"rows", "24"}, {"cols", "4099"}});
    expect_right(kernel, {{"rows", "5"}, {"cols", "8191"}});  // more teams than rows
    expect_right(kernel, {{"dtype", "f32"}, {"rows", "33"}, {"cols", "641"}});
  }
}

TEST(norm, strided_rows_heads_and_mixed_types) {
  auto device = runtime::Device::open("emu");
  const std::uint64_t tokens = 5, heads = 3, size = 16, pitch = 3 * heads * size;
  const auto x = random_array(DType::bf16, {tokens, pitch}, 3);
  const auto w = random_array(DType::f32, {size}, 4);
  auto in = device.upload<bfloat16>(typed<bfloat16>(x));
  auto weight = device.upload<float>(typed<float>(w));
  auto out = device.zeros<float>(tokens * heads * size);
  QkNorm n;
  n.q = in, n.q_out = out, n.q_weight = weight, n.tokens = tokens, n.q_heads = heads, n.head_dim = size;
  n.q_pitch = pitch, n.eps = 1e-5f;
  qk_norm(device.stream(), n);
  device.sync();
  std::vector<double> packed;
  for (std::uint64_t t = 0; t < tokens; ++t)
    for (std::uint64_t i = 0; i < heads * size; ++i) packed.push_back(x.at(t * pitch + i));
  const auto want = norm_ref(packed, w.as_doubles(), {}, tokens * heads, size, false, 1e-5, 0, DType::f32);
  HostArray got(DType::f32, {tokens * heads, size});
  out.download(typed<float>(got));
  const auto check = compare(got, want.y, [&](std::uint64_t i) { return want.y_tolerance[i]; });
  EXPECT_TRUE(check.pass) << check.describe();
}

TEST(norm, special_rows_are_defined) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  auto device = runtime::Device::open("emu");
  for (std::uint64_t cols : {8u, 40u, 2000u}) {
    HostArray x(DType::f32, {4, cols});
    for (std::uint64_t i = 0; i < cols; ++i) {
      x.set(i, 1e4 + double(i % 2));          // the mean is far from 0
      x.set(cols + i, i == 5 ? nan : 1);      // NaN poisons its row alone
      x.set(2 * cols + i, i == 2 ? inf : 1);  // inf: NaN (LayerNorm)
      x.set(3 * cols + i, 7);                 // no variance
    }
    auto in = device.upload<float>(typed<float>(x)), y = device.zeros<float>(4 * cols);
    Norm n;
    n.x = in, n.y = y, n.rows = 4, n.cols = cols;
    layer_norm(device.stream(), n);
    device.sync();
    const auto got = y.to_vector();
    for (std::uint64_t i = 0; i < cols; ++i) {
      EXPECT_NEAR(got[i], i % 2 ? 1 : -1, 2e-3) << cols;
      EXPECT_TRUE(std::isnan(got[cols + i]) && std::isnan(got[2 * cols + i]));
      EXPECT_EQ(got[3 * cols + i], 0.f);
    }
  }
}

TEST(norm, bad_arguments_are_named) {
  auto device = runtime::Device::open("emu");
  auto x = device.zeros<float>(60), y = device.zeros<float>(60), w = device.zeros<float>(20);
  const auto message = [&](Norm n, bool layer = false) -> std::string {
    try {
      layer ? layer_norm(device.stream(), n) : rms_norm(device.stream(), n);
    } catch (const ArgumentError& e) {
      return e.what();
    }
    return "";
  };
  Norm n;
  n.x = x, n.y = y, n.rows = 3, n.cols = 20;
  EXPECT_EQ(message(n), "");
  auto bad = n;
  bad.cols = 0;
  EXPECT_NE(message(bad).find("cols must be at least 1"), std::string::npos);
  bad = n, bad.rows = 4;
  EXPECT_NE(message(bad).find("rms_norm: x must hold all rows"), std::string::npos);
  bad = n, bad.y_layout.pitch = 19;
  EXPECT_NE(message(bad).find("y has rows that overlap"), std::string::npos);
  bad = n, bad.weight = w, bad.cols = 15, bad.rstd = x, bad.bias = w;
  EXPECT_NE(message(bad).find("bias is not part of RMSNorm"), std::string::npos);
  bad = n, bad.y = View();
  EXPECT_NE(message(bad, true).find("layer_norm: y must be given"), std::string::npos);
  for (float eps : {-1e-6f, std::nanf(""), HUGE_VALF}) {
    bad = n, bad.eps = eps;
    EXPECT_NE(message(bad).find("eps must be a finite number, 0 or more"), std::string::npos) << eps;
  }
  bad = n, bad.y = std::as_const(y);
  EXPECT_NE(message(bad).find("it is const"), std::string::npos);
}

TEST(norm, runs_on_every_architecture) {
  for (auto arch : kTargets) {
    const char* t = arch == "sm_75" ? "f16" : "bf16";
    expect_right(kForward[1], {{"dtype", t}, {"rows", "5"}, {"cols", "200"}}, arch);
    expect_right(kBackward[1], {{"dtype", t}, {"rows", "5"}, {"cols", "200"}}, arch);
  }
}

TEST(norm, right_and_repeatable_on_a_gpu) {
  for (const auto& kernel : kForward)
    expect_right_on_gpu(kernel, {{{"rows", "64"}, {"cols", "1024"}},
                                 {{"rows", "700"}, {"cols", "8192"}, {"residual", "1"}},
                                 {{"rows", "300"}, {"cols", "65536"}},
                                 {{"rows", "7"}, {"cols", "100000"}},
                                 {{"rows", "700"}, {"cols", "8191"}},
                                 {{"rows", "300"}, {"cols", "32767"}, {"residual", "1"}},
                                 {{"dtype", "f32"}, {"rows", "33"}, {"cols", "777"}},
                                 {{"dtype", "f16"}, {"rows", "3"}, {"cols", "65536"}}});
  for (const auto& kernel : kBackward)
    expect_right_on_gpu(kernel, {{{"rows", "640"}, {"cols", "1024"}},
                                 {{"rows", "700"}, {"cols", "4096"}, {"residual", "1"}},
                                 {{"rows", "700"}, {"cols", "4095"}, {"residual", "1"}},
                                 {{"rows", "300"}, {"cols", "32768"}},
                                 {{"dtype", "f32"}, {"rows", "333"}, {"cols", "777"}},
                                 {{"dtype", "f16"}, {"rows", "30"}, {"cols", "65536"}}});
}

TEST(norm, every_variant_assembles_without_spills) {
  for (const auto& kernel : kForward) expect_assembles(kernel);
  for (const auto& kernel : kBackward) expect_assembles(kernel);
}
