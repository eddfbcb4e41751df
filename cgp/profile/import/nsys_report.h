// SPDX-License-Identifier: Apache-2.0
#pragma once
// Recordings of NVIDIA's system profiler as a timeline: the SQLite file of `nsys export --type sqlite` (which
// `nsys stats` leaves behind too), and the table of `nsys stats --report cuda_gpu_trace --format csv`.
#include <string>
#include <string_view>

#include "cgp/profile/timeline/timeline.h"

namespace cgp::profile {

struct NsysRecording {
  Timeline timeline;
  std::string gpu;                 ///< empty where the recording does not tell
  std::vector<std::string> notes;  ///< what is in the file and is not taken over
};

bool is_nsys_csv(std::string_view text);

/// Throws Unsupported without libsqlite3, ParseError when the tables are not those of nsys.
NsysRecording read_nsys_sqlite(const std::string& path);
NsysRecording read_nsys_csv(std::string_view text, const std::string& origin);

}  // namespace cgp::profile
