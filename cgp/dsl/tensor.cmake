# SPDX-License-Identifier: Apache-2.0
# The tensor side of the language: tiles, asynchronous copies, matrix instructions, barriers.
set(DSL_TENSOR_SOURCES async.cpp cluster.cpp cluster_launch_control.cpp epilogue.cpp fragment.cpp ldmatrix.cpp mbarrier.cpp mma.cpp ring.cpp tensor_map_edit.cpp tile.cpp tma.cpp tmem.cpp umma.cpp wgmma.cpp wmma.cpp)
set(DSL_TENSOR_HEADERS async.h cluster.h cluster_launch_control.h epilogue.h fragment.h ldmatrix.h mailbox.h mbarrier.h mma.h ring.h smem_descriptor.h swizzle.h
    tensor_schema.h tensor_map_edit.h tile.h tma.h tmem.h umma.h umma_types.h wgmma.h wmma.h)
set(DSL_TENSOR_TESTS tile_test.cpp gemm_sm80_test.cpp gemm_sm90_test.cpp tensor_build_error_test.cpp
    tensor_text_test.cpp umma_build_error_test.cpp umma_text_test.cpp)
set(DSL_TENSOR_EMU_TESTS gemm_emu_test.cpp operand_emu_test.cpp async_emu_test.cpp umma_emu_test.cpp)
