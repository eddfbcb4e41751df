// SPDX-License-Identifier: Apache-2.0
// Rules that only the whole kernel shows: refused when it is built, at the author's file and line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cgp/dsl/kernel.h"

namespace cgp::dsl {
namespace {

using testing::HasSubstr;

/// Builds f and returns the error; fails when there is none.
template <class F>
BuildError error_of(F f, const char* target = "sm_90a") {
  try {
    build("k", target, f);
  } catch (const BuildError& e) {
    return e;
  }
  ADD_FAILURE() << "the kernel was accepted";
  return BuildError("accepted", Here{});
}

std::string line_of(int line) { return text::cat("cgp/dsl/core/build_error_test.cpp:", line); }

TEST(build_error, barrier_in_a_divergent_branch_names_both_lines) {
  int branch = 0, barrier = 0;
  const auto e = error_of([&](Kernel& k, Val<u32> n) {
    branch = __LINE__ + 1;
    k.if_(k.tid() < n, [&] {
      barrier = __LINE__ + 1;
      k.sync();
    });
  });
  EXPECT_EQ(e.rule(),
            text::cat("k.sync() needs every thread of its block, but sits inside a divergent if_ opened at ",
                      line_of(branch)));
  EXPECT_EQ(e.where(), line_of(barrier));
}

TEST(build_error, barrier_under_a_uniform_condition_is_accepted) {
  EXPECT_NO_THROW(build("k", "sm_90a", [](Kernel& k, In<u32> a, Val<u32> n) {
    k.if_(k.ctaid() < n, [&] { k.sync(); });
    k.loop(n, [&](Val<u32>) { k.sync(); });
    k.if_(a.ld(k.ctaid()) == 3, [&] { k.sync(); });  // read-only data at a uniform address
  }));
}

TEST(build_error, a_loaded_value_is_not_uniform_unless_promised) {
  EXPECT_THAT(error_of([](Kernel& k, InOut<u32> a) { k.if_(a.ld(0) == 3, [&] { k.sync(); }); }).rule(),
              HasSubstr("divergent if_"));
  EXPECT_NO_THROW(build("k", "sm_90a", [](Kernel& k, InOut<u32> a) {
    k.if_(assume_uniform(a.ld(0)) == 3, [&] { k.sync(); });
  }));
}

TEST(build_error, block_barrier_inside_a_role) {
  const auto e = error_of([](Kernel& k) {
    auto math = k.role<Warpgroup>(2);
    math.run([&](Warpgroup&) { k.sync(); });
  });
  EXPECT_THAT(e.rule(),
              HasSubstr("k.sync() needs every thread of its block, but sits inside the if_ of a warpgroup"));
  EXPECT_EQ(e.why(), "its condition is the same only within a warpgroup");
}

TEST(build_error, warp_collective_after_a_divergent_exit) {
  const auto e = error_of([](Kernel& k, Out<u32> c, Val<u32> n) {
    auto w = k.warp();
    k.exit_if(k.tid() >= n);
    c.st(0, redux<op::add>(w, k.tid()));
  });
  EXPECT_THAT(e.rule(), HasSubstr("redux.sync needs every thread of its warp"));
  EXPECT_THAT(e.rule(), HasSubstr("k.exit_if"));
}

TEST(build_error, warp_collective_inside_one_thread) {
  const auto e = error_of([](Kernel& k, Out<u32> c) {
    auto w = k.warp();
    w.one_thread([&](Thread&) { c.st(0, redux<op::add>(w, k.tid())); });
  });
  EXPECT_THAT(e.rule(), HasSubstr("redux.sync needs every thread of its warp"));
}

TEST(build_error, carried_values_are_divergent_unless_kept_uniform) {
  EXPECT_THAT(error_of([](Kernel& k, Val<u32> n) {
                k.loop(n, n, [&](Val<u32>, Val<u32> s) {
                  k.if_(s == 0, [&] { k.sync(); });
                  return s + 1;
                });
              }).rule(),
              HasSubstr("divergent if_"));
  EXPECT_NO_THROW(build("k", "sm_90a", [](Kernel& k, Val<u32> n) {
    k.loop(n, keep_uniform(n), [&](Val<u32>, Val<u32> s) {
      k.if_(s == 0, [&] { k.sync(); });
      return s + 1;
    });
  }));
  EXPECT_THAT(error_of([](Kernel& k, Val<u32> n) {
                k.loop(n, keep_uniform(n), [&](Val<u32>, Val<u32> s) { return s + k.tid(); });
              }).rule(),
              HasSubstr("keep_uniform"));
}

TEST(build_error, value_used_outside_the_region_that_made_it) {
  const auto e = error_of([](Kernel& k, Out<u32> c, Val<u32> n) {
    std::vector<Val<u32>> leaked;
    k.if_(k.tid() < n, [&] { leaked.push_back(k.tid() + 1); });
    c.st(0, leaked[0]);
  });
  EXPECT_EQ(e.rule(), "a value made inside the body of if_ does not exist outside it");
  EXPECT_THAT(e.hint(), HasSubstr("return it"));
}

TEST(build_error, values_of_two_kernels) {
  ptx::Module m;
  m.target = "sm_90";
  Kernel a(m, "a"), b(m, "b");
  const auto x = a.tid(), y = b.tid();
  EXPECT_THROW(x + y, BuildError);
}

TEST(build_error, role_never_run) {
  int line = 0;
  const auto e = error_of([&](Kernel& k) {
    auto math = k.role<Warpgroup>(1);
    line = __LINE__ + 1;
    auto load = k.role<Warp>(1);
    math.run([](Warpgroup&) {});
    (void)load;
  });
  EXPECT_EQ(e.rule(), "a role is declared but never run");
  EXPECT_EQ(e.where(), line_of(line));
}

TEST(build_error, role_shapes) {
  EXPECT_THAT(error_of([](Kernel& k) {
                k.role<Warp>(1);
                k.role<Warpgroup>(1);
              }).rule(),
              HasSubstr("multiple of four warps"));
  EXPECT_THAT(error_of([](Kernel& k) {
                auto r = k.role<Warpgroup>(9);
                r.run([](Warpgroup&) {});
              }).why(),
              HasSubstr("the roles need 1152"));
  EXPECT_THAT(error_of([](Kernel& k) { k.role<Warpgroup>(1, 250); }).rule(), HasSubstr("steps of 8"));
  EXPECT_THAT(error_of([](Kernel& k) { k.role<Warpgroup>(1, 232); }, "sm_80").rule(),
              HasSubstr("setmaxnreg needs sm_90"));
  EXPECT_THAT(error_of([](Kernel& k) {
                auto r = k.role<Warpgroup>(4, 240);
                r.run([](Warpgroup&) {});
              }).rule(),
              HasSubstr("65536 registers"));
}

TEST(build_error, shared_memory_over_the_limit_names_the_numbers) {
  const auto e = error_of([](Kernel& k, Out<f32> c) { c.st(0, k.shared<f32>(60000).ld(k.tid())); });
  EXPECT_EQ(e.why(), "240000 bytes are laid out, sm_90a has 232448");
  EXPECT_THAT(
      error_of([](Kernel& k, Out<f32> c) { c.st(0, k.shared<f32>(30000).ld(k.tid())); }, "sm_86").why(),
      HasSubstr("sm_86 has 101376"));
}

TEST(build_error, launch_shape) {
  EXPECT_THAT(error_of([](Kernel& k) { k.block(1025); }).why(), HasSubstr("1025"));
  EXPECT_THAT(error_of([](Kernel& k) { k.block(1, 1, 65); }).rule(), HasSubstr("at most 64"));
  EXPECT_THAT(error_of([](Kernel& k) { k.max_threads(2048); }).why(), HasSubstr("2048"));
  EXPECT_THAT(error_of([](Kernel& k) { k.cluster(2); }, "sm_80").rule(), HasSubstr("a cluster needs sm_90"));
  EXPECT_THAT(error_of([](Kernel& k, Out<u32> c) {
                k.block(48);
                auto w = k.warp();
                c.st(0, redux<op::add>(w, k.tid()));
              }).rule(),
              HasSubstr("multiple of 32 threads"));
}

TEST(build_error, misaligned_vector_access) {
  const auto e = error_of([](Kernel&, In<f32> a, Out<f32> c) { c.st<4>(0, a.at(1).ld<4>(0)); });
  EXPECT_EQ(e.rule(), "an access of 16 bytes needs an address that is a multiple of 16");
  EXPECT_EQ(e.why(), "the constant part of this address is 4");
}

TEST(build_error, literals) {
  EXPECT_THAT(error_of([](Kernel&, Out<u32> c) { c.st(0, -1); }).rule(), HasSubstr("-1 is no u32"));
  EXPECT_THAT(error_of([](Kernel&, Out<f32> c) { c.st(0, Val<f32>(1.f) + 2.f); }).rule(),
              HasSubstr("literals alone"));
  EXPECT_NO_THROW(build("k", "sm_90", [](Kernel&, Out<u32> c) { c.st(0, Val<u32>(4) * 2); }));
}

TEST(build_error, shuffles_stay_inside_the_warp) {
  EXPECT_THAT(error_of([](Kernel& k, Out<u32> c) {
                auto w = k.warp();
                c.st(0, shfl<bfly>(w, k.tid(), 32));
              }).rule(),
              HasSubstr("0 to 31"));
  EXPECT_THAT(error_of([](Kernel& k, Out<u32> c) {
                auto w = k.warp();
                c.st(0, shfl<bfly>(w, k.tid(), 1, 24));
              }).why(),
              HasSubstr("24"));
}

TEST(build_error, sixteen_named_barriers) {
  EXPECT_THAT(error_of([](Kernel& k) {
                for (int i = 0; i < 16; ++i) k.named_barrier(64).sync();
              }).rule(),
              HasSubstr("16 hardware barriers"));
  EXPECT_THAT(error_of([](Kernel& k) { k.named_barrier(48); }).rule(), HasSubstr("whole warps"));
}

TEST(build_error, names_and_targets) {
  EXPECT_THROW(build("2k", "sm_90", [](Kernel&) {}), BuildError);
  EXPECT_THROW(build("k", "hopper", [](Kernel&) {}), BuildError);
  ModuleBuilder m("sm_90");
  m.add("k", [](Kernel&) {});
  EXPECT_THROW(m.add("k", [](Kernel&) {}), BuildError);
}

TEST(build_error, problems_found_by_destructors_surface_at_finish) {
  const auto e = error_of([](Kernel& k) { k.problem("a stage was never released", Here{"kernel.cpp", 7}); });
  EXPECT_EQ(std::string(e.what()), "kernel.cpp:7: a stage was never released");
}

TEST(build_error, constant_bank_over_64_kib) {
  EXPECT_THAT(error_of([](Kernel& k) { k.constant<f32>(std::vector<float>(20000)); }).why(),
              HasSubstr("80000"));
}

TEST(build_error, instruction_the_target_lacks) {
  int line = 0;
  const auto e = error_of(
      [&](Kernel&, InOut<bf16> c) {
        line = __LINE__ + 1;
        c.st(0, tanh<approx>(c.ld(0)));
      },
      "sm_80");
  EXPECT_THAT(e.rule(), HasSubstr("tanh.approx.bf16"));
  EXPECT_THAT(std::string(e.what()), HasSubstr("90"));
  EXPECT_EQ(e.where(), line_of(line));
}

TEST(build_error, words_that_an_instruction_does_not_take) {
  const auto e = error_of([](Kernel&, InOut<f64> c) { c.st(0, add<ftz>(c.ld(0), 1.0)); });
  EXPECT_THAT(e.rule(), HasSubstr("add.ftz.f64"));
}

TEST(build_error, any_row_of_the_table_is_verified) {
  const auto e = error_of([](Kernel& k, InOut<f32> c) {
    c.st(0, k.ptx<f32>(ptx::Op::tanh, {ptx::Mod::rn, ptx::Mod::f32}, c.ld(0)));
  });
  EXPECT_THAT(e.rule(), HasSubstr("tanh.rn.f32"));
}

// k.ptx() is outside of what regions know; the static analyses see its instructions too.
TEST(build_error, an_instruction_that_some_threads_miss) {
  const auto e = error_of([&](Kernel& k, InOut<u32> c) {
    k.block(128);
    k.if_(k.tid() < 48u, [&] { k.ptx(ptx::Op::bar_sync, {}, 0); });
    c.st(0, 1);
  });
  EXPECT_THAT(e.rule(), HasSubstr("ANA-B01"));
  EXPECT_THAT(e.why(), HasSubstr("48 of 128 threads come"));
  EXPECT_THAT(e.where(), HasSubstr("build_error_test.cpp:"));
  EXPECT_NO_THROW(build("k", "sm_90a", [](Kernel& k, InOut<u32> c) {
    k.block(128);
    k.ptx(ptx::Op::bar_sync, {}, 0);
    c.st(0, 1);
  }));
}

}  // namespace
}  // namespace cgp::dsl
