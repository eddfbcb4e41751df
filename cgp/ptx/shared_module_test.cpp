// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/shared_module.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"

namespace cgp::ptx {
namespace {

const char* kText = ".version 7.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n";

TEST(shared_module, a_text_is_parsed_once_while_its_module_lives) {
  const auto first = share_module(kText);
  EXPECT_EQ(share_module(kText), first);
  EXPECT_EQ(module_of(kText).functions.size(), 1u);
  const std::string other = std::string(kText) + ".entry l() { ret; }\n";
  EXPECT_EQ(module_of(other).functions.size(), 2u) << "another text is another module";
  EXPECT_THROW(share_module("no PTX"), ParseError);
  EXPECT_EQ(share_module(kText), first) << "what failed replaced nothing";
}

}  // namespace
}  // namespace cgp::ptx
