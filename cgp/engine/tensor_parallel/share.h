// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's part of a program: attention by heads, feed-forward layers and experts by their hidden values, the language model's head by
// words (Shoeybi et al., arXiv:1909.08053). Each layer ends with two sums over the ranks.
#include "cgp/engine/program/program.h"
#include "cgp/model/source/source.h"

namespace cgp::engine {

/// The first rank has the residual stream and biases of the products that are summed. Heads of the cache that are fewer than the ranks
/// are on several; a vocabulary that cannot be shared evenly is whole on all. Throws ArgumentError that names what `ranks` cannot
/// share evenly: heads, hidden values, blocks of a quantised weight's rows.
Program share(const Program& whole, const model::Source& file, int rank, int ranks);

}  // namespace cgp::engine
