// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/row/row_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

using namespace cgp;
using namespace cgp::kernels::row;
using cgp::kernels::View;

namespace {

runtime::DeviceInfo h200() {
  runtime::DeviceInfo d;
  d.sm_count = 132, d.cc_major = 9, d.max_cluster = 16;
  d.smem_per_sm = 228 * 1024, d.smem_per_block_optin = 227 * 1024;
  return d;
}
// Norms as their launchers describe them.
RowNeeds forward(DType t, bool layer, bool residual) {
  RowNeeds n;
  n.inputs.assign(residual ? 2 : 1, t), n.outputs = n.inputs, n.columns.assign(layer ? 2 : 1, t);
  n.fold_size = layer ? 3 : 1;
  return n;
}
RowNeeds backward(DType t, bool layer) {
  RowNeeds n;
  n.inputs = {t, t}, n.outputs = n.columns = {t}, n.accumulators = layer ? 2 : 1;
  return n;
}
RowPlan plan(const RowNeeds& n, std::uint64_t rows, std::uint64_t cols, Fit fit = Fit::wide) {
  return plan_rows(n, rows, cols, fit, h200());
}
View at(std::uint64_t address, DType t) { return View(address, 1u << 30, t, true, nullptr); }

}  // namespace

// The best of sweeps on an H200 that assembles without spills, or within 1 % of it.
TEST(row_plan, long_rows_get_what_measured_best) {
  const auto config = [](const RowNeeds& n, std::uint64_t rows, std::uint64_t cols) {
    return describe(plan(n, rows, cols).config);
  };
  EXPECT_EQ(config(forward(DType::f32, false, false), 1024, 131072),
            "512x1_vec4_loads8_cluster8_stages3_min_blocks1_hold_columns");
  EXPECT_EQ(config(forward(DType::bf16, false, false), 1024, 131072),
            "512x1_vec8_loads4_cluster8_stages3_min_blocks1_hold_columns");
  EXPECT_EQ(config(forward(DType::bf16, false, false), 2048, 65536),
            "256x1_vec8_loads4_cluster8_min_blocks3_persistent_hold_columns");
  EXPECT_EQ(config(forward(DType::bf16, false, false), 4096, 32768), "512x1_vec8_loads8_min_blocks2");
  EXPECT_EQ(config(forward(DType::bf16, false, false), 8192, 16384), "512x1_vec8_loads4_min_blocks2");
  EXPECT_EQ(config(forward(DType::bf16, false, true), 1024, 131072),
            "512x1_vec8_loads4_cluster8_stages3_min_blocks1_hold_columns");
  EXPECT_EQ(config(forward(DType::bf16, false, true), 2048, 65536),
            "512x1_vec8_loads2_cluster8_stages3_min_blocks1_hold_columns");
  EXPECT_EQ(config(backward(DType::bf16, false), 1024, 131072),
            "512x1_vec8_loads4_cluster8_stages3_min_blocks1_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, false), 2048, 65536),
            "512x1_vec8_loads2_cluster8_stages6_min_blocks1_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, false), 4096, 32768),
            "512x1_vec8_loads2_cluster4_stages6_min_blocks1_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, false), 16384, 8192),
            "256x1_vec8_loads2_cluster2_stages6_min_blocks2_hold_columns_overlap_exchange");
  EXPECT_EQ(config(forward(DType::bf16, true, false), 1024, 131072),
            "256x1_vec8_loads8_cluster8_stages3_min_blocks2_hold_columns_overlap_exchange");
  EXPECT_EQ(config(forward(DType::bf16, true, false), 2048, 65536),
            "256x1_vec8_loads8_cluster4_stages3_min_blocks2_hold_columns_overlap_exchange");
  EXPECT_EQ(config(forward(DType::bf16, true, false), 4096, 32768),
            "512x1_vec8_loads4_cluster2_stages3_min_blocks1_hold_columns");
  EXPECT_EQ(config(forward(DType::bf16, true, false), 8192, 16384), "256x1_vec8_loads8_min_blocks4");
  EXPECT_EQ(config(forward(DType::bf16, true, false), 32768, 4096), "128x1_vec8_loads4_min_blocks8");
  EXPECT_EQ(config(forward(DType::bf16, true, false), 16384, 8192), "256x1_vec8_loads4_min_blocks4");
  EXPECT_EQ(config(backward(DType::bf16, true), 2048, 65536),
            "256x1_vec8_loads4_cluster8_stages3_min_blocks2_hold_columns_overlap_exchange");
  EXPECT_EQ(config(backward(DType::bf16, true), 8192, 16384),
            "512x1_vec8_loads2_cluster2_stages3_min_blocks1_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, true), 16384, 8192),
            "512x1_vec8_loads2_stages3_min_blocks1_hold_columns_prefetch");
  RowNeeds loss;  // cross-entropy
  loss.inputs = loss.outputs = {DType::bf16}, loss.fold_size = 2, loss.expensive = loss.row_loads = true;
  EXPECT_EQ(config(loss, 4096, 151936), "512x1_vec8_loads10_cluster4_min_blocks1_persistent");
  EXPECT_EQ(config(loss, 8192, 50304), "448x1_vec8_loads15_stages2_min_blocks1");
  EXPECT_EQ(config(loss, 1024, 50304), "448x1_vec8_loads8_cluster2_min_blocks2");
  EXPECT_EQ(config(loss, 1024, 84000), "256x1_vec8_loads11_cluster4_stages2_min_blocks2");
  EXPECT_EQ(config(loss, 512, 131072), "256x1_vec8_loads8_cluster8_min_blocks2_persistent");
  EXPECT_EQ(config(loss, 65536, 1000), "32x4_vec8_loads4_min_blocks10");
  EXPECT_EQ(config(loss, 8192, 65536), "512x1_vec8_loads8_cluster2_min_blocks1_persistent");
  RowNeeds softmax = loss;
  softmax.row_loads = false;
  EXPECT_EQ(config(softmax, 8192, 50304), "256x1_vec8_loads13_cluster2_stages2_min_blocks1");
  EXPECT_EQ(config(softmax, 8192, 65536), "256x1_vec8_loads8_cluster4_min_blocks2_persistent");
  EXPECT_EQ(config(loss, 8192, 32000), "512x1_vec8_loads8_min_blocks2");
  EXPECT_EQ(config(forward(DType::bf16, false, false), 16384, 8192), "256x1_vec8_loads4_min_blocks4");
  EXPECT_EQ(config(forward(DType::bf16, false, false), 32768, 4096), "128x1_vec8_loads4_min_blocks8");
  EXPECT_EQ(config(forward(DType::f32, true, false), 16384, 8192), "256x1_vec4_loads8_min_blocks4");
  EXPECT_EQ(config(backward(DType::bf16, false), 131072, 1024),
            "128x1_vec8_stages6_min_blocks6_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, true), 131072, 1024),
            "64x1_vec8_loads2_stages3_min_blocks7_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, true), 65536, 2048),
            "128x1_vec8_loads2_stages4_min_blocks5_hold_columns");
  EXPECT_EQ(config(backward(DType::bf16, true), 32768, 4096),
            "256x1_vec8_loads2_stages3_min_blocks2_hold_columns");
  const auto edges = [](const RowNeeds& n, std::uint64_t rows, std::uint64_t cols) {
    return describe(plan(n, rows, cols, Fit::edges).config);
  };
  EXPECT_EQ(edges(loss, 8192, 50257), "448x1_vec8_loads15_stages2_min_blocks1_edges");
  EXPECT_EQ(edges(forward(DType::bf16, true, false), 16386, 8191),
            "128x1_vec8_loads8_min_blocks2_persistent_hold_columns_edges");
  EXPECT_EQ(edges(forward(DType::bf16, true, false), 2048, 65535),
            "512x1_vec8_loads8_cluster2_stages3_min_blocks1_hold_columns_overlap_exchange_edges");
  EXPECT_EQ(edges(forward(DType::bf16, true, false), 65536, 1537),
            "32x4_vec8_loads6_min_blocks3_persistent_hold_columns_edges");
  EXPECT_EQ(edges(forward(DType::bf16, true, false), 32768, 4097),
            "128x1_vec8_loads4_min_blocks4_persistent_hold_columns_edges");
  EXPECT_EQ(edges(forward(DType::bf16, false, false), 32768, 4281),
            "96x1_vec8_loads6_min_blocks5_persistent_hold_columns_edges");
  EXPECT_EQ(edges(softmax, 4096, 32767), "512x1_vec8_loads8_min_blocks2_edges");
  EXPECT_EQ(edges(backward(DType::bf16, true), 131200, 1023),
            "32x1_vec8_loads4_stages3_min_blocks12_hold_columns_edges");
  EXPECT_EQ(edges(backward(DType::bf16, true), 4096, 32767),
            "128x1_vec8_loads4_cluster8_stages4_min_blocks3_hold_columns_overlap_exchange_edges");
  EXPECT_EQ(config(backward(DType::bf16, false), 65536, 1000),
            "128x1_vec8_stages6_min_blocks4_hold_columns_prefetch");
  EXPECT_EQ(config(backward(DType::bf16, false), 4096, 17696),
            "384x1_vec8_loads3_cluster2_stages6_min_blocks1_hold_columns_overlap_exchange");
  EXPECT_EQ(config(backward(DType::bf16, true), 4096, 17696),
            "192x1_vec8_loads3_cluster4_stages4_min_blocks3_hold_columns_overlap_exchange");
  EXPECT_EQ(config(backward(DType::bf16, true), 800, 84000),
            "448x1_vec8_loads3_cluster8_stages5_min_blocks1_hold_columns_prefetch");
  EXPECT_EQ(edges(backward(DType::bf16, false), 4096, 17717),
            "192x1_vec8_loads3_cluster4_stages4_min_blocks3_hold_columns_prefetch_edges");
  EXPECT_EQ(edges(backward(DType::bf16, true), 4096, 17717),
            "192x1_vec8_loads3_cluster4_stages6_min_blocks2_hold_columns_prefetch_edges");
}

// Slots that a row has no access for cost as much as those it has.
TEST(row_plan, rows_of_any_length_waste_few_slots) {
  RowNeeds softmax;
  softmax.inputs = softmax.outputs = {DType::bf16}, softmax.fold_size = 2, softmax.expensive = true;
  for (const auto& needs : {forward(DType::bf16, false, false), forward(DType::bf16, true, false), softmax})
    for (std::uint64_t cols = 520; cols <= 32768; cols += 8) {
      const auto c = plan(needs, 1 << 16, cols).config;
      const auto slots = std::uint64_t(c.threads * c.loads * c.cluster);
      ASSERT_GE(slots, cols / 8) << describe(c);
      if (c.stages) continue;  // a part for each block of a cluster
      ASSERT_LE(double(slots), 1.2 * double(cols / 8) + 32) << cols << " " << describe(c);
    }
}

TEST(row_plan, says_why) {
  const auto held = plan(backward(DType::bf16, false), 16384, 8192).why;
  EXPECT_NE(
      held.find("a ring of 6 rows in a cluster, column vectors in registers; a row's statistics travel"),
      std::string::npos)
      << held;
}

// Edges take rows of all tensors that begin equally far from where memory is aligned, row by row.
TEST(row_plan, rows_in_step_have_edges) {
  const Layout tight{1001}, wide{1016}, apart{1009};
  const View x = at(4096, DType::bf16), y = at(8192, DType::bf16), off = at(8198, DType::bf16),
             f = at(256, DType::f32);
  EXPECT_EQ(fit(8, 1000, {{x, {1000}}, {y, {1000}}}), Fit::wide);
  EXPECT_EQ(fit(8, 1001, {{x, tight}, {y, tight}}), Fit::edges);
  EXPECT_EQ(fit(8, 1001, {{x, tight}, {y, apart}}), Fit::edges);   // 8 elements further a row
  EXPECT_EQ(fit(8, 1001, {{x, tight}, {y, wide}}), Fit::element);  // 15 further
  EXPECT_EQ(fit(8, 1001, {{x, tight}, {off, tight}}), Fit::element);
  EXPECT_EQ(fit(8, 1000, {{off, {1000}}, {off, {1000}}}, {x}), Fit::edges);
  EXPECT_EQ(fit(8, 1001, {{x, tight}, {f, tight}}), Fit::edges);    // f32: every 4 elements
  EXPECT_EQ(fit(8, 1001, {{f, tight}, {x, tight}}), Fit::element);  // the narrowest comes first
  EXPECT_EQ(fit(8, 127, {{x, {127}}}), Fit::element);               // short
  EXPECT_EQ(fit(8, 1001, {{x, {1001, 3, 3003}}}), Fit::element);    // in groups
  EXPECT_EQ(fit(8, 1001, {{x, tight}, {View(), tight}}), Fit::edges);
}

// Whatever the lengths and types: a row fits, and what is to be resident fits an SM.
TEST(row_plan, plans_fit_the_device) {
  const auto d = h200();
  for (DType t : {DType::bf16, DType::f32})
    for (const auto& n : {forward(t, false, false), forward(t, false, true), forward(t, true, false),
                          forward(t, true, true), backward(t, false), backward(t, true)})
      for (std::uint64_t cols = 8; cols <= 1 << 18; cols += (cols % 8 ? cols / 8 / 8 * 8 + 5 : 3)) {
        const bool edges = cols % 8 != 0;  // in turn with aligned rows
        if (edges && cols < 128) continue;
        RowConfig config;
        try {
          config = plan(n, 1 << 20, cols, edges ? Fit::edges : Fit::wide).config;
        } catch (const Unsupported&) {
          continue;  // sums over rows that long
        }
        const auto what = text::cat(describe(config), " for ", cols);
        const int threads = config.threads * config.rows;
        EXPECT_LE(threads, 1024) << what;
        EXPECT_LE(threads * std::max(config.min_blocks, 1), 2048) << what;
        EXPECT_LE(config.cluster, 8) << what;
        if (config.loads) {
          const int accesses = config.threads * config.loads * config.cluster;
          EXPECT_GE(std::uint64_t(accesses), cols / std::uint64_t(config.elements)) << what;
        }
        const std::size_t stage =
            std::size_t(config.threads * config.loads * config.elements * bytes(t)) * n.inputs.size();
        const std::size_t block = stage * std::size_t(config.stages);
        EXPECT_LE(block + 2048, d.smem_per_block_optin) << what;
        EXPECT_LE((block + 3072) * std::size_t(std::max(config.min_blocks, 1)), d.smem_per_sm) << what;
        EXPECT_TRUE(!config.overlap_exchange || (config.cluster > 1 && config.stages > 2)) << what;
        if (config.edges) {
          EXPECT_GE(config.threads, 3 * config.elements) << what;
          EXPECT_TRUE(config.hold_columns || n.columns.empty()) << what;
        }
      }
}
