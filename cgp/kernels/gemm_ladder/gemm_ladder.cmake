# SPDX-License-Identifier: Apache-2.0
set(LADDER gemm_ladder/gemm_ladder)
target_sources(cgp_kernels PRIVATE ${LADDER}.cpp ${LADDER}_mma.cpp ${LADDER}_wmma.cpp
               PUBLIC FILE_SET HEADERS FILES ${LADDER}.h)
cgp_bench(cgp_gemm_ladder SOURCES ${LADDER}_bench.cpp LINKS cgp::kernels cgp::bench_table)
