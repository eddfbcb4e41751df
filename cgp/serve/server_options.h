// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

namespace cgp::serve {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  ///< 0: one that is free
  std::string model = {};
  std::string api_key = {};         ///< "Authorization: Bearer KEY" on all but / and /health; empty: none
  std::int64_t max_body = 8 << 20;  ///< bytes
  std::int64_t max_active = 512;    ///< choices that run or wait, at most; more are answered with 429
  double idle_seconds = 60;         ///< without a byte while a request is read or an answer written
  double request_seconds = 3600;    ///< for an answer, at most
  double drain_seconds = 10;        ///< that answers get to end after SIGTERM or SIGINT
};

}  // namespace cgp::serve
