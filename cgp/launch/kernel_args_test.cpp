// SPDX-License-Identifier: Apache-2.0
#include "cgp/launch/kernel_args.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/launch/image.h"

namespace cgp {
namespace {

using namespace dsl;

template <template <class> class V>
struct Bounds {
  V<s32> left, right;
};
template <template <class> class V>
struct MixedArgs {
  V<In<f32>> x;
  V<u32> n;
  V<Out<f32>> y;
  V<u64> first;
  V<f32> factor;
  V<StructArg<Bounds>> bounds;
};

void with_struct(Kernel& k, MixedArgs<DeviceArg> p) {
  k.block(32);
  const auto i = k.tid();
  k.if_(i < p.n, [&] {
    p.y.st(to<u64>(i) + p.first, p.x.ld(i) * p.factor + to<f32>(p.bounds.left - p.bounds.right));
  });
}
void with_list(Kernel& k, In<f32> x, Val<u32> n, Out<f32> y, Val<u64> first, Val<f32> factor,
               Bounds<Val> bounds) {
  k.block(32);
  const auto i = k.tid();
  k.if_(i < n, [&] { y.st(to<u64>(i) + first, x.ld(i) * factor + to<f32>(bounds.left - bounds.right)); });
}

std::string without_lines(std::string ptx) {
  std::string out;
  for (std::size_t at = 0; at < ptx.size();) {
    const auto end = std::min(ptx.find('\n', at), ptx.size() - 1);
    const auto line = ptx.substr(at, end + 1 - at);
    if (line.find("\t.loc") == std::string::npos) out += line;
    at = end + 1;
  }
  return out;
}

TEST(kernel_args, the_kernel_is_that_of_a_parameter_list) {
  const auto of_struct = dsl::build("k", "sm_80", with_struct), of_list = dsl::build("k", "sm_80", with_list);
  EXPECT_EQ(without_lines(of_struct.ptx()), without_lines(of_list.ptx()));
  ASSERT_EQ(of_struct.params.size(), 6u);
  EXPECT_EQ(of_struct.params[5].kind, ParamInfo::Kind::structure);
  EXPECT_TRUE(of_struct.params[0].reads && !of_struct.params[0].writes);
  EXPECT_TRUE(of_struct.params[2].writes);
}

TEST(kernel_args, the_launch_passes_every_member_in_its_place) {
  auto device = runtime::Device::open("emu:sm_80");
  const auto fn = device.load(launch::image(dsl::build("k", "sm_80", with_struct)));
  const auto x = device.upload<float>(std::vector<float>{1, 2, 3, 4});
  auto y = device.zeros<float>(8);
  const Bounds<HostValue> bounds{.left = -3, .right = 4};
  launch::launch_kernel(device.stream(), fn, runtime::Dim3{1},
                        MixedArgs<launch::HostArg>{.x = runtime::arg(x),
                                                   .n = 3u,
                                                   .y = runtime::arg(y),
                                                   .first = std::uint64_t(2),
                                                   .factor = 0.5f,
                                                   .bounds = bounds});
  device.sync();
  EXPECT_EQ(y.to_vector(), (std::vector<float>{0, 0, -6.5f, -6, -5.5f, 0, 0, 0}));
}

TEST(kernel_args, pointers_are_checked) {
  auto device = runtime::Device::open("emu:sm_80");
  const auto fn = device.load(launch::image(dsl::build("k", "sm_80", with_struct)));
  const auto x = device.upload<float>(std::vector<float>{1});
  const Bounds<HostValue> bounds{.left = 0, .right = 0};
  EXPECT_THROW(launch::launch_kernel(device.stream(), fn, runtime::Dim3{1},
                                     MixedArgs<launch::HostArg>{.x = runtime::arg(x),
                                                                .n = 1u,
                                                                .y = runtime::arg(x),  // const
                                                                .first = std::uint64_t(0),
                                                                .factor = 1.f,
                                                                .bounds = bounds}),
               ArgumentError);
}

template <class T, class V>
constexpr bool takes = std::is_constructible_v<launch::HostArg<T>, V>;
static_assert(takes<u32, std::uint32_t> && !takes<u32, std::uint64_t> && !takes<u32, int> && takes<s32, int>);
static_assert(takes<f32, float> && !takes<f32, double> && !takes<u64, std::uint32_t>);
static_assert(!std::is_default_constructible_v<launch::HostArg<u32>>,
              "a member that is left out does not compile");
static_assert(!std::is_default_constructible_v<launch::HostArg<In<f32>>>);

}  // namespace
}  // namespace cgp
