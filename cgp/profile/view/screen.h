// SPDX-License-Identifier: Apache-2.0
#pragma once
// The five tabs of cgp tui as text: a function from profiles and a state to lines, so that it can be tested
// without a terminal.
#include <string>
#include <vector>

#include "cgp/profile/contract/contract.h"
#include "cgp/profile/view/document.h"

namespace cgp::profile {

enum class Tab : std::uint8_t { roofline, timeline, kernel, compare, contract };
inline constexpr int kTabs = 5;
std::string_view name(Tab t);

struct ScreenState {
  Tab tab = Tab::roofline;
  int selected = 0;     ///< row of lists
  int scrolled = 0;     ///< lines above the first that is shown, elsewhere
  bool detail = false;  ///< Enter: the selected kernel in full
  bool help = false;
  std::string filter;   ///< of kernels' names
  bool typing = false;  ///< the filter is being typed
  std::string message;  ///< in the last line
};

struct ScreenModel {
  std::vector<Document> documents;  ///< the first is the reference of Compare
  std::vector<Contract> contracts;  ///< each checked against the last profile that it is about
};

/// Exactly `height` lines of at most `width` columns; no escape codes but those of the tab bar when `color`.
std::vector<std::string> render(const ScreenModel& model, const ScreenState& state, int width, int height,
                                bool color);

/// The picture of all that is open, as SVG; empty without ceilings.
std::string roofline_picture(const ScreenModel& model);

/// What a key does. False: quit. Keys: 1-5, Tab, arrows ("up", "down"), enter, escape, characters. What
/// writes a file or runs something (e, r) is done by who shows the screen.
bool press(ScreenState& state, const ScreenModel& model, const std::string& key);

}  // namespace cgp::profile
