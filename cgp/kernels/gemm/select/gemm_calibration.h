// SPDX-License-Identifier: Apache-2.0
#pragma once
// What was measured on a device and predicts the times of gemm's tilings there: data, one file a device
// (gemm_calibration_<device>.def). A device that was not measured takes that of the H200: its predicted times rank
// tilings, they are not the times of that device. `cgp plan gemm` says which it took.
#include <array>
#include <string>
#include <string_view>

#include "cgp/runtime/device.h"

namespace cgp::kernels {

/// Times are microseconds, sizes elements and bytes. A step is 64 of K (128 bytes of 8-bit types), area is that of
/// tiles of 128 x 256.
struct GemmCalibration {
  std::string_view device;
  int sms;
  std::string_view fitted;  ///< to what

  /// Tiles of sm90, sm90_cluster_split_k, sm90_persistent, sm90_stream_k and sm90_pingpong.
  struct Tilings {
    double products,
        lines;       ///< elements of C, and rows of A and B, that an SM multiplies and fetches a us and step
    double overlap;  ///< of the shorter of both that the other does not hide
    double way;      ///< of a stage from memory
    double sent;     ///< rows of a stage that L2 sends to all SMs in a us
    double prologue, prologue_split, prologue_pair, prologue_cluster;  ///< of a block
    double exchange;                             ///< of 128 x 128 accumulators among blocks
    double results;                              ///< to store 128 x 256 results
    double sent_misaligned, results_misaligned;  ///< factors of both for rows across lines of 128 bytes
    double pingpong;                             ///< from one warpgroup to the other
    double pair, four;                           ///< factors of steps in clusters of 2 and 4
    double misaligned, panels;     ///< factors of rows across lines of 128 bytes, and in several panels
    double direct;                 ///< of 128 x 128 results from registers, beyond what the prologue has
    double source_c;               ///< of a tile of sm90_pingpong that reads C
    double tall, swap_ab;          ///< factors of products of 256 rows, and with swap_ab
    double bytes_per_us, latency;  ///< of memory
    double slow, power;            ///< of times that are alike
  } tilings;
  /// sm90_non_persistent.
  struct NonPersistent {
    double multiply;
    double row_shared, row_own;  ///< of a row of a stage: over those who share it, and each
    double misaligned_row_shared, misaligned_row_own;  ///< the same across lines of 128 bytes
    double way, overlap;
    double store, store_source_c, prologue, prologue_cluster;
    double bytes_per_us, latency, power, slow;
    double swap_ab, aligned_cluster;  ///< factors
  } non_persistent;
  /// sm90_split_k.
  struct SplitK {
    double multiply, row, misaligned_row, way, overlap, store, prologue, bytes_per_us, latency;
    double reduce, partial_bytes_per_us;  ///< of the second kernel
  } split_k;
  /// misaligned.
  struct Misaligned {
    double access, element, product, stage;  ///< of an SM's block, by step
    double flight, flight_access;            ///< of a stage from memory
    double launch, bytes_per_us, latency;
    double reduce, partial_bytes_per_us;
    double row_step, row_bytes_per_us;  ///< one row of A
  } misaligned;
  /// Copies of operands into scratch memory, and products without a model of their own.
  struct Pack {
    double launch, bytes_per_us, blocks_per_us,
        elements_per_us;  ///< elements: results that are stored one by one
    double product_launch, product_bytes_per_us, product_flops_per_us;
  } pack;
  /// sm90_pingpong, sm90_cooperative and sm90_promoted with mixed types.
  struct Mixed {
    double multiply, rows, store, epilogue, pingpong, launch;
    double promoted, promoted_tall, promoted_wide, narrow, low;
    double blocks, blocks_tall, blocks_wide, blocks_hot, blocks_narrow;  ///< with scales of blocks
    double hot_flops;  ///< where the power limit lowers the clock
  } mixed;
  /// f32: slices of K on fused multiply-adds, or three bf16 terms as a whole.
  struct Slices {
    double tensor_step, tensor_tile, launch, products_per_us;
  } slices;
  /// sm80: tiles of 128 x 128, 64 x 128, 64 x 64: the rate that blocks of one SM reach together, and one alone.
  struct Sm80 {
    std::array<double, 3> rate, alone;
  } sm80;
};

/// Of `d`, or of the H200 where `d` was not measured.
const GemmCalibration& gemm_calibration(const runtime::DeviceInfo& d);
bool is_calibrated(const runtime::DeviceInfo& d);
/// A sentence: whose constants predict times on `d`.
std::string describe_calibration(const runtime::DeviceInfo& d);
/// Those of `d`; of the calibration where `d` does not say.
int gemm_sms(const runtime::DeviceInfo& d);

}  // namespace cgp::kernels
