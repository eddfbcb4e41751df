// SPDX-License-Identifier: Apache-2.0
#pragma once
// The HTTP server: api.h over libevent, one thread for all connections and one for the model.
//
//   POST /v1/chat/completions, /v1/completions, /v1/embeddings     GET /v1/models
//   GET /health: 200, or 503 while it shuts down     GET /metrics: Prometheus     GET /: a page to chat with
// Paths without /v1 are the same. Every answer but the page and /metrics is JSON or, of a streaming call, server-sent events.
#include <functional>

#include "cgp/engine/llm.h"
#include "cgp/serve/server_options.h"

namespace cgp::serve {

/// Serves until SIGTERM or SIGINT: then takes no more connections, waits for the answers that run (streams that do not end in
/// time end with an error event), and returns. `ready` gets the port. Throws Error with the system's reason where the
/// address cannot be had, Unsupported where cgp was built without libevent.
void serve(engine::LLM& llm, const ServeOptions& options, const std::function<void(int port)>& ready = {});

}  // namespace cgp::serve
