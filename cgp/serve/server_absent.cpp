// SPDX-License-Identifier: Apache-2.0
// In builds without libevent.
#include "cgp/base/error.h"
#include "cgp/serve/server.h"

namespace cgp::serve {

void serve(engine::LLM&, const ServeOptions&, const std::function<void(int port)>&) {
  throw Unsupported(ErrorText{"serving needs libevent when cgp is built", "cgp serve",
                              "its headers or static libraries were not there",
                              "install libevent-dev and configure again"});
}

}  // namespace cgp::serve
