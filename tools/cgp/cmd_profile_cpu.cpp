// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/error.h"
#include "profiler_commands.h"
namespace cgp::cli {
int profile_cpu(const Context&, const ProfileOptions& o) { throw ArgumentError("no profile of " + o.what); }
}  // namespace cgp::cli
