// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/launch_together.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/emu/emu.h"
#include "cgp/runtime/graph.h"
#include "cgp/runtime/launcher.h"

namespace cgp::runtime {
namespace {
using ::testing::HasSubstr;

// Adds one to the other device's counter, waits until its own reaches `target`, and notes that it got there.
std::string meet_ptx(const std::string& scope) {
  return R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry meet(.param .u64 mine, .param .u64 theirs, .param .u64 seen, .param .u32 target)
{
  .reg .pred %p<1>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd0, [mine];
  ld.param.u64 %rd1, [theirs];
  ld.param.u64 %rd2, [seen];
  ld.param.u32 %r0, [target];
  red.release.)" +
         scope + R"(.global.add.u32 [%rd1], 1;
POLL:
  ld.acquire.)" +
         scope + R"(.global.u32 %r1, [%rd0];
  setp.lt.u32 %p0, %r1, %r0;
  @%p0 bra POLL;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";
}

KernelImage meet(const std::string& scope = "sys", const std::string& name = "meet") {
  KernelImage i = image_from_ptx(meet_ptx(scope), "meet");
  i.params = {Param::output("mine", DType::u32), Param::output("theirs", DType::u32),
              Param::output("seen", DType::u32), Param::scalar("target", DType::u32)};
  i.block = {1, 1, 1};
  i.name = name;
  return i;
}

struct Pair : ::testing::Test {
  Device device[2] = {Device::open("emu:sm_80"), Device::open("emu:sm_80")};
  Buffer<std::uint32_t> counter[2], seen[2];
  void SetUp() override {
    for (int i : {0, 1}) {
      device[i].enable_peer(device[1 - i]);
      counter[i] = device[i].zeros<std::uint32_t>(1, "counter");
      seen[i] = device[i].zeros<std::uint32_t>(1, "seen");
    }
  }
  void issue(Stream& s, int i, std::uint32_t target, const KernelImage& image, Dim3 grid = {1}) {
    device[i].load(image)(s, grid, counter[i], counter[1 - i], seen[i], target);
  }
};

TEST_F(Pair, kernels_wait_for_each_other) {
  launch_together([&] {
    for (std::uint32_t round : {1u, 2u})
      for (int i : {0, 1}) issue(device[i].stream(), i, round, meet());
  });
  for (int i : {0, 1}) {
    device[i].sync();
    EXPECT_EQ(seen[i].to_vector()[0], 2u);
    EXPECT_EQ(device[i].last_result().result, device[0].last_result().result);
  }
  EXPECT_EQ(device[0].last_result().result->counters.blocks, 2u);
}

TEST_F(Pair, other_work_keeps_its_place_in_the_stream) {
  Buffer<std::uint32_t> first = device[0].alloc<std::uint32_t>(1), second = device[0].alloc<std::uint32_t>(1);
  launch_together([&] {
    Stream &a = device[0].stream(), &b = device[1].stream();
    issue(a, 0, 1, meet());
    a.copy(first, seen[0]);
    issue(a, 0, 2, meet());
    a.copy(second, seen[0]);
    launch_together([&] {  // belongs to the one around it
      issue(b, 1, 1, meet());
      issue(b, 1, 2, meet());
    });
    EXPECT_EQ(counter[0].to_vector()[0], 0u) << "nothing has run";
  });
  EXPECT_EQ(first.to_vector()[0], 1u);
  EXPECT_EQ(second.to_vector()[0], 2u);
}

TEST_F(Pair, graphs_of_two_devices_are_replayed_together) {
  std::vector<Graph> graphs;
  for (int i : {0, 1})
    graphs.push_back(device[i].stream().capture([&](Stream& s) {
      s.zero(seen[i]);
      issue(s, i, 1, meet());
    }));
  for (int again = 0; again < 2; ++again)
    launch_together([&] {
      for (std::size_t i : {0, 1}) device[i].stream().replay(graphs[i]);
    });
  for (int i : {0, 1}) EXPECT_EQ(counter[i].to_vector()[0], 2u);
}

TEST_F(Pair, findings_are_thrown_by_the_wait_of_each_stream) {
  launch_together([&] {
    for (int i : {0, 1}) issue(device[i].stream(), i, 1, meet("gpu"));
  });
  for (int i : {0, 1}) {
    try {
      device[i].stream().wait();
      ADD_FAILURE() << "a scope that does not include the other device";
    } catch (const EmuFault& e) {
      EXPECT_THAT(e.what(), HasSubstr("race.scope"));
      EXPECT_THAT(e.what(), HasSubstr("device 1"));
    }
  }
}

TEST_F(Pair, alone_they_wait_for_ever) {
  issue(device[0].stream(), 0, 1, meet());
  try {
    device[0].stream().wait();
    ADD_FAILURE() << "nobody sets the counter";
  } catch (const EmuFault& e) {
    EXPECT_THAT(e.what(), HasSubstr("deadlock"));
    EXPECT_THAT(e.what(), HasSubstr("polls 'counter'"));
  }
}

TEST_F(Pair, what_cannot_run_together_is_refused) {
  const auto refused = [&](const std::function<void()>& issue) -> std::string {
    try {
      launch_together(issue);
    } catch (const Unsupported& e) {
      return e.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refused([&] {
                issue(device[0].stream(), 0, 1, meet());
                issue(device[1].stream(), 1, 1, meet("gpu", "another"));
              }),
              HasSubstr("device 1 runs another"));
  EXPECT_THAT(refused([&] {
                issue(device[0].stream(), 0, 1, meet());
                issue(device[1].stream(), 1, 1, meet(), {2});
              }),
              HasSubstr("another grid"));
  Stream more(device[0]);
  EXPECT_THAT(refused([&] {
                issue(device[0].stream(), 0, 1, meet());
                issue(more, 0, 1, meet());
              }),
              HasSubstr("two streams of one device"));
  EXPECT_THROW(launch_together([&] { device[0].stream().wait(); }), ArgumentError);
  EXPECT_THROW(launch_together([&] {
                 issue(device[0].stream(), 0, 1, meet());
                 throw std::runtime_error("stop");
               }),
               std::runtime_error);
  EXPECT_EQ(counter[1].to_vector()[0], 0u) << "nothing of it has run";
}

TEST_F(Pair, copies_between_devices_keep_what_was_never_written) {
  const Buffer<float> fresh = device[0].alloc<float>(4);
  Buffer<float> to = device[1].zeros<float>(4);
  to.copy_from(fresh);
  EXPECT_EQ(to.to_vector().size(), 4u);
  EXPECT_TRUE(device[0].can_access_peer(device[1]));
}

}  // namespace
}  // namespace cgp::runtime
