// SPDX-License-Identifier: Apache-2.0
// The first kernel of the language, to the byte.
#include <gtest/gtest.h>

#include "cgp/dsl/kernel.h"

namespace cgp::dsl {
namespace {

template <int W>
void vecadd(Kernel& k, In<f32> a, In<f32> b, Disjoint<f32> c, Val<u32> n) {
  k.grid_stride(n / W, [&](ThreadIndex i) {
    auto x = a.ld<W>(i);
    auto y = b.ld<W>(i);
    c.st<W>(i, x + y);
  });
}

TEST(vecadd, records_the_same_text_twice) {
  const auto once = build("vecadd", "sm_90", vecadd<4>), again = build("vecadd", "sm_90", vecadd<4>);
  EXPECT_EQ(once.ptx(), again.ptx());
  ASSERT_EQ(once.params.size(), 4u);
  EXPECT_TRUE(once.params[0].reads);
  EXPECT_FALSE(once.params[0].writes);
  EXPECT_TRUE(once.params[2].writes);
  EXPECT_EQ(once.params[3].size, 4u);
}

}  // namespace
}  // namespace cgp::dsl
