// SPDX-License-Identifier: Apache-2.0
// The expected maps are the formulas of the PTX ISA text, one per shape as it prints them (groupID, threadID
// in group, conditions on i), not the common formula of fragments.h.
#include "cgp/emu/tensor/fragments.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <tuple>

namespace cgp::emu {
namespace {

using Map = std::function<Place(int group, int thread, int i)>;

void expect_map(const char* what, int elements, int per_register, const Map& want,
                const std::function<Place(int lane, int r, int i)>& got, int rows, int columns) {
  std::set<std::tuple<int, int>> seen;
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < elements; ++i) {
      const Place w = want(lane >> 2, lane % 4, i), g = got(lane, i / per_register, i % per_register);
      ASSERT_EQ(g, w) << what << " lane " << lane << " element " << i << ": (" << g.row << "," << g.column
                      << ") instead of (" << w.row << "," << w.column << ")";
      ASSERT_TRUE(g.row < rows && g.column < columns) << what;
      seen.insert({g.row, g.column});
    }
  EXPECT_EQ(int(seen.size()), rows * columns) << what << " covers every element once";
}

TEST(Fragments, A) {
  const auto a = [](int m, int bits) {
    return [=](int lane, int r, int i) { return a_place(m, bits, lane, r, i); };
  };
  // .m16n8k8 f16: a0,a1 row groupID; a2,a3 groupID + 8
  expect_map(
      "A m16n8k8 f16", 4, 2,
      [](int g, int t, int i) {
        return Place{i < 2 ? g : g + 8, t * 2 + (i & 1)};
      },
      a(16, 16), 16, 8);
  expect_map(
      "A m16n8k16 f16", 8, 2,
      [](int g, int t, int i) {
        return Place{i < 2 || (i >= 4 && i < 6) ? g : g + 8, i < 4 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8};
      },
      a(16, 16), 16, 16);
  expect_map(
      "A m16n8k4 tf32", 2, 1,
      [](int g, int t, int i) {
        return Place{i == 0 ? g : g + 8, t};
      },
      a(16, 32), 16, 4);
  expect_map(
      "A m16n8k8 tf32", 4, 1,
      [](int g, int t, int i) {
        return Place{i == 0 || i == 2 ? g : g + 8, i < 2 ? t : t + 4};
      },
      a(16, 32), 16, 8);
  expect_map(
      "A m8n8k16 s8", 4, 4,
      [](int g, int t, int i) {
        return Place{g, t * 4 + i};
      },
      a(8, 8), 8, 16);
  expect_map(
      "A m16n8k16 s8", 8, 4,
      [](int g, int t, int i) {
        return Place{i < 4 ? g : g + 8, t * 4 + (i & 3)};
      },
      a(16, 8), 16, 16);
  expect_map(
      "A m16n8k32 s8", 16, 4,
      [](int g, int t, int i) {
        return Place{i < 4 || (i >= 8 && i < 12) ? g : g + 8, i < 8 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16};
      },
      a(16, 8), 16, 32);
  expect_map(
      "A m8n8k32 s4", 8, 8,
      [](int g, int t, int i) {
        return Place{g, t * 8 + i};
      },
      a(8, 4), 8, 32);
  expect_map(
      "A m16n8k32 s4", 16, 8,
      [](int g, int t, int i) {
        return Place{i < 8 ? g : g + 8, t * 8 + (i & 7)};
      },
      a(16, 4), 16, 32);
  expect_map(
      "A m16n8k64 s4", 32, 8,
      [](int g, int t, int i) {
        return Place{i < 8 || (i >= 16 && i < 24) ? g : g + 8,
                     i < 16 ? t * 8 + (i & 7) : t * 8 + (i & 7) + 32};
      },
      a(16, 4), 16, 64);
  expect_map(
      "A m8n8k128 b1", 32, 32,
      [](int g, int t, int i) {
        return Place{g, t * 32 + i};
      },
      a(8, 1), 8, 128);
  expect_map(
      "A m16n8k256 b1", 128, 32,
      [](int g, int t, int i) {
        return Place{i < 32 || (i >= 64 && i < 96) ? g : g + 8,
                     i < 64 ? t * 32 + (i & 31) : t * 32 + (i & 31) + 128};
      },
      a(16, 1), 16, 256);
  expect_map(
      "A m8n8k4 f64", 1, 1,
      [](int g, int t, int) {
        return Place{g, t};
      },
      a(8, 64), 8, 4);
  expect_map(
      "A m16n8k16 f64", 8, 1,
      [](int g, int t, int i) {
        return Place{i % 2 == 0 ? g : g + 8, i / 2 * 4 + t};
      },
      a(16, 64), 16, 16);
}

TEST(Fragments, B) {
  const auto b = [](int k, int bits) {
    return [=](int lane, int r, int i) { return b_place(k, bits, lane, r, i); };
  };
  expect_map(
      "B m16n8k16 f16", 4, 2,
      [](int g, int t, int i) {
        return Place{g, i < 2 ? t * 2 + (i & 1) : t * 2 + (i & 1) + 8};
      },
      b(16, 16), 8, 16);
  expect_map(
      "B m16n8k8 f16", 2, 2,
      [](int g, int t, int i) {
        return Place{g, t * 2 + i};
      },
      b(8, 16), 8, 8);
  expect_map(
      "B m16n8k4 tf32", 1, 1,
      [](int g, int t, int) {
        return Place{g, t};
      },
      b(4, 32), 8, 4);
  expect_map(
      "B m16n8k8 tf32", 2, 1,
      [](int g, int t, int i) {
        return Place{g, i == 0 ? t : t + 4};
      },
      b(8, 32), 8, 8);
  expect_map(
      "B m16n8k16 s8", 4, 4,
      [](int g, int t, int i) {
        return Place{g, t * 4 + i};
      },
      b(16, 8), 8, 16);
  expect_map(
      "B m16n8k32 s8", 8, 4,
      [](int g, int t, int i) {
        return Place{g, i < 4 ? t * 4 + (i & 3) : t * 4 + (i & 3) + 16};
      },
      b(32, 8), 8, 32);
  expect_map(
      "B m16n8k64 s4", 16, 8,
      [](int g, int t, int i) {
        return Place{g, i < 8 ? t * 8 + (i & 7) : t * 8 + (i & 7) + 32};
      },
      b(64, 4), 8, 64);
  expect_map(
      "B m16n8k256 b1", 64, 32,
      [](int g, int t, int i) {
        return Place{g, i < 32 ? t * 32 + (i & 31) : t * 32 + (i & 31) + 128};
      },
      b(256, 1), 8, 256);
  expect_map(
      "B m8n8k4 f64", 1, 1,
      [](int g, int t, int) {
        return Place{g, t};
      },
      b(4, 64), 8, 4);
  expect_map(
      "B m16n8k16 f64", 4, 1,
      [](int g, int t, int i) {
        return Place{g, i * 4 + t};
      },
      b(16, 64), 8, 16);
}

TEST(Fragments, Accumulators) {
  const auto d = [](int m) { return [=](int lane, int r, int) { return d_place(m, lane, r); }; };
  expect_map(
      "D m16n8", 4, 1,
      [](int g, int t, int i) {
        return Place{i < 2 ? g : g + 8, t * 2 + (i & 1)};
      },
      d(16), 16, 8);
  expect_map(
      "D m8n8", 2, 1,
      [](int g, int t, int i) {
        return Place{g, t * 2 + i};
      },
      d(8), 8, 8);
  // wgmma, Figure of D: register pairs walk the rows g, g + 8, then the next eight columns.
  expect_map(
      "D wgmma n64", 32, 1,
      [](int g, int t, int i) {
        return Place{g + (i / 2 % 2) * 8, i / 4 * 8 + t * 2 + i % 2};
      },
      d(16), 16, 64);
  // wmma m16n16k16 is two m16n8 tiles side by side.
  expect_map(
      "D m16n16", 8, 1,
      [](int g, int t, int i) {
        return Place{i % 4 < 2 ? g : g + 8, i / 4 * 8 + t * 2 + (i & 1)};
      },
      d(16), 16, 16);
}

TEST(Fragments, EveryShapeOfWmmaCoversItsMatrix) {
  for (auto [m, n] : {std::pair{16, 16}, {32, 8}, {8, 32}}) {
    for (int bits : {16, 8}) {
      const int e = 32 / bits;
      const auto covers = [&](int elements, int rows, auto place) {
        std::set<std::pair<int, int>> seen;
        for (int lane = 0; lane < 32; ++lane)
          for (int r = 0; r < elements / 32 / e; ++r)
            for (int i = 0; i < e; ++i) {
              const Place p = place(lane, r, i);
              EXPECT_LT(p.row, rows);
              EXPECT_LT(p.column, 16);
              seen.insert({p.row, p.column});
            }
        EXPECT_EQ(int(seen.size()), elements) << m << "x" << n << " " << bits;
      };
      covers(m * 16, m, [&](int l, int r, int i) { return a_place(m, bits, l, r, i); });
      covers(n * 16, n, [&](int l, int r, int i) { return b_place(16, bits, l, r, i); });
    }
  }
}

TEST(Fragments, LoadMatrix) {
  for (int lane = 0; lane < 32; ++lane)
    for (int h = 0; h < 2; ++h) {
      const Place plain{lane / 4, lane % 4 * 2 + h}, transposed{lane % 4 * 2 + h, lane / 4};
      EXPECT_EQ(matrix_place(lane, h, false), plain);
      EXPECT_EQ(matrix_place(lane, h, true), transposed);
    }
}

}  // namespace
}  // namespace cgp::emu
