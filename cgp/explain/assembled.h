// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ptxas makes of a module: registers and spills as they are, where the toolkit is installed.
#include <map>
#include <string>
#include <string_view>

namespace cgp::explain {

struct Assembled {
  std::string absent;  ///< why nothing is known; empty: ptxas was asked
  struct Entry {
    int registers = 0;                      ///< of a thread
    int spill_stores = 0, spill_loads = 0;  ///< bytes
    int stack_bytes = 0;
  };
  std::map<std::string, Entry> entries;
};
/// Asks ptxas ($CGP_PTXAS, PATH, the toolkit's folder) about `ptx` for its own target.
Assembled assembled(std::string_view ptx, const std::string& target);
/// What `ptxas -v` printed.
std::map<std::string, Assembled::Entry> read_ptxas_log(std::string_view log);

}  // namespace cgp::explain
