// SPDX-License-Identifier: Apache-2.0
#include "cgp/dsl/core/kernel_params.h"

#include <gtest/gtest.h>

#include "cgp/dsl/kernel.h"

namespace cgp::dsl {
namespace {

template <template <class> class V>
struct Mixed {
  V<u32> n;
  V<u64> x;
  V<f32> factor;
  V<s32> left, right;
};

void mixed_kernel(Kernel& k, Mixed<Val> p) {
  k.block(32);
  Out<f32>(p.x).st_if(k.tid() < p.n, k.tid(), p.factor + to<f32>(p.left - p.right));
}

TEST(kernel_params, the_kernel_reads_what_the_launch_writes) {
  const Mixed<HostValue> host{.n = 5, .x = 1ull << 40, .factor = 0.5f, .left = -3, .right = 4};
  const auto at = [&](const auto& member) {
    return int(reinterpret_cast<const char*>(&member) - reinterpret_cast<const char*>(&host));
  };
  const auto k = build("mixed", "sm_80", mixed_kernel);
  ASSERT_EQ(k.params.size(), 1u);
  EXPECT_EQ(k.params[0].kind, ParamInfo::Kind::structure);
  EXPECT_EQ(k.params[0].size, sizeof host);
  EXPECT_EQ(k.params[0].detail, "u32 u64 f32 s32 s32");
  const auto ptx = k.ptx();
  const auto loads = [&](const char* type, int offset) {
    const auto place = text::cat("[p0", offset ? text::cat("+", offset) : "", "]");
    for (std::size_t p = 0; (p = ptx.find(text::cat("ld.param.", type), p)) != ptx.npos; ++p)
      if (ptx.substr(p, ptx.find('\n', p) - p).find(place) != std::string::npos) return true;
    return false;
  };
  EXPECT_TRUE(loads("u32", at(host.n))) << ptx;
  EXPECT_TRUE(loads("u64", at(host.x))) << ptx;
  EXPECT_TRUE(loads("f32", at(host.factor))) << ptx;
  EXPECT_TRUE(loads("s32", at(host.left))) << ptx;
  EXPECT_TRUE(loads("s32", at(host.right))) << ptx;
  EXPECT_FALSE(loads("s32", at(host.x)));
}

TEST(kernel_params, members_are_counted) { EXPECT_EQ(record_impl::member_count<Mixed<Val>>(), 5u); }

}  // namespace
}  // namespace cgp::dsl
