// SPDX-License-Identifier: Apache-2.0
#pragma once
// Frequencies of rotary position embeddings (Su et al., 2021) and what stretches them over longer contexts.
#include <cstdint>

#include "cgp/engine/program/program.h"
#include "cgp/model/source/source.h"

namespace cgp::engine {

/// From <architecture>.rope.*: none, linear (Chen et al., 2023), yarn (Peng et al., 2023), longrope (Ding et al., 2024); and the
/// factors of Llama 3 (rope_freqs.weight), which divide frequencies. `head_dim` is the default number of rotated dimensions;
/// `context` decides between the two sets of factors of longrope. Throws Unsupported for another type, and
/// ArgumentError for values that are no frequencies.
RopeTable rope_table(const model::Source& file, std::int64_t head_dim, std::int64_t context);
/// base^(-2i / dims), nothing stretched.
RopeTable plain_rope_table(std::int64_t dims, double base);

}  // namespace cgp::engine
