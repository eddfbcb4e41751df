// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

void rows(const char* variant, const char* dtype, const char* layout, const char* groups, const char* rows,
          const char* n, const char* k, const char* spread, std::string_view arch, const char* wide = "0",
          const char* gather = "0", const char* alpha = "1") {
  expect_right(grouped_gemm_entry(),
               {{"variant", variant},
                {"dtype", dtype},
                {"layout", layout},
                {"groups", groups},
                {"rows", rows},
                {"n", n},
                {"k", k},
                {"spread", spread},
                {"wide", wide},
                {"gather", gather},
                {"alpha", alpha}},
               arch);
}
void depth(const char* variant, const char* dtype, const char* groups, const char* rows, const char* m,
           const char* n, const char* spread, std::string_view arch, const char* wide = "0") {
  expect_right(grouped_gemm_entry(),
               {{"variant", variant},
                {"form", "depth"},
                {"dtype", dtype},
                {"groups", groups},
                {"rows", rows},
                {"m", m},
                {"n", n},
                {"spread", spread},
                {"wide", wide}},
               arch);
}

void problems(const char* variant, const char* dtype, const char* layout, const char* groups,
              const char* rows, const char* n, const char* k, std::string_view arch,
              const char* misaligned = "0", const char* pointers = "0") {
  expect_right(grouped_gemm_entry(),
               {{"variant", variant},
                {"form", "problems"},
                {"dtype", dtype},
                {"layout", layout},
                {"groups", groups},
                {"rows", rows},
                {"n", n},
                {"k", k},
                {"misaligned", misaligned},
                {"pointers", pointers}},
               arch);
}

}  // namespace

TEST(grouped_rows_simt, every_type_layout_and_spread) {
  rows("simt", "f32", "nn", "3", "70", "17", "19", "ragged", "sm_75");
  rows("simt", "bf16", "nt", "5", "40", "33", "7", "skewed", "sm_80", "1", "0", "0.5");
  rows("simt", "f16", "nn", "40", "33", "9", "5", "holes", "sm_75");
  rows("simt", "f32", "nt", "2", "9", "5", "0", "even", "sm_90a");
  rows("simt", "f32", "nt", "4", "100", "20", "30", "ragged", "sm_80", "0", "1");
}

TEST(grouped_depth_simt, every_type_and_spread) {
  depth("simt", "f32", "3", "50", "20", "70", "ragged", "sm_75");
  depth("simt", "bf16", "4", "33", "9", "7", "one", "sm_80", "1");
}

TEST(grouped_sm80, ragged_groups_of_both_forms) {
  rows("sm80", "bf16", "nt", "5", "300", "264", "72", "ragged", "sm_80");
  rows("sm80", "f16", "nn", "3", "100", "72", "136", "skewed", "sm_89", "1", "0", "0.5");
  depth("sm80", "bf16", "4", "150", "136", "72", "holes", "sm_80");
  rows("auto", "bf16", "nt", "4", "150", "136", "64", "ragged", "sm_80", "0", "1");
}

TEST(grouped_rows_sm90, ragged_groups_of_every_kind) {
  for (const char* l : {"nn", "nt"}) {
    rows("sm90", "bf16", l, "5", "300", "264", "72", "ragged", "sm_90a");
    rows("sm90", "f16", l, "3", "200", "72", "136", "skewed", "sm_90a", "1", "0", "0.5");
  }
  rows("sm90", "bf16", "nt", "1", "129", "136", "64", "even", "sm_90a");
  rows("sm90", "bf16", "nt", "6", "150", "64", "64", "one", "sm_90a");
  rows("sm90", "bf16", "nt", "100", "90", "64", "64", "holes", "sm_90a");  // several windows of groups
  rows("sm90", "bf16", "nt", "3", "1", "8", "8", "one", "sm_90a");
  rows("auto", "bf16", "nt", "4", "150", "136", "64", "ragged", "sm_90a", "0", "1");  // by an index
  rows("auto", "f16", "nt", "4", "50", "24", "65", "ragged", "sm_90a", "0", "1");     // and misaligned rows
}

TEST(grouped_depth_sm90, ragged_groups_of_every_kind) {
  depth("sm90", "bf16", "4", "300", "136", "264", "ragged", "sm_90a");
  depth("sm90", "f16", "6", "200", "72", "72", "holes", "sm_90a", "1");
  depth("sm90", "bf16", "2", "130", "8", "8", "one", "sm_90a");
}

TEST(grouped_problems_simt, every_size_and_alignment) {
  problems("simt", "f32", "nn", "5", "60", "40", "30", "sm_75", "1");
  problems("simt", "bf16", "nt", "3", "30", "33", "17", "sm_80");
}

TEST(grouped_problems_sm90, items_of_every_size_and_alignment) {
  problems("sm90", "bf16", "nt", "5", "300", "264", "136", "sm_90a");
  problems("sm90", "bf16", "nn", "4", "200", "136", "72", "sm_90a", "1");
  problems("sm90", "f16", "nt", "3", "150", "72", "64", "sm_90a", "0", "1");
}

TEST(grouped_gemm, right_and_repeatable_on_a_gpu) {
  expect_right_on_gpu(grouped_gemm_entry(),
                      {{{"groups", "8"}, {"rows", "1000"}, {"n", "512"}, {"k", "512"}},
                       {{"groups", "64"}, {"rows", "3000"}, {"n", "264"}, {"k", "136"}, {"spread", "skewed"}},
                       {{"groups", "256"}, {"rows", "2000"}, {"n", "256"}, {"k", "64"}, {"spread", "holes"}},
                       {{"groups", "1"}, {"rows", "1001"}, {"n", "520"}, {"k", "1032"}},
                       {{"layout", "nn"}, {"spread", "one"}, {"wide", "1"}},
                       {{"form", "depth"}, {"groups", "16"}, {"rows", "2000"}, {"spread", "holes"}},
                       {{"form", "depth"}, {"dtype", "f16"}, {"rows", "999"}, {"m", "136"}, {"n", "264"}},
                       {{"form", "problems"}, {"groups", "40"}, {"rows", "3000"}},
                       {{"form", "problems"}, {"groups", "9"}, {"layout", "nn"}, {"misaligned", "1"}},
                       {{"form", "problems"}, {"groups", "16"}, {"rows", "2048"}, {"pointers", "1"}},
                       {{"dtype", "f32"}, {"rows", "333"}, {"n", "129"}, {"k", "65"}},
                       {{"variant", "sm80"}, {"rows", "1000"}},
                       {{"variant", "sm80"}, {"form", "depth"}, {"rows", "700"}},
                       {{"gather", "1"}, {"rows", "333"}, {"n", "128"}, {"k", "64"}}});
}

TEST(grouped_gemm, every_variant_assembles_without_spills) { expect_assembles(grouped_gemm_entry()); }
