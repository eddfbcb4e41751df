// SPDX-License-Identifier: Apache-2.0
#pragma once
// What is needed of cuBLASLt's binary interface: values and layouts from its public documentation (cuBLAS
// 12.x and 13.x; they never changed). peer_cublaslt_test.cpp compares them with NVIDIA's header where there
// is one.
#include <cstddef>
#include <cstdint>

namespace cgp::measure::lt {

enum class DataType : std::int32_t {
  r_32f = 0,
  r_16f = 2,
  r_8i = 3,
  r_32i = 10,
  r_16bf = 14,
  r_8f_e4m3 = 28,
  r_8f_e5m2 = 29
};
enum class ComputeType : std::int32_t { f32 = 68, i32 = 72, f32_fast_tf32 = 77 };
enum class Operation : std::int32_t { n = 0, t = 1 };

enum class MatmulDesc : std::int32_t {  // attributes, with the types of their values
  trans_a = 3,                          // int32_t
  trans_b = 4,                          // int32_t
  epilogue = 7,                         // uint32_t
  bias_pointer = 8,                     // void*
  a_scale_pointer = 17,                 // void*
  b_scale_pointer = 18,                 // void*
  fast_accum = 25,                      // int8_t
  bias_data_type = 26,                  // int32_t
  a_scale_mode = 31,                    // int32_t
  b_scale_mode = 32                     // int32_t
};
enum class Epilogue : std::uint32_t {
  none = 1,
  relu = 2,
  bias = 4,
  relu_bias = 6,
  gelu = 32,
  gelu_bias = 36
};
enum class ScaleMode : std::int32_t { scalar_32f = 0, outer_vec_32f = 3, vec128_32f = 4, blk128x128_32f = 5 };
enum class Layout : std::int32_t { batch_count = 5, strided_batch_offset = 6 };  // int32_t, int64_t
enum class Preference : std::int32_t {
  max_workspace_bytes = 1,    // uint64_t
  min_alignment_a_bytes = 5,  // uint32_t, as are b, c and d
  min_alignment_b_bytes = 6,
  min_alignment_c_bytes = 7,
  min_alignment_d_bytes = 8
};
enum class AlgoConfig : std::int32_t {  // uint32_t, but splitk_num int32_t and cluster_shape_id uint16_t
  id = 0,
  tile_id = 1,
  splitk_num = 2,
  stages_id = 6,
  cluster_shape_id = 8
};

struct Algo {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algo algo;
  std::size_t workspace_size;
  std::int32_t state;  ///< a status; 0: the other members are valid
  float waves_count;
  std::int32_t reserved[4];
};

}  // namespace cgp::measure::lt
