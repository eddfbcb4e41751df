// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/build_only.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/vecadd/vecadd.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;

std::vector<std::string> names_of(const std::vector<runtime::KernelImage>& images) {
  std::vector<std::string> out;
  for (const auto& i : images) out.push_back(i.name);
  return out;
}

struct Counted {
  int built = 0;
  std::vector<Variant> all;
  Counted() {
    const Variant real = vecadd_variants()[0];
    for (const char* name : {"one", "two", "two", "three"})
      all.push_back({name, 75, {}, [this, real](const std::string& n, const std::string& target) {
                       ++built;
                       return real.build(n, target);
                     }});
    all[3].only = "sm_90a";
  }
};

TEST(build_only, gives_names_and_builds_nothing) {
  Counted c;
  {
    const BuildOnly none;
    const auto names = images(c.all, "sm_80");
    EXPECT_EQ(names_of(names), (std::vector<std::string>{"one", "two"}));
    for (const auto& i : names) EXPECT_TRUE(!i.ptx && i.entry == i.name) << i.name;
    EXPECT_EQ(names_of(images(c.all, "sm_90a")), (std::vector<std::string>{"one", "two", "three"}));
  }
  EXPECT_EQ(c.built, 0);
  EXPECT_EQ(images(c.all, "sm_80").size(), 2u);
  EXPECT_EQ(c.built, 2);
}

TEST(build_only, builds_the_one_that_is_named) {
  Counted c;
  const BuildOnly two("two");
  {
    const BuildOnly none;  // the inner one counts, then the outer one again
    images(c.all, "sm_80");
    EXPECT_EQ(c.built, 0);
  }
  const auto made = images(c.all, "sm_80");
  EXPECT_EQ(c.built, 1);
  ASSERT_EQ(made.size(), 2u);
  EXPECT_FALSE(made[0].ptx);
  ASSERT_TRUE(made[1].ptx);
  EXPECT_NE(made[1].ptx->find(".entry two("), std::string::npos);
}

TEST(build_only, the_whole_catalogue_is_named_without_building) {
  std::size_t named = 0;
  for (const auto& k : catalog())
    for (const auto arch : kTargets) {
      const BuildOnly none;
      try {
        for (const auto& i : k.images(arch)) {
          EXPECT_FALSE(i.ptx) << k.name << " " << i.name;
          ++named;
        }
      } catch (const Unsupported&) {  // nothing ships for it
      }
    }
  EXPECT_GT(named, 1000u);
}

TEST(build_only, names_are_those_that_are_built) {
  for (const char* kernel : {"cumsum", "rope", "vecadd"}) {
    const auto& k = find_kernel(kernel);
    std::vector<std::string> named;
    {
      const BuildOnly none;
      named = names_of(k.images("sm_90a"));
    }
    EXPECT_EQ(named, names_of(k.images("sm_90a"))) << kernel;
  }
}

}  // namespace
