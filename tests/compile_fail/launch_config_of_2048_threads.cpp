// expect: a block has at most 1024 threads
// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/launch.h"
using namespace cgp::runtime;
LaunchConfig<64, 32> c;
