// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/device/device_weights.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/threads.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"

namespace cgp::engine {
namespace {

using kernels::View;

/// Rows up to which weight_only's streaming kernel is the faster one.
constexpr std::uint64_t kStreamedRows = 16;

kernels::QuantizedWeight shape_of(const Program& program, const model::Gguf& file,
                                  std::span<const WeightId> weights) {
  kernels::QuantizedWeight w;
  for (WeightId id : weights) {
    const Weight& one = program.weights[std::size_t(id)];
    w.format = kernels::quantized_format_named(quant::info(data_of(one, file).format).name);
    w.rows += std::uint64_t(one.rows), w.cols = std::uint64_t(one.cols);
  }
  return w;
}

/// The format that the weight is packed to; none: it is used as it is stored.
std::optional<kernels::WeightFormat> packed_format_of(const runtime::Device& device,
                                                      const kernels::QuantizedWeight& w) {
  const auto& info = device.info();
  const auto format = kernels::packed_format(w.format);
  if (!format || info.cc() / 10 != 9) return {};
  kernels::WeightOnlyProblem p{*format, DType::f16, 1, w.rows, w.cols, 256, 0, 256, 256, 0};
  if (!kernels::reject(p).empty()) return {};
  p.m = kStreamedRows + 1;
  return kernels::reject_wgmma(p).empty() ? format : std::nullopt;
}

}  // namespace

std::uint64_t DeviceMatrix::bytes_for(const runtime::Device& device, const Program& program,
                                      const model::Gguf& file, std::span<const WeightId> weights) {
  const auto w = shape_of(program, file, weights);
  const auto format = packed_format_of(device, w);
  return format ? kernels::packed_bytes(*format, w.rows, w.cols) : kernels::stored_bytes(w);
}

bool DeviceMatrix::packs(const runtime::Device& device, const Program& program, const model::Gguf& file,
                         std::span<const WeightId> weights) {
  return packed_format_of(device, shape_of(program, file, weights)).has_value();
}

DeviceMatrix::DeviceMatrix(const runtime::Device& device, const Program& program, const model::Gguf& file,
                           std::span<const WeightId> weights, bool gated)
    : weight_(shape_of(program, file, weights)), packed_format_(packed_format_of(device, weight_)) {
  std::vector<std::byte> stored;
  const auto append = [&](std::span<const std::byte> rows) {
    stored.insert(stored.end(), rows.begin(), rows.end());
  };
  const auto blocks = [&](std::size_t i) {
    return data_of(program.weights[std::size_t(weights[i])], file).blocks;
  };
  if (gated && packed_format_) {
    const auto gate = blocks(0), up = blocks(1);
    const std::size_t eight = gate.size() / (weight_.rows / 16);
    for (std::size_t at = 0; at < gate.size(); at += eight)
      append(gate.subspan(at, eight)), append(up.subspan(at, eight));
  } else {
    for (std::size_t i = 0; i < weights.size(); ++i) append(blocks(i));
  }
  const auto as_bytes = [](const std::vector<std::byte>& v) {
    return std::span(reinterpret_cast<const std::uint8_t*>(v.data()), v.size());
  };
  if (!packed_format_) {
    stored_ = device.upload<std::uint8_t>(as_bytes(stored), "weights");
    weight_.codes = std::as_const(stored_);
    return;
  }
  std::vector<std::byte> packed(kernels::packed_bytes(*packed_format_, weight_.rows, weight_.cols));
  // Rows of tiles lie one after the other: parts of the weight are packed by themselves.
  constexpr std::int64_t kRows = 256;
  const std::uint64_t row = stored.size() / weight_.rows,
                      packed_row = packed.size() / ((weight_.rows + 31) / 32 * 32);
  cpu::parallel_for(std::int64_t(weight_.rows), kRows, 0, [&](std::int64_t from, std::int64_t to) {
    const auto first = std::uint64_t(from), count = std::uint64_t(to - from);
    kernels::pack_weights(*packed_format_, count, weight_.cols,
                          std::span(stored).subspan(first * row, count * row),
                          std::span(packed).subspan(first * packed_row, (count + 31) / 32 * 32 * packed_row));
  });
  packed_ = device.upload<std::uint8_t>(as_bytes(packed), "packed weights");
}

kernels::QuantizedMatmul DeviceMatrix::problem(const runtime::Backend* backend, std::uint64_t m) const {
  kernels::QuantizedMatmul p;
  p.weight = weight_, p.m = m;
  p.x = View(256, ~0ull >> 8, DType::f16, false, backend);
  p.y = View(256, ~0ull >> 8, DType::f16, true, backend);
  return p;
}

std::uint64_t DeviceMatrix::workspace(const runtime::Device& device, std::uint64_t m) const {
  if (packed_format_) return 0;
  return kernels::quantized_matmul_plan(problem(device.backend().get(), m), device.info()).workspace;
}

void DeviceMatrix::multiply(runtime::Stream& s, std::uint64_t m, std::uint64_t x, std::uint64_t ldx,
                            std::uint64_t y, std::uint64_t ldy,
                            const runtime::Buffer<std::uint8_t>& workspace, kernels::WeightOnlyEnd end,
                            kernels::Activation activation) const {
  if (packed_format_) {
    kernels::WeightOnlyProblem p{*packed_format_,   DType::f16, m,  rows(), cols(), x, ldx,
                                 packed_.address(), y,          ldy};
    p.pdl = true, p.end = end, p.activation = activation;
    return m <= kStreamedRows ? kernels::weight_only_gemm(s, p) : kernels::weight_wgmma_gemm(s, p);
  }
  const auto* backend = s.device().backend().get();
  kernels::QuantizedMatmul p = problem(backend, m);
  p.x = View(x, (m - 1) * ldx + cols(), DType::f16, false, backend), p.x_layout.pitch = ldx;
  p.y = View(y, (m - 1) * ldy + rows(), DType::f16, true, backend), p.y_layout.pitch = ldy;
  p.workspace = View(workspace.address(), workspace.size(), DType::u8, true, backend);
  kernels::quantized_matmul(s, p);
}

}  // namespace cgp::engine
