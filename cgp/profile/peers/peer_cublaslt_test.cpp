// SPDX-License-Identifier: Apache-2.0
// Our declarations of cuBLASLt against NVIDIA's header, on machines that have it; and what is refused.
#include "cgp/profile/peers/peer_cublaslt.h"

#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/profile/peers/peer_cublaslt_abi.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define CGP_SAME(ours, theirs) static_assert(int(ours) == int(theirs))
namespace lt = cgp::measure::lt;
CGP_SAME(lt::DataType::r_32f, CUDA_R_32F);
CGP_SAME(lt::DataType::r_16f, CUDA_R_16F);
CGP_SAME(lt::DataType::r_8i, CUDA_R_8I);
CGP_SAME(lt::DataType::r_32i, CUDA_R_32I);
CGP_SAME(lt::DataType::r_16bf, CUDA_R_16BF);
CGP_SAME(lt::DataType::r_8f_e4m3, CUDA_R_8F_E4M3);
CGP_SAME(lt::DataType::r_8f_e5m2, CUDA_R_8F_E5M2);
CGP_SAME(lt::ComputeType::f32, CUBLAS_COMPUTE_32F);
CGP_SAME(lt::ComputeType::i32, CUBLAS_COMPUTE_32I);
CGP_SAME(lt::ComputeType::f32_fast_tf32, CUBLAS_COMPUTE_32F_FAST_TF32);
CGP_SAME(lt::Operation::n, CUBLAS_OP_N);
CGP_SAME(lt::Operation::t, CUBLAS_OP_T);
CGP_SAME(lt::MatmulDesc::trans_a, CUBLASLT_MATMUL_DESC_TRANSA);
CGP_SAME(lt::MatmulDesc::trans_b, CUBLASLT_MATMUL_DESC_TRANSB);
CGP_SAME(lt::MatmulDesc::epilogue, CUBLASLT_MATMUL_DESC_EPILOGUE);
CGP_SAME(lt::MatmulDesc::bias_pointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
CGP_SAME(lt::MatmulDesc::a_scale_pointer, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
CGP_SAME(lt::MatmulDesc::b_scale_pointer, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
CGP_SAME(lt::MatmulDesc::fast_accum, CUBLASLT_MATMUL_DESC_FAST_ACCUM);
CGP_SAME(lt::MatmulDesc::bias_data_type, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
CGP_SAME(lt::Epilogue::none, CUBLASLT_EPILOGUE_DEFAULT);
CGP_SAME(lt::Epilogue::relu, CUBLASLT_EPILOGUE_RELU);
CGP_SAME(lt::Epilogue::bias, CUBLASLT_EPILOGUE_BIAS);
CGP_SAME(lt::Epilogue::relu_bias, CUBLASLT_EPILOGUE_RELU_BIAS);
CGP_SAME(lt::Epilogue::gelu, CUBLASLT_EPILOGUE_GELU);
CGP_SAME(lt::Epilogue::gelu_bias, CUBLASLT_EPILOGUE_GELU_BIAS);
#if CUBLAS_VERSION >= 120900
CGP_SAME(lt::MatmulDesc::a_scale_mode, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
CGP_SAME(lt::MatmulDesc::b_scale_mode, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
CGP_SAME(lt::ScaleMode::scalar_32f, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
CGP_SAME(lt::ScaleMode::outer_vec_32f, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
CGP_SAME(lt::ScaleMode::vec128_32f, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
CGP_SAME(lt::ScaleMode::blk128x128_32f, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
CGP_SAME(lt::Layout::batch_count, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
CGP_SAME(lt::Layout::strided_batch_offset, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
CGP_SAME(lt::Preference::max_workspace_bytes, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
CGP_SAME(lt::Preference::min_alignment_a_bytes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
CGP_SAME(lt::Preference::min_alignment_b_bytes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
CGP_SAME(lt::Preference::min_alignment_c_bytes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
CGP_SAME(lt::Preference::min_alignment_d_bytes, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
CGP_SAME(lt::AlgoConfig::id, CUBLASLT_ALGO_CONFIG_ID);
CGP_SAME(lt::AlgoConfig::tile_id, CUBLASLT_ALGO_CONFIG_TILE_ID);
CGP_SAME(lt::AlgoConfig::splitk_num, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
CGP_SAME(lt::AlgoConfig::stages_id, CUBLASLT_ALGO_CONFIG_STAGES_ID);
CGP_SAME(lt::AlgoConfig::cluster_shape_id, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
static_assert(sizeof(lt::Algo) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(lt::HeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::HeuristicResult, workspace_size) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(lt::HeuristicResult, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(offsetof(lt::HeuristicResult, waves_count) ==
              offsetof(cublasLtMatmulHeuristicResult_t, wavesCount));
TEST(CublasLtAbi, AgreesWithNvidiasHeader) { SUCCEED() << "checked at compile time"; }
#else
TEST(CublasLtAbi, AgreesWithNvidiasHeader) { GTEST_SKIP() << "no cublasLt.h on this machine"; }
#endif

namespace {
using namespace cgp;
using namespace cgp::measure;

TEST(CublasLt, SaysWhatItCannotBeAskedFor) {
  CublasLtGemm g{.m = 64, .n = 64, .k = 64};
  EXPECT_EQ(reject(g), "");
  g.k = 0;
  EXPECT_NE(reject(g), "");
  g.k = 64, g.a = g.b = DType::e4m3;
  EXPECT_NE(reject(g).find("layout nt"), std::string::npos);
  g.trans_b = true;
  EXPECT_EQ(reject(g), "");
  g.a = g.b = DType::e5m2;
  EXPECT_NE(reject(g), "");
  g.a = g.b = DType::s8;
  EXPECT_NE(reject(g).find("s32"), std::string::npos);
}

TEST(CublasLt, NeedsAGpu) { EXPECT_THROW(CublasLt(runtime::Device::open("emu")), Unsupported); }

}  // namespace
