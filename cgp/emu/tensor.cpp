// SPDX-License-Identifier: Apache-2.0
// Registers the tensor-core and asynchronous instruction families.
#include "cgp/emu/machine.h"

namespace cgp::emu {

void add_tensor_families(Table&) {}

}  // namespace cgp::emu
