// SPDX-License-Identifier: Apache-2.0
#pragma once
// Findings with what tools know about them: the module, the launch, the policies under which they showed.
#include <string>
#include <vector>

#include "cgp/emu/emu.h"
#include "cgp/spec/report/style.h"
#include "cgp/spec/sources.h"

namespace cgp::spec {

struct LocatedFinding {
  std::size_t launch = 0;
  emu::Finding finding;
  std::string kernel;                 ///< the entry that was launched
  std::string module;                 ///< name of its PTX in Sources
  std::vector<std::string> policies;  ///< with several: "--async late --schedule fair", in order
  std::size_t policies_run = 0;
};

/// "(64,1,1)".
std::string dim_text(const emu::Dim3& d);
/// Whether a finding makes the run fail.
bool fails(const LocatedFinding& f);
bool any_fails(const std::vector<LocatedFinding>& all);
/// "2 errors, 1 note", "no findings".
std::string count_text(const std::vector<LocatedFinding>& all);

/// Puts `more`, found under `policy`, to what was found before: the same class at the same instruction of the
/// same launch is one finding.
void merge(std::vector<LocatedFinding>& all, const std::vector<LocatedFinding>& more,
           const std::string& policy);

/// Like a good compiler's error: headline, the C++ and the PTX line of both accesses with carets, what is
/// missing between them, what to write.
std::string finding_text(const LocatedFinding& f, Sources& sources, const Style& style);
/// All of them, those beyond the first `full` in one line each, and how to learn more.
std::string findings_text(const std::vector<LocatedFinding>& all, Sources& sources, const Style& style,
                          std::size_t full = 10);

}  // namespace cgp::spec
