// SPDX-License-Identifier: Apache-2.0
// The arithmetic of DynamicTile: stages, epilogue subtiles and shared memory.
#include <algorithm>

#include "cgp/kernels/gemm/sm90/gemm_dynamic_sm90.h"

namespace cgp::kernels {

using namespace dsl;

namespace {
constexpr int kSwizzlePattern = 1024;
constexpr int kSharedMemory = 227 * 1024 - 2048;  // what barriers and alignment leave
int padded(int bytes) { return (bytes + kSwizzlePattern - 1) / kSwizzlePattern * kSwizzlePattern; }
// Rows of 128 bytes of the operand in a stage that one warpgroup alone reads.
int own_rows(const DynamicTile& t) { return t.by_columns() ? t.warpgroup_cols() : t.warpgroup_rows(); }
}  // namespace

std::vector<int> DynamicTile::thread_rows() const {
  std::vector<int> out;
  for (int r = 0; r < warpgroup_rows(); r += 64) out.insert(out.end(), {r, r + 8});
  return out;
}

int DynamicTile::stage_bytes() const {
  return terms * (DynTile::operand(a, element_bytes, major_a, height()).bytes() +
                  DynTile::operand(b, element_bytes, major_b, width()).bytes());
}

int DynamicTile::subtile() const {
  const int all = warpgroup_cols();
  if (non_persistent) return std::min(64, all);
  if (all % 64 == 0) return 64;
  if (!swap_ab) {
    for (int c : {104, 88, 72, 56, 40, 24})
      if (all % c == 0) return c;
    return 64;  // the last repeats a part of the one before
  }
  for (int c = 56; c >= 24; c -= 8)
    if (all % c == 0) return c;
  for (int c : {104, 88})
    if (all % c == 0) return c;
  return all <= 152 ? all : 64;
}

// Columns that are not 64 go without a swizzle: an odd number of 16-byte parts, which do not meet in banks.
DynTile DynamicTile::subtile_tile(ptx::Mod type) const {
  const int part = subtile();
  if (swap_ab) return DynTile::matrix(type, 2, part, 64, Swizzle::b128);
  return DynTile::matrix(type, 2, 64, part, part == 64 ? Swizzle::b128 : Swizzle::none);
}

int DynamicTile::subtiles() const {
  return (warpgroup_cols() + subtile() - 1) / subtile() * (warpgroup_rows() / 64);
}

bool DynamicTile::results_fit_ring() const {
  return (swap_ab || warpgroup_cols() >= 64) && subtiles() <= own_rows(*this) / 64 * stages;
}

int DynamicTile::source_subtiles() const {
  return stage_bytes() / padded(subtile_tile(a).bytes()) / warpgroups;
}

int DynamicTile::source_stages() const {
  const int each = source_subtiles();
  const int needed = each ? (subtiles() + each - 1) / each : 0;
  return needed <= stages ? needed : 0;
}

int DynamicTile::staging_bytes(int buffers) const {
  return non_persistent ? 0 : subtile_tile(a).aligned_bytes() * buffers * warpgroups;
}

int DynamicTile::store_buffers() const {
  const int n = subtiles(), several = n % 2 == 0 ? 2 : n % 3 == 0 ? 3 : 1;
  // A fourth stage is worth more.
  const bool one =
      subtile_tile(a).bytes() > 12 * 1024 || (fitting_stages(several) < 4 && fitting_stages(1) >= 4);
  return one ? 1 : several;
}

int DynamicTile::fitting_stages(int buffers, int most) const {
  return std::min(most, (kSharedMemory - staging_bytes(buffers)) / stage_bytes());
}

}  // namespace cgp::kernels
