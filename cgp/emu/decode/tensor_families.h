// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of add_tensor_families, one per file.
#include "cgp/emu/core/machine.h"

namespace cgp::emu {

void add_matrix(Table& t);       ///< exec_matrix.cpp: ldmatrix, stmatrix, movmatrix, mma, wmma
void add_cp_async(Table& t);     ///< exec_cp_async.cpp
void add_mbarrier(Table& t);     ///< exec_mbarrier.cpp
void add_bulk(Table& t);         ///< exec_bulk.cpp: cp.async.bulk, cp.reduce.async.bulk, bulk groups
void add_tensor_copy(Table& t);  ///< exec_tma.cpp: cp.async.bulk.tensor and its relatives
void add_tensor_map(Table& t);   ///< exec_tensor_map.cpp: tensormap.replace, tensormap.cp_fenceproxy
void add_wgmma(Table& t);        ///< exec_wgmma.cpp
void add_cluster(Table& t);      ///< exec_cluster.cpp: mapa, getctarank, cluster barrier, st.async, red.async
void add_launch_control(Table& t);  ///< exec_clc.cpp: clusterlaunchcontrol

/// mma.m8n8k4 on f16: exec_mma_quad.cpp.
void decode_mma_quad(Decoder& d, const ptx::Inst& i, Op& op);

/// State that other warps may be waiting for has changed.
inline void note_change(Warp& w) { w.changed = true; }

}  // namespace cgp::emu
