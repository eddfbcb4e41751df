// SPDX-License-Identifier: Apache-2.0
// Shapes, arguments and targets: what is refused, and in which words.
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/runtime/info.h"
#include "cgp/runtime/launcher.h"
#include "cgp/runtime/typed_stream.h"

namespace cgp::runtime {
namespace {

bool contains(const std::string& s, const std::string& part) { return s.find(part) != std::string::npos; }

TEST(launch, grids_cover_the_items) {
  for (std::uint64_t n : {0ull, 1ull, 255ull, 256ull, 257ull, 1000000ull, 549755813632ull}) {
    const Dim3 g = grid_for(n, 256);
    EXPECT_GE(std::uint64_t(g.x) * 256, n);
    EXPECT_GE(g.x, 1u);
    EXPECT_TRUE(n == 0 || (std::uint64_t(g.x) - 1) * 256 < n);
  }
  EXPECT_THROW(grid_for(549755813633ull, 256), ArgumentError);
  EXPECT_THROW(grid_for(1, 0), ArgumentError);
  EXPECT_EQ(grid_for_2d(100, 70, 32, 8), (Dim3{4, 9, 1}));
  EXPECT_THROW(grid_for_2d(1, 65536, 1, 1), ArgumentError);
  EXPECT_EQ(grid_for_at_most(1 << 20, 256, 132).x, 132u);
  EXPECT_EQ(grid_for_at_most(300, 256, 132).x, 2u);
  EXPECT_EQ(LaunchConfig<64>::linear(129).grid.x, 3u);
  EXPECT_EQ(Launch(LaunchConfig<8, 8, 2>{{5, 6, 7}}).block, (Dim3{8, 8, 2}));
}

DeviceInfo h200() {
  DeviceInfo i;
  i.arch = "sm_90a";
  i.max_cluster = 16;
  i.smem_per_block = 49152;
  i.smem_per_block_optin = 232448;
  i.cooperative_launch = true;
  return i;
}

struct ShapeCase {
  Launch launch;
  const char* says;  // a part of the refusal; empty: accepted
};
TEST(launch, shapes_are_checked_against_the_device) {
  KernelImage open;  // says nothing about its shape
  const ShapeCase cases[] = {
      {{.grid = {1}, .block = {1024}}, ""},
      {{.grid = {1}, .block = {1025}}, "1025"},
      {{.grid = {1}, .block = {32, 32, 2}}, "2048"},
      {{.grid = {1}, .block = {1, 1, 65}}, "1024 x 1024 x 64"},
      {{.grid = {1}, .block = {32, 0, 1}}, "at least one thread"},
      {{.grid = {1}}, "no fixed block shape"},
      {{.grid = {0}, .block = {32}}, "at least one block"},
      {{.grid = {0x7fffffff}, .block = {32}}, ""},
      {{.grid = {0x80000000u}, .block = {32}}, "2147483647 x 65535 x 65535"},
      {{.grid = {1, 65536}, .block = {32}}, "65535"},
      {{.grid = {6, 4}, .block = {32}, .cluster = {2, 2, 1}}, ""},
      {{.grid = {6, 3}, .block = {32}, .cluster = {2, 2, 1}}, "grid 6 x 3 x 1, cluster 2 x 2 x 1"},
      {{.grid = {32}, .block = {32}, .cluster = {32}}, "at most 16"},
      {{.grid = {32}, .block = {32}, .cluster = {1, 0, 1}}, "at least one block"},
      {{.grid = {1}, .block = {32}, .dynamic_smem = 232448}, ""},
      {{.grid = {1}, .block = {32}, .dynamic_smem = 232449}, "232448"},
  };
  for (const ShapeCase& c : cases) {
    const std::string why = reject_shape(h200(), open, c.launch);
    if (*c.says) {
      EXPECT_TRUE(contains(why, c.says)) << "\"" << why << "\" should say " << c.says;
    } else {
      EXPECT_EQ(why, "");
    }
  }
  EXPECT_TRUE(contains(reject_shape(h200(), open, {.grid = {1}, .block = {32}, .dynamic_smem = 232448}, 1),
                       "232448 + 1"));
  DeviceInfo ampere = h200();
  ampere.arch = "sm_80";
  ampere.max_cluster = 1;
  EXPECT_TRUE(
      contains(reject_shape(ampere, open, {.grid = {2}, .block = {32}, .cluster = {2}}), "sm_90 or later"));
}
TEST(launch, a_kernels_own_shape_is_kept_to) {
  KernelImage k;
  k.block = {384, 1, 1};
  k.cluster = {2, 1, 1};
  EXPECT_EQ(reject_shape(h200(), k, {.grid = {4}}), "");
  EXPECT_TRUE(contains(reject_shape(h200(), k, {.grid = {4}, .block = {128}}), "384 x 1 x 1"));
  EXPECT_TRUE(contains(reject_shape(h200(), k, {.grid = {4}, .cluster = {4}}), "2 x 1 x 1"));
  EXPECT_TRUE(contains(reject_shape(h200(), k, {.grid = {3}}), "multiple of the cluster"));
  KernelImage bounded;
  bounded.max_threads_per_block = 256;
  EXPECT_TRUE(
      contains(reject_shape(h200(), bounded, {.grid = {1}, .block = {512}}), "256 threads in this kernel"));
}

KernelImage with(Param p) {
  KernelImage k;
  k.params = {std::move(p)};
  return k;
}
std::string refusal(Param p, Arg a) { return reject_args(with(std::move(p)), nullptr, std::array{a}); }

TEST(launch, arguments_must_match_in_count) {
  KernelImage k;
  k.params = {Param::input("a", DType::f32), Param::scalar("n", DType::u32)};
  const std::array one{Arg::address(256)};
  const std::string why = reject_args(k, nullptr, one);
  EXPECT_TRUE(contains(why, "2 parameters (a, n)") && contains(why, "1 arguments")) << why;
}
TEST(launch, scalars_must_match_in_type_and_width) {
  const Param n = Param::scalar("n", DType::u32);
  EXPECT_EQ(refusal(n, arg(5u)), "");
  EXPECT_EQ(refusal(n, arg(5)), "") << "an int that fits is as good";
  EXPECT_TRUE(contains(refusal(n, arg(-5)), "parameter 0 \"n\""));
  EXPECT_TRUE(contains(refusal(n, arg(-5)), "cannot hold"));
  EXPECT_TRUE(contains(refusal(n, arg(5ull)), "u64"));
  EXPECT_TRUE(contains(refusal(n, arg(5.f)), "f32"));
  EXPECT_TRUE(contains(refusal(n, Arg::address(256)), "a scalar of type u32"));
  EXPECT_EQ(refusal(Param::scalar("n", DType::s32), arg(-5)), "");
  EXPECT_NE(refusal(Param::scalar("n", DType::s32), arg(0x80000000u)), "");
  EXPECT_EQ(refusal(Param::scalar("x", DType::f16), arg(half(1.f))), "");
  EXPECT_NE(refusal(Param::scalar("x", DType::f16), arg(bfloat16(1.f))), "");
  EXPECT_NE(refusal(Param::scalar("x", DType::f64), arg(1.f)), "");
  Param bits = Param::scalar("b", DType::u32);
  bits.dtype = std::nullopt;  // .b32 of foreign PTX
  EXPECT_EQ(refusal(bits, arg(1.f)), "");
  EXPECT_NE(refusal(bits, arg(1.0)), "");
}
TEST(launch, buffers_must_match_in_element_type_and_constness) {
  const auto pointer = [](std::optional<DType> t, bool writable) {
    return Arg::pointer(256, t, writable, nullptr);
  };
  EXPECT_EQ(refusal(Param::input("a", DType::f32), pointer(DType::f32, false)), "");
  EXPECT_TRUE(contains(refusal(Param::output("c", DType::f32), pointer(DType::f32, false)), "const buffer"));
  EXPECT_TRUE(contains(refusal(Param::input("a", DType::f32), pointer(DType::f64, true)), "f64"));
  EXPECT_EQ(refusal(Param::input("a", DType::u8), pointer(DType::s8, true)), "");
  EXPECT_NE(refusal(Param::input("a", DType::e4m3), pointer(DType::u8, true)), "");
  EXPECT_EQ(refusal(Param::input("a", std::nullopt), pointer(DType::f64, true)), "");
  EXPECT_EQ(refusal(Param::input("a", DType::f32), Arg::address(256)), "");
  EXPECT_TRUE(contains(refusal(Param::input("a", DType::f32), arg(7ull)), "a buffer of f32"));
}
TEST(launch, structs_and_tensor_maps_must_match_in_kind_and_size) {
  struct Three {
    std::uint32_t x[3];
  } three{};
  EXPECT_EQ(refusal(Param::raw("s", 12, 4), arg(three)), "");
  EXPECT_TRUE(contains(refusal(Param::raw("s", 16, 4), arg(three)), "16 bytes, the argument 12"));
  EXPECT_EQ(refusal(Param::tensor_map("t"), arg(TensorMap())), "");
  EXPECT_NE(refusal(Param::tensor_map("t"), arg(three)), "");
  EXPECT_NE(refusal(Param::tensor_map("t"), Arg::address(256)), "");
}
TEST(launch, foreign_words_take_scalars_and_addresses) {
  Param word;
  word.name = "p";
  word.kind = ParamKind::word;
  word.bytes = 8;
  EXPECT_EQ(refusal(word, Arg::address(256)), "");
  EXPECT_EQ(refusal(word, arg(7ull)), "");
  EXPECT_NE(refusal(word, arg(7u)), "");
}

struct TargetCase {
  const char *target, *arch;
  bool runs;
};
TEST(launch, targets_run_where_the_isa_says) {  // PTX ISA 11.1.2, ".target"
  const TargetCase cases[] = {
      {"sm_80", "sm_80", true},      {"sm_80", "sm_90a", true},     {"sm_90", "sm_90a", true},
      {"sm_90a", "sm_90a", true},    {"sm_90a", "sm_100a", false},  {"sm_90a", "sm_90", false},
      {"sm_90", "sm_89", false},     {"sm_100f", "sm_100a", true},  {"sm_100f", "sm_103a", true},
      {"sm_100f", "sm_120a", false}, {"sm_103f", "sm_100a", false}, {"sm_75", "sm_120a", true},
  };
  for (const TargetCase& c : cases)
    EXPECT_EQ(reject_target(c.target, c.arch).empty(), c.runs) << c.target << " on " << c.arch;
  EXPECT_NE(reject_target("compute_80", "sm_90a"), "");
}
TEST(launch, the_closest_cubin_is_chosen) {
  const std::vector<Cubin> all = {{"sm_80", ""}, {"sm_86", ""}, {"sm_90a", ""}, {"sm_100a", ""}};
  const auto chosen = [&](const char* arch) {
    const Cubin* c = choose_cubin(all, arch);
    return c ? c->arch : "none";
  };
  EXPECT_EQ(chosen("sm_80"), "sm_80");
  EXPECT_EQ(chosen("sm_87"), "sm_86");
  EXPECT_EQ(chosen("sm_89"), "sm_86");
  EXPECT_EQ(chosen("sm_90a"), "sm_90a");
  EXPECT_EQ(chosen("sm_75"), "none");
  EXPECT_EQ(chosen("sm_103a"), "none") << "code of an `a` target fits exactly or not at all";
  EXPECT_EQ(chosen("sm_120a"), "none");
}
TEST(launch, the_target_is_read_without_parsing) {
  EXPECT_EQ(target_of_ptx("// c\n.version 8.0\n  .target sm_90a, debug\n.address_size 64"), "sm_90a");
  EXPECT_EQ(target_of_ptx(".target sm_80"), "sm_80");
  EXPECT_EQ(target_of_ptx("nothing"), "");
}
TEST(launch, images_of_foreign_ptx_have_its_signature) {
  const KernelImage k = image_from_ptx(R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry two(.param .u64 a, .param .u64 .ptr .global .align 16 b, .param .f32 x, .param .b32 y,
                    .param .align 64 .b8 map[128], .param .align 4 .b8 s[12])
.reqntid 128, 2
.reqnctapercluster 2
{ ret; }
)");
  EXPECT_EQ(k.entry, "two");
  ASSERT_EQ(k.params.size(), 6u);
  EXPECT_EQ(k.params[0].kind, ParamKind::word);
  EXPECT_EQ(k.params[1].kind, ParamKind::pointer);
  EXPECT_EQ(k.params[2].dtype, DType::f32);
  EXPECT_EQ(k.params[3].dtype, std::nullopt);
  EXPECT_EQ(k.params[3].bytes, 4u);
  EXPECT_EQ(k.params[4].kind, ParamKind::tensor_map);
  EXPECT_EQ(k.params[5].kind, ParamKind::bytes);
  EXPECT_EQ(k.params[5].bytes, 12u);
  EXPECT_EQ(k.block, (Dim3{128, 2, 1}));
  EXPECT_EQ(k.cluster, (Dim3{2, 1, 1}));
  EXPECT_THROW(image_from_ptx(".version 8.0\n.target sm_80\n.address_size 64\n"), ArgumentError);
}

}  // namespace
}  // namespace cgp::runtime
