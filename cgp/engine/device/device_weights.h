// SPDX-License-Identifier: Apache-2.0
#pragma once
// The weights of a program in the memory of a device. Weights of one product that have one format are one matrix.
#include <memory>
#include <span>
#include <vector>

#include "cgp/engine/models/model.h"
#include "cgp/engine/program/program.h"
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/host_memory.h"
#include "cgp/runtime/stream.h"

namespace cgp::engine {

/// Brings tensors of a mapped file to the device: all threads copy a part to pinned memory while the part before is under way.
class WeightLoader {
 public:
  explicit WeightLoader(const runtime::Device& device);
  using Pieces = std::vector<std::span<const std::byte>>;
  /// The pieces one after another. On stream().
  void upload(const Pieces& pieces, const runtime::Slice<std::uint8_t>& to);
  /// The same into memory of this object, whose address is returned; it is there until the next call.
  std::uint64_t stage(const Pieces& pieces);
  runtime::Stream& stream() { return stream_; }

 private:
  static constexpr std::size_t kPart = std::size_t(32) << 20;
  struct Part {
    runtime::Pinned<std::uint8_t> memory;
    runtime::Event copied;
  };

  runtime::Device device_;
  std::vector<Part> parts_;
  std::size_t next_ = 0;
  runtime::Buffer<std::uint8_t> staged_;
  runtime::Stream stream_;
};

/// y = x W' for f16 x: rows of several weights of a file, one after the other; of a mixture all experts.
class DeviceMatrix {
 public:
  /// gated: two weights of one shape, a gate and its up; where they are packed, 8 rows of each in turns.
  DeviceMatrix(WeightLoader& loader, const runtime::Device& device, const Program& program,
               const model::Source& file, std::span<const WeightId> weights, bool gated);

  static std::uint64_t bytes_for(const runtime::Device& device, const Program& program,
                                 const model::Source& file, std::span<const WeightId> weights);
  /// Of the file, that WeightLoader has on the device beside it while it is packed.
  static std::uint64_t staged_bytes(const Program& program, const model::Source& file,
                                    std::span<const WeightId> weights);
  /// Whether weights of one format are packed on the device.
  static bool packs(const runtime::Device& device, const Program& program, const model::Source& file,
                    std::span<const WeightId> weights);
  /// Whether the product of one row can have its RMSNorm when it loads it (Options::norm).
  static bool normalises(const runtime::Device& device, const Program& program, const model::Source& file,
                         std::span<const WeightId> weights);
  std::uint64_t rows() const { return weight_.rows; }
  std::uint64_t cols() const { return weight_.cols; }
  /// Bytes that multiply() needs for m rows.
  std::uint64_t workspace(const runtime::Device& device, std::uint64_t m) const;
  struct Options {
    kernels::WeightOnlyEnd end =
        kernels::WeightOnlyEnd::store;  ///< weights that are not packed: store, store_f32
    kernels::Activation activation = kernels::Activation::identity;
    kernels::WeightOnlyOrder order = kernels::WeightOnlyOrder::after;
    kernels::WeightOnlySpace space = kernels::WeightOnlySpace::whole;
    std::uint64_t norm = 0;  ///< f32 weight of the RMSNorm of x, which is one row of f32 then; 0: none
    float eps = 0;
    std::uint64_t first = 0, rows = 0;  ///< of the matrix: those of one expert; 0: all
  };
  /// x and y: addresses of rows ldx and ldy elements apart; x is f16, y what the end says.
  void multiply(runtime::Stream& s, std::uint64_t m, std::uint64_t x, std::uint64_t ldx, std::uint64_t y,
                std::uint64_t ldy, const runtime::Buffer<std::uint8_t>& workspace,
                const Options& options) const;

 private:
  kernels::QuantizedMatmul problem(const runtime::Backend* backend, std::uint64_t m) const;

  kernels::QuantizedWeight weight_{};  ///< its codes are stored_
  std::optional<kernels::WeightFormat> packed_format_;
  runtime::Buffer<std::uint8_t> stored_, packed_;  ///< one of them has the weight
};

}  // namespace cgp::engine
