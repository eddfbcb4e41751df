// SPDX-License-Identifier: Apache-2.0
// The tabs as they look, and what keys do.
#include "cgp/profile/view/screen.h"

#include <gtest/gtest.h>

#include "cgp/base/file.h"
#include "cgp/profile/timeline/timeline.h"
#include "cgp/profile/view/table.h"

using namespace cgp;
using namespace cgp::profile;
using measure::Metric;
using measure::Source;

namespace {

ScreenModel recorded() {
  Timeline t;
  read_events(read_file(std::string(CGP_PROFILE_TESTDATA) + "/torch_trace.jsonl"), t);
  ScreenModel m;
  Document d = new_document("python", "script.py");
  d.machine["device"] = {{"name", "NVIDIA H200"}};
  d.kernels = kernels_of(t);
  d.more["timeline"] = to_json(summarise(t));
  d.metrics.set(Metric::arithmetic_intensity, 10.0, Source::derived, "x");
  d.metrics.set(Metric::gflops, 1000.0, Source::derived, "x");
  for (int i = 0; i < 2; ++i) {
    d.samples = {{"time", "us", std::vector<double>(20, 100.0 * (i + 1))}};
    m.documents.push_back(d);
  }
  m.contracts.push_back(
      parse_contract("name: c\nmetrics: {gflops: {min: 2000}, cycles: {max: 1}}", "c.yaml"));
  return m;
}

std::string shown(const ScreenModel& m, const ScreenState& s, int width = 100, int height = 30) {
  std::string out;
  for (const auto& l : render(m, s, width, height, false)) out += l + "\n";
  return out;
}

}  // namespace

TEST(screen, fills_exactly_the_terminal_at_any_size) {
  const ScreenModel m = recorded();
  for (const auto& [width, height] : {std::pair{80, 24}, {200, 60}, {40, 10}})
    for (int t = 0; t < kTabs; ++t) {
      ScreenState s;
      s.tab = Tab(t);
      const auto lines = render(m, s, width, height, false);
      EXPECT_EQ(lines.size(), std::size_t(height));
      for (const auto& l : lines) EXPECT_LE(columns(l), std::size_t(width)) << name(s.tab) << ": " << l;
    }
}

TEST(screen, each_tab_shows_its_subject) {
  const ScreenModel m = recorded();
  ScreenState s;
  EXPECT_NE(shown(m, s).find("A  script.py: 1000 GFLOP/s"), std::string::npos) << shown(m, s);
  press(s, m, "2");
  EXPECT_NE(shown(m, s).find("launches"), std::string::npos);
  EXPECT_NE(shown(m, s).find("█"), std::string::npos);
  press(s, m, "4");
  EXPECT_NE(shown(m, s).find("SUSPECT"), std::string::npos);
  press(s, m, "5");
  EXPECT_NE(shown(m, s).find("FAIL  gflops >= 2000"), std::string::npos);
  EXPECT_NE(shown(m, s).find("SKIP  cycles"), std::string::npos);
  EXPECT_NE(shown(ScreenModel{}, ScreenState{}).find("no profile is open"), std::string::npos);
}

TEST(screen, a_contract_is_checked_against_the_profile_that_it_is_about) {
  ScreenModel m = recorded();
  m.documents.push_back(new_document("roofline", "ceilings"));
  ScreenState s;
  press(s, m, "5");
  EXPECT_NE(shown(m, s).find("FAIL  gflops >= 2000"), std::string::npos) << shown(m, s);
}

TEST(screen, sections_of_another_form_are_no_ceilings) {
  using nlohmann::ordered_json;
  // The first is what `cgp profile quant` writes.
  for (const ordered_json& section :
       {ordered_json{{"peak_gflops", 1}}, ordered_json(5), ordered_json{{"lines", 5}},
        ordered_json{{"lines", {1, ordered_json::object()}}, {"points", {2, {{"intensity", 1}}}}}}) {
    ScreenModel m;
    m.documents.push_back(new_document("quant", "q4k"));
    m.documents[0].more["roofline"] = section;
    EXPECT_NE(shown(m, ScreenState{}).find("no ceilings"), std::string::npos) << section;
  }
}

TEST(screen, long_tabs_scroll_and_narrow_bars_keep_the_chosen_name) {
  const ScreenModel m = recorded();
  ScreenState s;
  press(s, m, "2");
  const std::string top = shown(m, s, 100, 8);
  press(s, m, "j");
  EXPECT_EQ(s.scrolled, 1);
  EXPECT_NE(shown(m, s, 100, 8), top);
  for (int i = 0; i < 1000; ++i) press(s, m, "down");
  EXPECT_LT(s.scrolled, 900) << "one back is seen";
  for (int i = 0; i < 1000; ++i) press(s, m, "k");
  EXPECT_EQ(shown(m, s, 100, 8), top);
  EXPECT_EQ(render(m, s, 30, 8, false)[0], " 1 [2 Timeline] 3  4  5 ");
  press(s, m, "d");
  EXPECT_EQ(s.tab, Tab::compare);
  EXPECT_NE(roofline_picture(m).find("<svg"), std::string::npos);
  EXPECT_EQ(roofline_picture({}), "");
}

TEST(screen, keys_choose_show_and_filter_kernels) {
  const ScreenModel m = recorded();
  ScreenState s;
  press(s, m, "3");
  EXPECT_NE(shown(m, s).find(">  "), std::string::npos);
  press(s, m, "down");
  EXPECT_EQ(s.selected, 1);
  press(s, m, "enter");
  EXPECT_NE(shown(m, s).find("grid "), std::string::npos);
  press(s, m, "escape");
  EXPECT_FALSE(s.detail);
  for (const char* key : {"/", "s", "o", "f", "t", "m", "a", "x", "enter"}) press(s, m, key);
  EXPECT_EQ(s.filter, "softmax");
  EXPECT_EQ(shown(m, s).find("layer_norm"), std::string::npos);
  EXPECT_NE(shown(m, s).find("softmax"), std::string::npos);
  for (int i = 0; i < 50; ++i) press(s, m, "up");
  EXPECT_EQ(s.selected, 0);
  press(s, m, "?");
  EXPECT_NE(shown(m, s).find("quit"), std::string::npos);
  press(s, m, "tab");
  EXPECT_EQ(s.tab, Tab::compare);
  EXPECT_FALSE(press(s, m, "q"));
}
