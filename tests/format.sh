#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails, naming the files, when a tracked C++ file is not as clang-format 14 would write it.
cd "$(dirname "$0")/.." || exit 1
bad=$(git ls-files '*.h' '*.cpp' | grep -v testdata | xargs -P 2 -n 40 "$1" --dry-run --Werror 2>&1 | sed -n 's/^\([^:]*\):.*/\1/p' | sort -u)
[ -z "$bad" ] && { echo "1 passed, 0 failed"; exit 0; }
echo "not formatted (make format mends it):"; echo "$bad"; exit 1
