# SPDX-License-Identifier: Apache-2.0
# Kernels on rows and elements: skeletons in row/, operations beside it.
target_sources(cgp_kernels PRIVATE
  row/column_sums.cpp row/elements.cpp row/entries.cpp row/fold.cpp row/row_exchange.cpp row/row_kernel.cpp
  row/row_plan.cpp row/tensor_case.cpp row/view.cpp
  row/element_kernel.cpp
  activation/activation.cpp
  argmax/argmax.cpp
  cross_entropy/cross_entropy.cpp cross_entropy/cross_entropy_entry.cpp
  cumsum/cumsum.cpp
  dropout/dropout.cpp
  embedding/embedding.cpp embedding/embedding_backward.cpp embedding/embedding_entry.cpp
  norm/norm.cpp norm/norm_backward.cpp norm/norm_entry.cpp
  rope/rope.cpp
  softmax/softmax.cpp
  topk/topk.cpp)
target_sources(cgp_kernels PUBLIC FILE_SET HEADERS FILES
  row/column_sums.h row/elements.h row/entries.h row/fold.h row/row_kernel.h row/row_plan.h row/tensor_case.h
  row/view.h
  row/element_kernel.h
  activation/activation.h activation/activation_code.h activation/activation_ref.h
  argmax/argmax.h cumsum/cumsum.h
  cross_entropy/cross_entropy.h cross_entropy/cross_entropy_ref.h
  dropout/dropout.h dropout/dropout_ref.h
  embedding/embedding.h embedding/embedding_parts.h embedding/embedding_ref.h
  norm/norm.h norm/norm_ref.h
  rope/rope.h
  softmax/softmax.h softmax/softmax_ref.h
  topk/topk.h)

cgp_bench(cgp_rows_bench
  SOURCES bench/rows_bench.cpp bench/rows_more_bench.cpp norm/norm_bench.cpp
          activation/activation_bench.cpp cross_entropy/cross_entropy_bench.cpp
  LINKS cgp::kernels cgp::bench_table)
