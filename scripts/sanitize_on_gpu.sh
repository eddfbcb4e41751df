#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compute-sanitizer over every kernel's tests on a GPU, as a table of tests and tools.
#   ninja cgp_kernels_gpu_test && scripts/sanitize_on_gpu.sh PROGRAM [FOLDER] [TESTS]
# FOLDER takes what each run said, TESTS is a pattern of GoogleTest (default: every test for a GPU). JOBS, LIMIT (seconds
# each) and TOOLS can be set; the first, "plain", runs without a tool: it compiles the kernels and shows that they are right.
set -uo pipefail
program=$(realpath "$1") out=${2:-sanitize} pattern=${3:-'*on_a_gpu*'}
jobs=${JOBS:-$(nproc)} limit=${LIMIT:-60} tools=${TOOLS:-plain memcheck racecheck synccheck initcheck}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
mkdir -p "$out"
export program out limit sanitizer CGP_CACHE_DIR=${CGP_CACHE_DIR:-$(realpath "$out")/cache}
mapfile -t tests < <("$program" --gtest_filter="$pattern" --gtest_list_tests 2>/dev/null |
  awk '/^[^ ]/ {suite = $1} /^ / {print suite $1}')
one() {
  local tool=$1 test=$2 file=$out/${2//\//_}.$1 with=()
  [ "$tool" = plain ] || with=("$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20)
  timeout "$limit" "${with[@]}" "$program" --gtest_filter="$test" >"$file" 2>&1
  local rc=$? said
  said=$(grep -ohE '(ERROR|RACECHECK) SUMMARY: .*' "$file" | sed -E 's/.*SUMMARY: //')
  if [ $rc = 124 ]; then said="over $limit s"
  elif grep -q SKIPPED "$file"; then said=skipped
  elif [ $rc = 0 ]; then said="clean (${said:-right})"
  else said="exit $rc: ${said:-failed}"; fi
  printf '%s\t%s\t%s\t%s s\n' "$test" "$tool" "$said" "$SECONDS"
}
export -f one
run() { for test in "${tests[@]}"; do for tool in "$@"; do printf '%s\0%s\0' "$tool" "$test"; done; done |
  xargs -r -0 -n 2 -P "$jobs" bash -c 'SECONDS=0; one "$@"' _; }
first=${tools%% *}
{ run "$first"; run ${tools#"$first"}; } | tee "$out/table.tsv"
! grep -vE '	(clean|skipped)' "$out/table.tsv" >/dev/null
