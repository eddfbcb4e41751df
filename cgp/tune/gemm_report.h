// SPDX-License-Identifier: Apache-2.0
#pragma once
// What `cgp bench gemm` found, as a table, as JSON (the format of results/) and as a picture. Pure: it needs
// no GPU.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cgp/kernels/bench/provenance.h"
#include "cgp/profile/counters/nvml.h"
#include "cgp/profile/measure/compare.h"

namespace cgp::tune {

struct GemmRow {
  std::string key = {};      ///< gemm_key()
  std::string variant = {};  ///< ours
  std::string peer = {};     ///< the peer's algorithm; empty without a peer
  int peer_candidates = 0;
  double flops = 0, bytes = 0;
  std::vector<measure::Timing> timings = {};          ///< ours first
  std::optional<double> error = {}, peer_error = {};  ///< over what fp32 sums allow: up to 1 is right
  measure::GpuState state = {};

  /// The peer's median time over ours; 0 without a peer.
  double ratio() const {
    return timings.size() < 2 ? 0 : timings[1].summary.median / timings[0].summary.median;
  }
};

struct GemmSummary {
  int rows = 0;  ///< with a peer
  double geomean = 0, min = 0;
  std::string worst;  ///< key of the row with the smallest ratio
};
GemmSummary summarise(const std::vector<GemmRow>& rows);

std::string table_head(bool peer);
std::string table_line(const GemmRow& row);
std::string summary_line(const GemmSummary& s);
/// cgp.bench/1.
nlohmann::ordered_json bench_json(const std::vector<GemmRow>& rows, const kernels::Provenance& from);
/// Problems from left to right, TFLOP/s upwards, ours and theirs.
std::string bench_svg(const std::vector<GemmRow>& rows, const std::string& title);

}  // namespace cgp::tune
