// SPDX-License-Identifier: Apache-2.0
#include "tools/cgp/model/load_model.h"

#include <fmt/core.h>

#include "tools/cgp/terminal.h"

namespace cgp::cli {

engine::LLM load_model(const Context& context, const ModelOptions& o) {
  Progress progress(!context.json);
  engine::LoadOptions l;
  l.context = o.context, l.chunk = o.chunk, l.threads = o.threads, l.lookup_tokens = o.lookup;
  l.sequences = o.sequences, l.cache_tokens = o.cache_tokens, l.prompt_rows = o.prompt_rows;
  l.embeddings = o.embeddings;
  l.draft = o.draft, l.draft_tokens = o.draft_tokens;
  l.device = o.device, l.tensor_parallel = o.tensor_parallel, l.batch_invariant = o.batch_invariant;
  using engine::ActivationType, engine::CacheType;
  l.activations = o.activations == "f32"     ? ActivationType::f32
                  : o.activations == "int16" ? ActivationType::int16
                  : o.activations == "int8"  ? ActivationType::int8
                                             : ActivationType::automatic;
  l.cache = o.cache == "f32"    ? CacheType::f32
            : o.cache == "bf16" ? CacheType::bf16
            : o.cache == "e4m3" ? CacheType::e4m3
                                : CacheType::f16;
  l.progress = [&](double fraction) {
    progress.step(fmt::format("loading {}: {:.0f} %", o.model, 100 * fraction));
  };
  return engine::LLM::load(o.model, l);
}

}  // namespace cgp::cli
