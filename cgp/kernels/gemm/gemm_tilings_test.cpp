// SPDX-License-Identifier: Apache-2.0
// Tilings that are chosen by measurement alone, run on the emulator: the lists of a large problem, on small
// ragged ones.
#include <gtest/gtest.h>

#include <set>

#include "cgp/kernels/gemm/gemm.h"
#include "cgp/kernels/gemm/gemm_check.h"
#include "cgp/kernels/gemm/gemm_table.h"

namespace cgp::kernels {
namespace {

HostArray random_array(DType t, std::uint64_t count, std::uint64_t seed) {
  HostArray h(t, {1, 1, count});
  for (std::uint64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    h.set(i, double(std::int64_t(seed >> 40) % 256 - 128) / 64);
  }
  return h;
}

void expect_right(const GemmProblem& q, const std::string& part, std::size_t at_least) {
  const auto p = q.dense();
  const auto device = runtime::Device::open("emu:sm_90a");
  const auto a = random_array(p.type, p.a_elements(), 1), b = random_array(p.type, p.b_elements(), 2),
             c = random_array(p.type, p.c_elements(), 3);
  const auto on = [&](const HostArray& h) {
    auto x = device.alloc<std::byte>(h.bytes.size(), "operand");
    x.upload(h.bytes);
    return x;
  };
  auto da = on(a), db = on(b), dc = on(c);
  const GemmAddresses at{da.address(), db.address(), dc.address()};
  std::size_t seen = 0;
  for (const auto& choice : gemm_candidates(p, at, device.info())) {
    if (choice.variant.name.find(part) == std::string::npos) continue;
    ++seen;
    dc.upload(c.bytes);
    run_gemm(device.stream(), choice, p, at);
    HostArray out(p.type, {p.batch, p.m, p.n});
    dc.download(out.bytes);
    EXPECT_TRUE(check_gemm(p, a, b, c, out).pass) << choice.variant.name;
  }
  EXPECT_GE(seen, at_least) << part;
}

GemmProblem nt(std::uint64_t m, std::uint64_t n, std::uint64_t k, float beta = 0) {
  return {.type = DType::bf16, .trans_b = true, .m = m, .n = n, .k = k, .beta = beta};
}

TEST(GemmTilings, PairsShareAnOperand) {
  expect_right(nt(200, 1032, 136), "_beside", 4);
  expect_right(nt(200, 1032, 136), "_below", 4);
  expect_right({.type = DType::f16, .trans_a = true, .m = 136, .n = 1032, .k = 72}, "_below", 2);
  expect_right(nt(136, 520, 136), "_c1x2", 2);
  expect_right(nt(264, 392, 136), "persistent_sm90_nt__128x128x64_s6_c2", 1);
}

TEST(GemmTilings, KOverUpTo16Blocks) {
  expect_right(nt(72, 72, 2120), "_k8_", 3);
  expect_right(nt(72, 72, 2120), "_k16_", 1);
  expect_right(nt(72, 72, 264), "64x32x64_s5_k2_", 1);
}

TEST(GemmTilings, WarpgroupsTakeTurns) {
  expect_right(nt(264, 392, 136), "pingpong", 4);
  expect_right(nt(136, 264, 72, 0.5f), "pingpong", 1);
}

}  // namespace
}  // namespace cgp::kernels
