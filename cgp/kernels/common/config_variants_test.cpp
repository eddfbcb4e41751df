// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/common/config.h"

#include <gtest/gtest.h>

#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/catalog/entries.h"
#include "cgp/kernels/common/build_only.h"
#include "cgp/kernels/reduce/reduce.h"
#include "cgp/kernels/row/row_kernel.h"
#include "cgp/kernels/transpose/transpose.h"

using namespace cgp;
using namespace cgp::kernels;

namespace {

std::string message(std::string_view name) {
  try {
    (void)parse_config<row::RowConfig>("", name);
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "parsed";
}

}  // namespace

TEST(config, a_name_holds_every_field) {
  row::RowConfig c{8, 512, 1, 4, 2, 3, 1};
  c.hold_columns = c.edges = true;
  const auto name = config_name("", c);
  EXPECT_EQ(name, "_512x1_vec8_loads4_cluster2_stages3_min_blocks1_hold_columns_edges");
  EXPECT_EQ(parse_config<row::RowConfig>("", name), c);
  EXPECT_NE(config_hash(c), config_hash(row::RowConfig{}));
  EXPECT_NE(config_json(c).find("\"hold_columns\": true"), std::string::npos) << config_json(c);
}

TEST(config, names_that_do_not_fit_are_refused_where_they_differ) {
  EXPECT_NE(message("_512x1_vec8_hold").find("at _hold"), std::string::npos) << message("_512x1_vec8_hold");
  EXPECT_NE(message("_512x1_edges_hold_columns"), "parsed");  // the order is fixed
  EXPECT_NE(message("_512x1_vec"), "parsed");
  EXPECT_NE(message("_512x1_loads99999999999"), "parsed");
}

// Names of variants are printed configs: parsed and printed again they are the same, on every target.
TEST(config, variants_of_rows_and_elements_round_trip) {
  auto entries = row_entries();
  entries.push_back(reduce_entry()), entries.push_back(transpose_entry());
  int seen = 0;
  for (const auto& e : entries)
    for (const auto arch : kTargets) {
      const BuildOnly names;
      (void)e.images(arch);
      for (const auto& v : names.met()) {
        ASSERT_NE(v.config, nullptr) << v.name << " of " << e.name << " was not made from a config";
        const auto family = std::string_view(v.name).substr(0, v.family);
        EXPECT_EQ(v.config->round_trip(family, v.name), v.name);
        ++seen;
      }
    }
  EXPECT_GT(seen, 1500);
}
