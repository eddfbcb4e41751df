// SPDX-License-Identifier: Apache-2.0
#pragma once
// A roofline: ceilings of compute and of memory, and kernels as points, as SVG and as characters.
#include <string>
#include <vector>

namespace cgp::profile {

struct RoofLine {
  std::string name;
  bool bandwidth = false;
  double value = 0;  ///< GFLOP/s or GB/s
  bool measured = true;
};
/// What one level of memory moved for a point.
struct RoofLevel {
  std::string name;  ///< "HBM", "L2", "L1", "shared": how the names of its ceilings begin
  double bytes = 0, intensity = 0;
};
struct RoofPoint {
  std::string name;
  double intensity = 0, gflops = 0;    ///< FLOP/B, GFLOP/s
  std::vector<RoofLevel> levels = {};  ///< from counters
};
struct Roofline {
  std::string title;
  std::vector<RoofLine> lines;
  std::vector<RoofPoint> points;
  /// min(best peak, intensity * best bandwidth); throws ArgumentError for an intensity that is not positive.
  double ceiling(double intensity) const;
  double ridge() const;
  /// Why a point lies above the roof, which no program can reach; empty: it does not.
  std::string above(const RoofPoint& point) const;
  /// The widest ceiling of a level, a measured one before that of a data sheet; nullptr: it has none.
  const RoofLine* ceiling_of(const RoofLevel& level) const;
};
std::string roofline_svg(const Roofline& r, int width = 900, int height = 520);
std::string roofline_text(const Roofline& r, int width = 80, int height = 18);

}  // namespace cgp::profile
