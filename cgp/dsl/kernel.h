// SPDX-License-Identifier: Apache-2.0
#pragma once
// The language in one include. Reading order of its parts: types.h, record.h, val.h, carry.h, flow.h,
// reg_group.h, ptr.h, scope.h, build.h; then the instruction families.
#include "cgp/dsl/arith.h"
#include "cgp/dsl/atomic.h"
#include "cgp/dsl/block.h"
#include "cgp/dsl/build.h"
#include "cgp/dsl/convert.h"
#include "cgp/dsl/sync.h"
#include "cgp/dsl/warp.h"
