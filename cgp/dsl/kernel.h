// SPDX-License-Identifier: Apache-2.0
#pragma once
// The language in one include. Reading order of its parts: types.h, record.h, val.h, carry.h, flow.h,
// reg_group.h, ptr.h, scope.h, build.h; then the instruction families.
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/core/build.h"
#include "cgp/dsl/core/convert.h"
#include "cgp/dsl/memory/atomic.h"
#include "cgp/dsl/sync/block.h"
#include "cgp/dsl/sync/sync.h"
#include "cgp/dsl/sync/warp.h"
