// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/device/device_weights.h"

#include <algorithm>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/threads.h"
#include "cgp/kernels/weight_only/weight_only_pack.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"

namespace cgp::engine {
namespace {

using kernels::View;

/// Rows up to which weight_only's streaming kernel is the faster one.
constexpr std::uint64_t kStreamedRows = 16;

kernels::QuantizedWeight shape_of(const Program& program, const model::Source& file,
                                  std::span<const WeightId> weights) {
  kernels::QuantizedWeight w;
  for (WeightId id : weights) {
    const Weight& one = program.weights[std::size_t(id)];
    w.format = kernels::quantized_format_named(quant::info(format_of(one, file)).name);
    w.rows += std::uint64_t(one.rows * one.experts), w.cols = std::uint64_t(one.cols);
  }
  return w;
}

/// The experts of a weight follow each other.
std::vector<WeightData> data_of(const Program& program, const model::Source& file,
                                std::span<const WeightId> weights) {
  std::vector<WeightData> all;
  for (WeightId id : weights) {
    const Weight& one = program.weights[std::size_t(id)];
    for (std::int64_t e = 0; e < one.experts; ++e) all.push_back(engine::data_of(one, file, e));
  }
  return all;
}

/// The format that the weight is packed to; none: it is used as it is stored.
std::optional<kernels::WeightFormat> packed_format_of(const runtime::Device& device, const Program& program,
                                                      std::span<const WeightId> weights,
                                                      const kernels::QuantizedWeight& w) {
  const auto& info = device.info();
  const auto format = kernels::packed_format(w.format);
  if (!format || info.cc() / 10 != 9) return {};
  for (WeightId id : weights)  // experts begin with a tile
    if (const Weight& one = program.weights[std::size_t(id)]; one.experts > 1 && one.rows % 16) return {};
  kernels::WeightOnlyProblem p{*format, DType::f16, 1, w.rows, w.cols, 256, 0, 256, 256, 0};
  if (!kernels::reject(p).empty()) return {};
  p.m = kStreamedRows + 1;
  return kernels::reject_wgmma(p).empty() ? format : std::nullopt;
}

}  // namespace

std::uint64_t DeviceMatrix::bytes_for(const runtime::Device& device, const Program& program,
                                      const model::Source& file, std::span<const WeightId> weights) {
  const auto w = shape_of(program, file, weights);
  const auto format = packed_format_of(device, program, weights, w);
  return format ? kernels::packed_bytes(*format, w.rows, w.cols) : staged_bytes(program, file, weights);
}

WeightLoader::WeightLoader(const runtime::Device& device) : device_(device), stream_(device) {}

void WeightLoader::upload(const Pieces& pieces, const runtime::Slice<std::uint8_t>& to) {
  std::size_t at = 0;
  for (const auto& piece : pieces)
    for (std::size_t from = 0; from < piece.size(); from += kPart) {
      const std::size_t count = std::min(kPart, piece.size() - from);
      if (parts_.size() < 2) parts_.push_back({{device_, kPart}, runtime::Event(device_)});
      Part& part = parts_[next_++ % parts_.size()];
      part.copied.wait();
      cpu::parallel_for(std::int64_t(count), 1 << 18, 0, [&](std::int64_t first, std::int64_t last) {
        std::memcpy(part.memory.data() + first, piece.data() + from + first, std::size_t(last - first));
      });
      stream_.upload(to.slice(at, count), part.memory.span().first(count));
      stream_.record(part.copied);
      at += count;
    }
}

std::uint64_t WeightLoader::stage(const Pieces& pieces) {
  std::size_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  if (staged_.size() < bytes) {
    stream_.wait();
    staged_ = device_.alloc<std::uint8_t>(bytes, "weights to be packed");
  }
  upload(pieces, staged_.all().slice(0, bytes));
  return staged_.address();
}

bool DeviceMatrix::packs(const runtime::Device& device, const Program& program, const model::Source& file,
                         std::span<const WeightId> weights) {
  return packed_format_of(device, program, weights, shape_of(program, file, weights)).has_value();
}

bool DeviceMatrix::normalises(const runtime::Device& device, const Program& program,
                              const model::Source& file, std::span<const WeightId> weights) {
  const auto w = shape_of(program, file, weights);
  const auto format = packed_format_of(device, program, weights, w);
  if (!format) return false;
  kernels::WeightOnlyProblem p{*format, DType::f16, 1, w.rows, w.cols};
  p.norm = 256;
  return kernels::reject(p).empty();
}

std::uint64_t DeviceMatrix::staged_bytes(const Program& program, const model::Source& file,
                                         std::span<const WeightId> weights) {
  std::uint64_t bytes = 0;
  for (WeightId id : weights) {
    const Weight& one = program.weights[std::size_t(id)];
    bytes += quant::bytes_of(format_of(one, file), std::uint64_t(one.rows * one.cols * one.experts));
  }
  return bytes;
}

DeviceMatrix::DeviceMatrix(WeightLoader& loader, const runtime::Device& device, const Program& program,
                           const model::Source& file, std::span<const WeightId> weights, bool gated)
    : weight_(shape_of(program, file, weights)),
      packed_format_(packed_format_of(device, program, weights, weight_)) {
  const auto data = data_of(program, file, weights);
  WeightLoader::Pieces pieces;
  for (const WeightData& one : data) pieces.push_back(one.blocks);
  if (!packed_format_) {
    stored_ = device.alloc<std::uint8_t>(staged_bytes(program, file, weights), "weights");
    loader.upload(pieces, stored_.all());
    weight_.codes = std::as_const(stored_);
    return;
  }
  packed_ = device.alloc<std::uint8_t>(kernels::packed_bytes(*packed_format_, weight_.rows, weight_.cols),
                                       "packed weights");
  const std::uint64_t blocks = loader.stage(pieces);
  kernels::pack_weights(loader.stream(), {.format = *packed_format_,
                                          .n = weight_.rows,
                                          .k = weight_.cols,
                                          .file = blocks,
                                          .up = gated ? blocks + staged_bytes(program, file, weights) / 2 : 0,
                                          .packed = packed_.address()});
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
                            const runtime::Buffer<std::uint8_t>& workspace, const Options& o) const {
  const std::uint64_t n = o.rows ? o.rows : rows();
  if (packed_format_) {
    const std::uint64_t skipped = packed_.size() / ((rows() + 31) / 32 * 32) * o.first;
    kernels::WeightOnlyProblem p{
        *packed_format_, DType::f16, m, n, cols(), x, ldx, packed_.address() + skipped, y, ldy};
    p.pdl = true, p.end = o.end, p.activation = o.activation, p.order = o.order;
    p.norm = o.norm, p.eps = o.eps, p.space = o.space;
    return m <= kStreamedRows ? kernels::weight_only_gemm(s, p) : kernels::weight_wgmma_gemm(s, p);
  }
  const auto* backend = s.device().backend().get();
  const DType type = o.end == kernels::WeightOnlyEnd::store_f32 ? DType::f32 : DType::f16;
  kernels::QuantizedMatmul p = problem(backend, m);
  const std::uint64_t row = stored_.size() / rows();
  p.weight.rows = n;
  p.weight.codes = std::as_const(stored_).all().slice(o.first * row, n * row);
  p.x = View(x, (m - 1) * ldx + cols(), DType::f16, false, backend), p.x_layout.pitch = ldx;
  p.y = View(y, (m - 1) * ldy + n, type, true, backend), p.y_layout.pitch = ldy;
  p.workspace = View(workspace.address(), workspace.size(), DType::u8, true, backend);
  kernels::quantized_matmul(s, p);
}

}  // namespace cgp::engine
