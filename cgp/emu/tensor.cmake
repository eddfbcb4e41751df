# SPDX-License-Identifier: Apache-2.0
# The tensor-core and asynchronous families of the emulator.
target_sources(cgp_emu PRIVATE
  async_ops.cpp block_scale.cpp async_rows.cpp dsmem_lifetime.cpp exec_bulk.cpp exec_clc.cpp exec_cluster.cpp exec_cp_async.cpp exec_matrix.cpp exec_mbarrier.cpp exec_mma_quad.cpp exec_tensor_map.cpp exec_tma.cpp
  exec_wgmma.cpp exec_tcgen05_alloc.cpp exec_tcgen05_copy.cpp exec_tcgen05_mma.cpp exec_tcgen05_transfer.cpp tcgen05.cpp
  tcgen05_descriptor.cpp tcgen05_mma.cpp race_tensor.cpp tcgen05_scale.cpp tensor_memory.cpp matrix_plan.cpp mbarrier.cpp tensor_core.cpp tensor_core_step.cpp tensor_map.cpp wgmma_rows.cpp)
target_sources(cgp_emu PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
  fragments.h smem_descriptor.h tensor_core.h tensor_map.h)
# The lane loops of the fused sums are written to be vectorised. g++ 12 finds its own AVX-512 headers
# uninitialised (GCC bug 105593).
set_source_files_properties(tensor_core_step.cpp PROPERTIES COMPILE_OPTIONS
  "${CGP_HOT_LEVEL};$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>")

cgp_test(tensor_core_test SOURCES tensor_core_test.cpp LINKS cgp::emu)
cgp_test(fragments_test SOURCES fragments_test.cpp LINKS cgp::emu)
cgp_test(tensor_map_test SOURCES tensor_map_test.cpp LINKS cgp::emu)
cgp_test(tensor_exec_test SOURCES mbarrier_test.cpp exec_matrix_test.cpp exec_async_test.cpp exec_tma_test.cpp exec_tma_modes_test.cpp mma_sm120_test.cpp exec_wgmma_test.cpp
  LINKS cgp::emu)
cgp_test(tcgen05_test SOURCES tcgen05_misuse_test.cpp exec_clc_test.cpp exec_tcgen05_test.cpp exec_tcgen05_mma_test.cpp exec_tcgen05_scale_test.cpp ${PROJECT_SOURCE_DIR}/cgp/testing/assemble.cpp ${PROJECT_SOURCE_DIR}/cgp/testing/merge_ptx.cpp LINKS cgp::emu)
cgp_test(emu_policy_test SOURCES async_policy_test.cpp async_rows_test.cpp schedule_test.cpp LINKS cgp::emu)
cgp_test(gemm_emu_test SOURCES gemm_emu_test.cpp LINKS cgp::emu)
if(TARGET gemm_emu_test)
  target_compile_definitions(gemm_emu_test PRIVATE CGP_EMU_TESTDATA="${CMAKE_CURRENT_SOURCE_DIR}/testdata")
endif()
cgp_bench(tensor_core_bench SOURCES tensor_core_bench.cpp LINKS cgp::emu)
