// SPDX-License-Identifier: Apache-2.0
// What recorded control flow computes, on the emulator, against plain host loops.
#include "cgp/dsl/core/on_emulator_test.h"

namespace cgp::dsl {
namespace {

using std::uint32_t;

TEST(flow, grid_stride_visits_every_index_once) {
  const auto k = build("k", "sm_80", [](Kernel& k, InOut<u32> c, Val<u32> n) {
    k.grid_stride(n, [&](ThreadIndex i) { atom<op::add>(c, i, i + 1); });
  });
  for (const uint32_t n : {0u, 1u, 31u, 64u, 1000u}) {
    std::vector<uint32_t> c(n + 1, 0);
    EmulatorRun run(k);
    RUN_OR_SKIP(run, (emu::Dim3{3, 1, 1}), (emu::Dim3{32, 1, 1}), buf(c), n);
    for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(c[i], i + 1) << "n = " << n;
    EXPECT_EQ(c[n], 0u);
  }
}

TEST(flow, grid_stride_with_64_bit_indices) {
  const auto k = build("k", "sm_80", [](Kernel& k, Disjoint<u64> c, Val<u64> n) {
    k.grid_stride(n, [&](ThreadIndex64 i) { c.st(i, i * 3); });
  });
  std::vector<std::uint64_t> c(300);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{2, 1, 1}), (emu::Dim3{64, 1, 1}), buf(c), std::uint64_t(300));
  for (std::size_t i = 0; i < c.size(); ++i) ASSERT_EQ(c[i], i * 3);
}

TEST(flow, each_thread_stops_at_n) {
  const auto k = build("k", "sm_80", [](Kernel& k, Disjoint<u32> c, Val<u32> n) {
    k.each_thread(n, [&](ThreadIndex i) { c.st(i, 7); });
  });
  std::vector<uint32_t> c(100, 1);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{4, 1, 1}), (emu::Dim3{32, 1, 1}), buf(c), 90u);
  for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(c[i], i < 90 ? 7u : 1u);
}

TEST(flow, ranges_do_not_wrap) {
  struct Case {
    uint32_t from, to, step;
  };
  const auto k = build("k", "sm_80", [](Kernel& k, Out<u32> c, Val<u32> from, Val<u32> to, Val<u32> step) {
    using S = std::tuple<Val<u32>, Val<u32>>;
    const auto s = k.loop(range(from, to, step), S{0, 0}, [&](Val<u32> i, S s) {
      return S{std::get<0>(s) + 1, std::get<1>(s) ^ i};
    });
    c.st(0, std::get<0>(s));
    c.st(1, std::get<1>(s));
  });
  for (const Case r : {Case{0, 10, 3}, Case{0xfffffff0u, 0xffffffffu, 7}, Case{5, 5, 1}, Case{6, 5, 1},
                       Case{0, 0xffffffffu, 0x80000000u}, Case{0, 9, 9}, Case{0, 10, 100}}) {
    std::vector<uint32_t> c(2);
    EmulatorRun run(k);
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(c), r.from, r.to, r.step);
    uint32_t turns = 0, mix = 0;
    for (std::uint64_t i = r.from; i < r.to; i += r.step) ++turns, mix ^= uint32_t(i);
    EXPECT_EQ(c[0], turns) << r.from << " to " << r.to << " by " << r.step;
    EXPECT_EQ(c[1], mix);
  }
}

TEST(flow, signed_ranges) {
  const auto k = build("k", "sm_80", [](Kernel& k, Out<s32> c, Val<s32> from, Val<s32> to) {
    c.st(0, k.loop(range(from, to), Val<s32>(0), [](Val<s32> i, Val<s32> sum) { return sum + i; }));
    c.st(1, k.loop(range(from, to, 4), Val<s32>(0), [](Val<s32>, Val<s32> n) { return n + 1; }));
  });
  std::vector<std::int32_t> c(2);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(c), -10, 5);
  EXPECT_EQ(c[0], -45);
  EXPECT_EQ(c[1], 4);
}

// A swap and a rotation are cycles of parallel moves: done one after the other they lose a value.
TEST(flow, carried_values_move_in_parallel) {
  const auto k = build("k", "sm_80", [](Kernel& k, Out<u32> c, Val<u32> n) {
    using P = std::pair<Val<u32>, Val<u32>>;
    const auto fib = k.loop(n, P{0, 1}, [](Val<u32>, P s) { return P{s.second, s.first + s.second}; });
    c.st(0, fib.first);
    using R = std::array<Val<u32>, 4>;
    const auto r = k.loop(n, R{10, 11, 12, 13}, [](Val<u32>, R s) { return R{s[1], s[2], s[0], s[0]}; });
    for (int i = 0; i < 4; ++i) c.st(1 + i, r[std::size_t(i)]);
  });
  for (const uint32_t n : {0u, 1u, 2u, 7u, 30u}) {
    std::vector<uint32_t> c(5);
    EmulatorRun run(k);
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(c), n);
    uint32_t a = 0, b = 1;
    std::array<uint32_t, 4> r{10, 11, 12, 13};
    for (uint32_t i = 0; i < n; ++i) {
      std::tie(a, b) = std::tuple(b, a + b);
      r = {r[1], r[2], r[0], r[0]};
    }
    EXPECT_EQ(c[0], a);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(c[1 + i], r[i]) << "n = " << n << ", element " << i;
  }
}

TEST(flow, initial_values_are_not_overwritten_by_the_loop) {
  const auto k = build("k", "sm_80", [](Kernel& k, Out<u32> c, Val<u32> n) {
    const auto start = n + 5;
    const auto end = k.loop(n, start, [](Val<u32>, Val<u32> s) { return s + 1; });
    c.st(0, start);
    c.st(1, end);
  });
  std::vector<uint32_t> c(2);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(c), 4u);
  EXPECT_EQ(c, (std::vector<uint32_t>{9, 13}));
}

TEST(flow, while_and_nested_if_agree_with_the_host) {  // Collatz: steps until 1
  const auto k = build("k", "sm_80", [](Kernel& k, Disjoint<u32> c, Val<u32> n) {
    k.grid_stride(n, [&](ThreadIndex i) {
      using S = std::tuple<Val<u32>, Val<u32>>;
      const auto s = k.while_(
          S{i + 1, 0}, [](S s) { return std::get<0>(s) != 1; },
          [&](S s) {
            const auto x = std::get<0>(s);
            const auto next = k.if_(
                x % 2 == 0, [&] { return x / 2; }, [&] { return x * 3 + 1; });
            return S{next, std::get<1>(s) + 1};
          });
      c.st(i, std::get<1>(s));
    });
  });
  std::vector<uint32_t> c(200);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{2, 1, 1}), (emu::Dim3{64, 1, 1}), buf(c), 200u);
  for (uint32_t i = 0; i < 200; ++i) {
    uint32_t x = i + 1, steps = 0;
    for (; x != 1; ++steps) x = x % 2 ? x * 3 + 1 : x / 2;
    ASSERT_EQ(c[i], steps) << i;
  }
}

struct Best {
  Val<f32> value;
  Val<u32> index;
  static auto carried() { return std::tuple(&Best::value, &Best::index); }
};

TEST(flow, structs_travel_through_loops_and_branches) {
  const auto k = build("k", "sm_80", [](Kernel& k, In<f32> a, Out<f32> v, Out<u32> at, Val<u32> n) {
    const auto best = k.loop(n, Best{a.ld(0), 0}, [&](Val<u32> i, Best best) {
      const auto x = a.ld(i);
      return k.if_(
          x > best.value,
          [&] {
            return Best{x, i};
          },
          [&] { return best; });
    });
    v.st(0, best.value);
    at.st(0, best.index);
  });
  std::vector<float> a{3, -1, 7.5f, 7.5f, 2, 7.25f}, v(1);
  std::vector<uint32_t> at(1);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(a), buf(v), buf(at), uint32_t(a.size()));
  EXPECT_EQ(v[0], 7.5f);
  EXPECT_EQ(at[0], 2u);
}

TEST(flow, struct_parameters_arrive) {
  struct Host {
    float scale;
    std::uint16_t small;
    double wide;
    std::uint32_t n;
  };
  struct Device {
    Val<f32> scale;
    Val<u16> small;
    Val<f64> wide;
    Val<u32> n;
    static auto carried() { return std::tuple(&Device::scale, &Device::small, &Device::wide, &Device::n); }
  };
  const auto k = build("k", "sm_80", [](Kernel&, Out<f64> c, Device p) {
    c.st(0, to<f64>(p.scale));
    c.st(1, to<f64>(p.small));
    c.st(2, p.wide);
    c.st(3, to<f64>(p.n));
  });
  EXPECT_EQ(k.params[1].size, sizeof(Host));
  EXPECT_EQ(k.params[1].detail, "f32 u16 f64 u32");
  std::vector<double> c(4);
  EmulatorRun run(k);
  RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(c), Host{2.5f, 7, -1e100, 99});
  EXPECT_EQ(c, (std::vector<double>{2.5, 7, -1e100, 99}));
}

TEST(flow, unused_code_is_dropped_and_used_code_is_not) {
  const auto k = build("k", "sm_80", [](Kernel& k, In<u32> a, InOut<u32> c, Val<u32> n) {
    (void)(n * 3 + k.tid());                                   // unused arithmetic goes
    k.loop(n, n, [](Val<u32>, Val<u32> s) { return s + 1; });  // an unused sum goes, cycle and all
    (void)a.ld(5);                                             // a load is never dropped
    k.if_(n == 3, [] {});                                      // an empty branch goes
    c.st(0, n);
  });
  int loads = 0, adds = 0, branches = 0;
  for (const auto& i : k.module->functions[0].body) {
    loads += i.op == ptx::Op::ld && i.has(ptx::Mod::global);
    adds += i.op == ptx::Op::add;
    branches += i.op == ptx::Op::bra;
  }
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(adds, 1);      // the loop counter
  EXPECT_EQ(branches, 2);  // the loop's two
}

// Random expressions over u32 and s32: recording, dead code removal, naming and printing against host
// arithmetic.
TEST(flow, random_expressions_agree_with_the_host) {
  uint32_t state = 12345;
  const auto random = [&](uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
  };
  for (int program = 0; program < 40; ++program) {
    std::vector<uint32_t> in(8), out(6), want(6);
    for (auto& v : in) v = random(1u << 24) * (random(2) ? 257u : 1u);
    std::vector<std::array<uint32_t, 4>> ops;
    for (int i = 0; i < 30; ++i)
      ops.push_back({random(12), random(8 + uint32_t(i)), random(8 + uint32_t(i)), random(31) + 1});
    const auto k = build("k", "sm_80", [&](Kernel&, In<u32> a, Out<u32> c) {
      std::vector<Val<u32>> v;
      for (int i = 0; i < 8; ++i) v.push_back(a.ld(i));
      for (const auto& [code, x, y, s] : ops) {
        const auto p = v[x], q = v[y];
        switch (code) {
          case 0:
            v.push_back(p + q);
            break;
          case 1:
            v.push_back(p - q);
            break;
          case 2:
            v.push_back(p * q);
            break;
          case 3:
            v.push_back(p / (q | 1));
            break;
          case 4:
            v.push_back(p % (q | 1));
            break;
          case 5:
            v.push_back(p ^ (q << s));
            break;
          case 6:
            v.push_back((p & q) | ~q);
            break;
          case 7:
            v.push_back(bits<u32>(bits<s32>(p) >> s));
            break;
          case 8:
            v.push_back(select(p < q, p, q + s));
            break;
          case 9:
            v.push_back(select(bits<s32>(p) < bits<s32>(q), p, q));
            break;
          case 10:
            v.push_back(min(p, q) + popc(p));
            break;
          default:
            v.push_back(mul<hi>(p, q) + s);
            break;
        }
      }
      for (int i = 0; i < 6; ++i) c.st(i, v[v.size() - 1 - std::size_t(i)]);
    });
    std::vector<uint32_t> v = in;
    for (const auto& [code, x, y, s] : ops) {
      const uint32_t p = v[x], q = v[y];
      const auto sp = std::int32_t(p), sq = std::int32_t(q);
      switch (code) {
        case 0:
          v.push_back(p + q);
          break;
        case 1:
          v.push_back(p - q);
          break;
        case 2:
          v.push_back(p * q);
          break;
        case 3:
          v.push_back(p / (q | 1));
          break;
        case 4:
          v.push_back(p % (q | 1));
          break;
        case 5:
          v.push_back(p ^ (q << s));
          break;
        case 6:
          v.push_back((p & q) | ~q);
          break;
        case 7:
          v.push_back(uint32_t(sp >> s));
          break;
        case 8:
          v.push_back(p < q ? p : q + s);
          break;
        case 9:
          v.push_back(sp < sq ? p : q);
          break;
        case 10:
          v.push_back(std::min(p, q) + uint32_t(__builtin_popcount(p)));
          break;
        default:
          v.push_back(uint32_t((std::uint64_t(p) * q) >> 32) + s);
          break;
      }
    }
    for (std::size_t i = 0; i < 6; ++i) want[i] = v[v.size() - 1 - i];
    EmulatorRun run(k);
    RUN_OR_SKIP(run, (emu::Dim3{1, 1, 1}), (emu::Dim3{1, 1, 1}), buf(in), buf(out));
    ASSERT_EQ(out, want) << "program " << program;
  }
}

}  // namespace
}  // namespace cgp::dsl
