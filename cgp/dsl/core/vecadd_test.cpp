// SPDX-License-Identifier: Apache-2.0
// The first kernels of the language, to the byte. A golden text is reviewed like code; to renew one after a
// deliberate change run this test with CGP_UPDATE_GOLDEN=1 and read the difference.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cgp/dsl/core/ptxas_test.h"
#include "cgp/dsl/kernel.h"

namespace cgp::dsl {
namespace {

/// One element per thread: bounds check, three addresses, two loads, one add, one store.
void vecadd(Kernel& k, In<f32> a, In<f32> b, Disjoint<f32> c, Val<u32> n) {
  k.each_thread(n, [&](ThreadIndex i) { c.st(i, a.ld(i) + b.ld(i)); });
}

template <int W>
void vecadd_wide(Kernel& k, In<f32> a, In<f32> b, Disjoint<f32> c, Val<u32> n) {
  k.block<256>();
  k.grid_stride(n / W, [&](ThreadIndex i) {
    auto x = a.ld<W>(i);
    auto y = b.ld<W>(i);
    c.st<W>(i, x + y);
  });
}

/// Loads have no order among the operands of one `+` (C++ leaves it to the compiler), so the golden kernel
/// names them.
void vecadd_ordered(Kernel& k, In<f32> a, In<f32> b, Disjoint<f32> c, Val<u32> n) {
  k.each_thread(n, [&](ThreadIndex i) {
    auto x = a.ld(i);
    auto y = b.ld(i);
    c.st(i, x + y);
  });
}

void expect_golden(const BuiltKernel& k) {
  const std::string path = std::string(CGP_SOURCE_DIR) + "/cgp/dsl/golden/" + k.name + ".ptx";
  if (std::getenv("CGP_UPDATE_GOLDEN")) std::ofstream(path) << k.ptx();
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(k.ptx(), golden.str()) << "compared with " << path;
}

TEST(vecadd, text_is_golden) {
  expect_golden(build("vecadd_f32", "sm_80", vecadd_ordered));
  expect_golden(build("vecadd_f32_v4", "sm_90", vecadd_wide<4>));
}

TEST(vecadd, assembles_for_every_target) {
  for (const char* target : {"sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"}) {
    const std::string said = ptxas(build("vecadd", target, vecadd));
    EXPECT_TRUE(said.empty() || said == "no ptxas") << target << ": " << said;
  }
}

TEST(vecadd, records_the_same_text_twice) {
  EXPECT_EQ(build("v", "sm_90", vecadd_wide<4>).ptx(), build("v", "sm_90", vecadd_wide<4>).ptx());
}

TEST(vecadd, schema_follows_the_signature) {
  const auto k = build("v", "sm_90", vecadd_wide<4>);
  ASSERT_EQ(k.params.size(), 4u);
  EXPECT_TRUE(k.params[0].reads && !k.params[0].writes);
  EXPECT_TRUE(k.params[2].writes && !k.params[2].reads);
  EXPECT_EQ(k.params[2].detail, "disjoint");
  EXPECT_EQ(k.params[3].size, 4u);
  EXPECT_EQ(k.params[3].type, ptx::Mod::u32);
  EXPECT_EQ(k.block, (std::array<int, 3>{256, 1, 1}));
}

}  // namespace
}  // namespace cgp::dsl
