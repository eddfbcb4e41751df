// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the server counts, as Prometheus reads it (text format 0.0.4).
#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "cgp/serve/worker.h"

namespace cgp::serve {

/// Seconds. Buckets of 1 ms to 65 s, each twice the one before.
class Histogram {
 public:
  void add(double seconds);
  /// Lines of Prometheus.
  std::string text(const char* name, const char* help) const;

 private:
  std::array<std::int64_t, 17> counts_{};
  std::int64_t count_ = 0;
  double sum_ = 0;
};

struct Metrics {
  std::map<int, std::int64_t> answers;  ///< by HTTP status
  std::int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0, clients_gone = 0;
  Histogram first_token, between_tokens;
  std::string text(const Worker::State& worker) const;
};

}  // namespace cgp::serve
