#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# compute-sanitizer's four tools over every kernel on a GPU, as a table of problems and tools.
#   ninja cgp cgp_kernels_gpu_test && scripts/sanitize_on_gpu.sh CGP TESTS [FOLDER [PATTERN]]
# CGP and TESTS are the two programs, FOLDER takes what each run said, PATTERN (grep -E) chooses problems. JOBS, LIMIT
# (seconds each), TOOLS and CHECK (more options of the tools) can be set. The first of TOOLS, "plain", runs without one: it
# compiles the kernels and shows that they are right. Exit status 1: something is not clean.
set -uo pipefail
cgp=$(realpath "$1") tests=$(realpath "$2") out=${3:-sanitize} pattern=${4:-.}
jobs=${JOBS:-$(nproc)} limit=${LIMIT:-60} tools=${TOOLS:-plain memcheck racecheck synccheck initcheck} check=${CHECK:-}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
mkdir -p "$out"
export cgp tests out limit check sanitizer CGP_CACHE_DIR=${CGP_CACHE_DIR:-$(realpath "$out")/cache}
# Options of `cgp run`, or tests of what the catalogue does not have.
problems() {
  local r k v
  cat <<'P'
test decode_linear.right_on_a_gpu
test qkv_append.right_on_a_gpu
test kv_cache.right_on_a_gpu
test decode.right_on_a_gpu
test grouped_mixed.right_on_a_gpu
test attention_backward_sm90.modified_right_on_a_gpu
vecadd n=100003
vecadd dtype=bf16 n=4096
reduce shape=300001
reduce op=max dtype=f16 shape=30x77x130 dim=1
reduce shape=100x100 dim=0
transpose rows=1000 cols=201
transpose dtype=u8 rows=1003 cols=77
transpose dtype=bf16 rows=1024 cols=768
argmax dtype=f32 rows=33 cols=777
argmax rows=30 cols=50257 values=1
cross_entropy rows=30 cols=50257
cross_entropy rows=7 cols=1024 smoothing=0.1
cumsum rows=33 cols=777
cumsum rows=5 cols=20000 dtype=f16
dropout rows=33 cols=777
bias_gradient rows=999 cols=777
embedding rows=333 cols=777
embedding_backward rows=1333 cols=77 vocab=101
topk rows=33 cols=777
topk rows=7 cols=32000 k=40
rope tokens=100
rope tokens=100 dim=36 dtype=f32 tables=1
attention n=200 d=128 causal=1
attention n=130 d=64 mask=additive variant=mma
attention n=130 d=256 dtype=f16
attention n=130 d=96 dtype=e4m3
attention n=77 d=64 dtype=f32
attention n=130 d=128 packed=1 causal=1
attention n=130 d=64 cap=3 alibi=1 lengths=1
grouped_gemm rows=300 n=264 k=136 spread=skewed
grouped_gemm rows=300 n=264 k=136 layout=nn spread=holes gather=1
grouped_gemm rows=300 form=depth m=136 n=264
grouped_gemm rows=300 form=problems n=264 k=136
grouped_gemm rows=300 form=problems misaligned=1
grouped_gemm rows=300 n=264 k=136 variant=sm80
grouped_gemm rows=300 n=129 k=65 dtype=f32
gemm m=127 n=255 k=331
gemm m=1 n=1000 k=1000
gemm m=130 n=264 k=128 layout=nn beta=1
gemm dtype=f32 m=257 n=129 k=100
P
  for r in "rows=33 cols=777 dtype=f32" "rows=20 cols=8192" "rows=5 cols=131072"; do
    for k in softmax softmax_backward log_softmax log_softmax_backward layer_norm rms_norm layer_norm_backward rms_norm_backward; do
      echo "$k $r"
    done
  done
  for k in activation activation_backward gated gated_backward; do
    echo "$k rows=64 cols=1024"; echo "$k rows=33 cols=777"
  done
  for v in naive simt sm80 sm90 sm90_cluster_split_k sm90_persistent sm90_stream_k sm90_split_k sm90_pingpong; do
    echo "gemm variant=$v m=200 n=264 k=320"
    echo "gemm variant=$v m=130 n=136 k=128 layout=nn dtype=f16"
  done
  echo "gemm variant=skinny m=16 n=264 k=328"; echo "gemm variant=sm90_small_m m=16 n=264 k=320"
  for v in {0..10}; do echo "test all/gemm_mixed_case.right_and_repeatable_on_a_gpu/$v"; done
  for v in {0..15}; do echo "test all/gemm_coverage_shard.right_and_repeatable_on_a_gpu/$v"; done
  for v in warp cta32 cta64 ahead copies mma64 swizzled mma64x128 three_stages mma128 mma128x256 grouped; do
    echo "gemm_ladder step=$v m=136 n=264 k=104"
  done
}
one() {
  local tool=$1 what=$2 file=$out/${2//[ \/]/_}.$1 with=() program
  [ "$tool" = plain ] || with=("$sanitizer" --tool "$tool" --error-exitcode 9 --print-limit 20 $check)
  if [ "${what%% *}" = test ]; then program=("$tests" --gtest_filter="${what#test }")
  else program=("$cgp" run $what --device cuda --repeat 1); fi
  timeout "$limit" "${with[@]}" "${program[@]}" >"$file" 2>&1
  local rc=$? said
  said=$(grep -ohE '(ERROR|RACECHECK) SUMMARY: .*' "$file" | sed -E 's/.*SUMMARY: //')
  if [ $rc = 124 ]; then said="over $limit s"
  elif grep -q SKIPPED "$file"; then said=skipped
  elif [ $rc = 0 ]; then said="clean (${said:-right})"
  else said="exit $rc: ${said:-failed}"; fi
  printf '%s\t%s\t%s\t%s s\n' "$what" "$tool" "$said" "$SECONDS"
}
export -f one
run() { [ $# = 0 ] || problems | grep -E "$pattern" | while read -r what; do for tool in "$@"; do printf '%s\0%s\0' "$tool" "$what"; done; done |
  xargs -r -0 -n 2 -P "$jobs" bash -c 'SECONDS=0; one "$@"' _; }
first=${tools%% *}
{ run "$first"; run ${tools#"$first"}; } | tee "$out/table.tsv"
! grep -vE '	(clean|skipped)' "$out/table.tsv" >/dev/null
