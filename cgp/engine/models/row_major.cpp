// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/models/row_major.h"

#include <algorithm>
#include <cstring>

#include "cgp/quant/decode.h"
#include "cgp/quant/formats.h"

namespace cgp::engine {
namespace {

using model::GgufTensor;
using model::TensorLayout;

bool is_aligned(const GgufTensor& t, std::span<const std::byte> data) {
  return t.type->block_elements > 1 ||
         reinterpret_cast<std::uintptr_t>(data.data()) % t.type->block_bytes == 0;
}

bool is_row_major(const GgufTensor& t) {
  return t.layout == TensorLayout::rows && is_aligned(t, t.data) &&
         std::all_of(t.parts.begin(), t.parts.end(), [&](auto part) { return is_aligned(t, part); });
}

/// to[r][c] = from[c][r]
template <class T>
void transpose(const std::byte* from, std::size_t rows, std::size_t cols, std::byte* to) {
  constexpr std::size_t kTile = 32;
  for (std::size_t r0 = 0; r0 < rows; r0 += kTile)
    for (std::size_t c0 = 0; c0 < cols; c0 += kTile)
      for (std::size_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (std::size_t c = c0; c < std::min(cols, c0 + kTile); ++c)
          std::memcpy(to + (r * cols + c) * sizeof(T), from + (c * rows + r) * sizeof(T), sizeof(T));
}

class RowMajor final : public model::Source {
 public:
  explicit RowMajor(std::shared_ptr<const model::Source> source) : source_(std::move(source)) {
    path_ = source_->path();
    for (const Entry& e : source_->metadata()) {
      keys_.emplace(e.key, metadata_.size());
      metadata_.push_back(e);
    }
    for (const GgufTensor& t : source_->tensors()) {
      tensor_names_.emplace(t.name, tensors_.size());
      tensors_.push_back(is_row_major(t) ? t : copied(t));
    }
  }

 private:
  std::span<const std::byte> keep(std::vector<std::byte> bytes) {
    return copies_.emplace_back(std::move(bytes));
  }
  std::span<const std::byte> copy(std::span<const std::byte> data) {
    return keep({data.begin(), data.end()});
  }

  GgufTensor copied(GgufTensor t) {
    for (auto& part : t.parts) part = copy(part);
    if (t.layout == TensorLayout::transposed) {
      std::vector<std::byte> bytes(t.data.size());
      (t.type->block_bytes == 2 ? transpose<std::uint16_t> : transpose<std::uint32_t>)(t.data.data(),
                                                                                       t.shape[1], t.shape[0],
                                                                                       bytes.data());
      t.data = keep(std::move(bytes));
    } else if (t.layout == TensorLayout::minus_one) {
      const auto stored = copy(t.data);
      std::vector<float> values(t.elements);
      quant::decode(quant::format_of_ggml_type(t.type->id), stored, values);
      for (float& v : values) v += 1;
      t.type = model::find_ggml_type("F32");
      const auto bytes = std::as_bytes(std::span(values));
      t.data = copy(bytes);
    } else if (t.parts.empty()) {
      t.data = copy(t.data);
    }
    t.layout = TensorLayout::rows;
    return t;
  }

  std::shared_ptr<const model::Source> source_;
  std::deque<std::vector<std::byte>> copies_;
};

}  // namespace

std::shared_ptr<const model::Source> row_major(std::shared_ptr<const model::Source> source) {
  const auto& tensors = source->tensors();
  if (std::all_of(tensors.begin(), tensors.end(), is_row_major)) return source;
  return std::make_shared<const RowMajor>(std::move(source));
}

}  // namespace cgp::engine
