#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check.sh PRESET [ctest options]: configures, builds and tests one preset of CMakePresets.json: dev, nightly, clang,
# asan-ubsan, tsan, clang-asan-ubsan, clang-tsan. JOBS: how many at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?which preset? $(sed -n 's/.*"name": "\([a-z-]*\)", "configurePreset".*/\1/p' CMakePresets.json | sort -u | tr '\n' ' ')}
shift
jobs=${JOBS:-$(nproc)}
scripts/setup.sh
cmake --preset "$preset"
cmake --build --preset "$preset" -j "$jobs"
ctest --preset "$preset" -j "$jobs" "$@"
