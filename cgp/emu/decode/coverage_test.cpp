// SPDX-License-Identifier: Apache-2.0
// Every opcode of the table is executed, or listed in unsupported.def with the reason.
#include <gtest/gtest.h>

#include "cgp/emu/core/machine.h"

namespace cgp::emu {

TEST(coverage, every_opcode_is_executed_or_refused_with_a_reason) {
  const Table& table = decode_table();
  for (std::size_t i = 0; i < std::size_t(ptx::Op::kCount); ++i) {
    const auto op = ptx::Op(i);
    const bool executed = table.get(op) != nullptr, listed = !unsupported_reason(op).empty();
    EXPECT_TRUE(executed || listed) << ptx::name(op) << " is neither executed nor in unsupported.def";
    EXPECT_FALSE(executed && listed) << ptx::name(op) << " is executed, but listed in unsupported.def";
  }
}

}  // namespace cgp::emu
