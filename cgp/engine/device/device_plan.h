// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the backend of devices decides before it loads anything: what it refuses, how large things are, where they lie.
#include <string>
#include <vector>

#include "cgp/engine/backend.h"
#include "cgp/kernels/activation/activation.h"
#include "cgp/kernels/kv_cache/kv_cache.h"
#include "cgp/model/source/source.h"
#include "cgp/runtime/device.h"

namespace cgp::engine::device_plan {

/// Buffers of one allocation begin at multiples of 256 bytes.
constexpr std::uint64_t aligned(std::uint64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Where a value lies: rows `pitch` elements apart.
struct Place {
  std::uint64_t address = 0;
  std::int64_t pitch = 0;
  DType type = DType::f16;
};

/// What a step needs to know beside the tokens' embeddings, in one block that is uploaded at once. Offsets in bytes.
struct Control {
  std::uint64_t slots = 0, positions = 0, lengths = 0, outputs = 0, table = 0, embeddings = 0, bytes = 0;
  Control(const BackendOptions& o, std::int64_t columns, std::int64_t width) {
    std::uint64_t at = 0;
    const auto take = [&](std::int64_t count, std::uint64_t size) {
      const std::uint64_t here = at;
      at += aligned(std::uint64_t(count) * size);
      return here;
    };
    slots = take(o.max_rows, 8), positions = take(o.max_rows, 4), lengths = take(o.max_sequences, 4);
    outputs = take(o.max_outputs, 4), table = take(o.max_sequences * columns, 4);
    embeddings = take(o.max_rows * width, 4), bytes = at;
  }
  void fill(std::uint8_t* host, const Batch& batch, const Program& p, const model::Source& file,
            const BackendOptions& o) const;
};

/// Weights of a Linear by format, and where their results begin.
struct Product {
  std::vector<WeightId> weights;
  std::int64_t column = 0;
};
std::vector<Product> products_of(const Linear& o, const Program& p, const model::Source& file);
/// The product at `step` if it reads `value` and no step does after it, before `value` is written again; else none.
const Linear* only_product(const Program& p, std::size_t step, ValueId value);
const Embedding& embedding_of(const Program& p);

kernels::KvCacheShape cache_shape(const Program& p, const BackendOptions& o);
/// Of the table of pages, for each sequence.
std::int64_t columns_of(const Program& p, const BackendOptions& o);
/// At most, in a step.
std::int64_t rows_of(const Value& v, const BackendOptions& o);
/// Columns of the results of products that are on their way to their values.
std::int64_t widest_product(const Program& p);

kernels::Activation activation_of(Activation a);

/// Throws Unsupported: `what` the kernels lack, for the operation `where`.
[[noreturn]] void lacks(std::string what, std::string where = {});
/// Throws ArgumentError and Unsupported as make_device_backend() does.
void require_supported(const Program& p, const runtime::Device& device, const BackendOptions& o);
/// Throws Error with the numbers.
void require_room(const MemoryEstimate& m, const runtime::Device& device);

}  // namespace cgp::engine::device_plan
