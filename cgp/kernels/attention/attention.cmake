# SPDX-License-Identifier: Apache-2.0
target_sources(cgp_kernels
  PRIVATE attention/attention.cpp attention/attention_formula.cpp attention/attention_entry.cpp attention/attention_ref.cpp
          attention/attention_backward.cpp attention/attention_backward_mma.cpp attention/attention_backward_simt.cpp attention/attention_backward_sm90.cpp attention/attention_backward_sm90_wide.cpp attention/attention_mma.cpp attention/attention_simt.cpp attention/attention_sm90.cpp attention/attention_sm90_fp8.cpp attention/attention_sm90_wide.cpp
  PUBLIC FILE_SET HEADERS FILES
          attention/attention.h attention/attention_backward.h attention/attention_backward_parts.h attention/attention_backward_sm90.h attention/attention_backward_sm90_wide.h attention/attention_delta.h attention/attention_formula.h attention/attention_params.h attention/attention_quad.h attention/attention_ref.h
          attention/attention_score.h attention/attention_sm90.h attention/attention_sm90_fp8.h attention/attention_tiles.h)
target_sources(cgp_kernels
  PRIVATE kv_cache/kv_cache.cpp kv_cache/kv_pages.cpp kv_cache/qkv_append.cpp decode/decode.cpp few_rows/few_rows.cpp
  PUBLIC FILE_SET HEADERS FILES kv_cache/kv_cache.h kv_cache/kv_pages.h kv_cache/kv_words.h kv_cache/qkv_append.h decode/decode.h decode/decode_kernel.h few_rows/few_rows.h)
cgp_bench(cgp_attention_bench SOURCES attention/attention_bench.cpp LINKS cgp::kernels cgp::bench_table)
