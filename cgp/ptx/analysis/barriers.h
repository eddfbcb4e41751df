// SPDX-License-Identifier: Apache-2.0
#pragma once
// Do all threads that a barrier or warp operation waits for reach it? A verdict is `safe` only when it is
// proven for the assumed block shape.
#include <optional>
#include <string>
#include <vector>

#include "cgp/ptx/analysis/bugs.h"
#include "cgp/ptx/analysis/values.h"

namespace cgp::ptx {

enum class Verdict : std::uint8_t { safe, unsafe, unknown };
std::string_view name(Verdict v);

struct Collective {
  std::uint32_t inst = 0;
  Scope needed = Scope::block;  ///< whose threads must come together
  Verdict verdict = Verdict::unknown;
  std::string why;          ///< empty when safe
  Bug bug = Bug::B02;       ///< when not safe
  std::size_t threads = 0;  ///< of the block, that may come
};
/// Every barrier, warp operation and `.aligned` instruction of the function, in program order.
std::vector<Collective> check_collectives(const ThreadValues& v);

}  // namespace cgp::ptx
