// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/device/device_plan.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/cpu/quant/matmul.h"
#include "cgp/engine/device/device_backend.h"
#include "cgp/engine/device/device_experts.h"
#include "cgp/engine/device/device_weights.h"
#include "cgp/engine/models/model.h"

namespace cgp::engine {

using std::int64_t;
using std::uint64_t;
using text::cat;

namespace device_plan {

kernels::Activation activation_of(Activation a) {
  return a == Activation::silu   ? kernels::Activation::silu
         : a == Activation::gelu ? kernels::Activation::gelu
                                 : kernels::Activation::gelu_tanh;
}

kernels::KvCacheShape cache_shape(const Program& p, const BackendOptions& o) {
  kernels::KvCacheShape c;
  c.type = DType::f16, c.pages = o.cache == CacheType::e4m3 ? DType::e4m3 : DType::f16;
  c.page_count = uint64_t(o.pages), c.page_size = uint64_t(o.page_tokens);
  c.heads = uint64_t(p.kv_heads), c.d = uint64_t(p.head_dim);
  return c;
}

void lacks(std::string what, std::string where) {
  throw Unsupported(ErrorText{"the kernels of a GPU run every operation of the model", std::move(where),
                              std::move(what), "run it on the device \"cpu\""});
}

void require_supported(const Program& p, const runtime::Device& device, const BackendOptions& o) {
  if (const std::string why = reject(p); !why.empty())
    throw ArgumentError(ErrorText{"a program is sound", {}, why, {}});
  if (o.pages < 1 || o.page_tokens < 1 || o.max_rows < 1 || o.max_sequences < 1 || o.max_outputs < 1)
    throw ArgumentError("pages, rows, sequences and outputs of a backend must be positive");
  if (o.cache != CacheType::f16 && o.cache != CacheType::e4m3) lacks("the cache is f16 or e4m3 there");
  if (o.activations != ActivationType::automatic) lacks("activations are f16 there, and cannot be chosen");
  using enum runtime::DeviceKind;
  if (const auto kind = device.info().kind; kind != cuda && kind != emulator)
    lacks(cat("models run on CUDA devices and the emulator; ", device.info().spec, " is a device of ",
              name(kind)));
  if (device.info().cc() < 80)
    lacks(cat("attention over pages needs sm_80, the device has ", device.info().arch));
  if (o.cache == CacheType::e4m3 && device.info().cc() < 90)
    lacks(cat("a cache of e4m3 needs sm_90, the device has ", device.info().arch));
  if (p.head_dim % 8) lacks(cat("heads of ", p.head_dim, " elements; multiples of 8 are possible"));
  if (const auto why = kernels::reject(cache_shape(p, o)); !why.empty()) lacks(why);
  for (const Step& s : p.steps) {
    const std::string where = s.layer == kNone ? p.architecture : cat(p.architecture, ", layer ", s.layer);
    if (const auto* e = std::get_if<Experts>(&s.operation))
      if (const int64_t inner = p.weights[std::size_t(e->gate)].rows;
          inner % 8 || p.values[std::size_t(e->in)].width % 8)
        lacks(cat("experts of ", inner, " hidden values; multiples of 8 are possible"), where);
  }
}

void require_room(const MemoryEstimate& m, const runtime::Device& device) {
  const auto there = device.memory();
  if (device.is_emulator() || uint64_t(m.total()) <= there.free_bytes) return;
  const auto mib = [](uint64_t bytes) { return cat((bytes + (1 << 20) - 1) >> 20, " MiB"); };
  throw Error(ErrorText{"the model fits into the GPU's memory", device.info().name,
                        cat("it takes ", mib(uint64_t(m.total())), " (weights ", mib(uint64_t(m.weights)),
                            ", cache ", mib(uint64_t(m.cache)), ", values ", mib(uint64_t(m.workspace)),
                            "), free are ", mib(there.free_bytes), " of ", mib(there.total_bytes)),
                        "use a shorter context or fewer sequences, or more GPUs (--tensor-parallel)"});
}

int64_t columns_of(const Program& p, const BackendOptions& o) {
  return (p.context + o.page_tokens - 1) / o.page_tokens;
}
int64_t rows_of(const Value& v, const BackendOptions& o) {
  return v.rows == Rows::tokens ? o.max_rows : o.max_outputs;
}
const Embedding& embedding_of(const Program& p) {
  for (const Step& s : p.steps)
    if (const auto* e = std::get_if<Embedding>(&s.operation)) return *e;
  throw ArgumentError(ErrorText{"a program begins with an embedding", {}, "there is none", {}});
}

void Control::fill(std::uint8_t* host, const Batch& batch, const Program& p, const model::Source& file,
                   const BackendOptions& o) const {
  const int64_t columns = columns_of(p, o);
  const auto at = [&]<class T>(uint64_t offset, T) { return reinterpret_cast<T*>(host + offset); };
  auto* slots = at(this->slots, uint64_t());
  auto *positions = at(this->positions, int32_t()), *outputs = at(this->outputs, int32_t()),
       *table = at(this->table, int32_t());
  auto* lengths = at(this->lengths, std::uint32_t());
  for (std::size_t i = 0; i < batch.sequences.size(); ++i) {
    const BatchSequence& s = batch.sequences[i];
    lengths[i] = std::uint32_t(s.first_position + s.rows);
    for (int32_t r = 0; r < s.rows; ++r) {
      const int64_t position = s.first_position + r;
      positions[s.first_row + r] = int32_t(position);
      slots[s.first_row + r] =
          uint64_t(s.pages[std::size_t(position / o.page_tokens)]) * uint64_t(o.page_tokens) +
          uint64_t(position % o.page_tokens);
    }
    const auto used = std::size_t((s.first_position + s.rows + o.page_tokens - 1) / o.page_tokens);
    std::copy_n(s.pages.begin(), used, table + int64_t(i) * columns);
    std::fill_n(table + int64_t(i) * columns + int64_t(used), columns - int64_t(used), 0);
  }
  std::copy(batch.outputs.begin(), batch.outputs.end(), outputs);
  const Embedding& e = embedding_of(p);
  const std::span<float> rows(at(this->embeddings, float()),
                              batch.tokens.size() * std::size_t(p.values[std::size_t(e.out)].width));
  const auto read = [&](WeightId id, std::span<const int32_t> ids, std::span<float> to) {
    const Weight& w = p.weights[std::size_t(id)];
    const auto data = data_of(w, file);
    cpu::quant_rows(data.format, data.blocks, w.rows, w.cols, ids, to);
  };
  read(e.table, batch.tokens, rows);
  if (e.scale != 1)
    for (float& v : rows) v *= e.scale;
  if (e.positions == kNone) return;
  std::vector<float> added(rows.size());
  read(e.positions, {positions, batch.tokens.size()}, added);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] += added[i];
}

int64_t widest_product(const Program& p) {
  int64_t widest = 1;
  for (const Step& s : p.steps)
    if (const auto* o = std::get_if<Linear>(&s.operation))
      widest = std::max(widest, p.values[std::size_t(o->parts[0].out)].width * (o->gated ? 2 : 1));
  return widest;
}

namespace {
struct Access {
  std::vector<ValueId> read, written;
};
Access access_of(const Embedding& o) { return {{}, {o.out}}; }
Access access_of(const RmsNorm& o) { return {{o.in}, {o.out}}; }
Access access_of(const LayerNorm& o) { return {{o.in}, {o.out}}; }
Access access_of(const Linear& o) {
  Access a{{o.in, o.residual}, {}};
  for (const auto& part : o.parts) a.written.push_back(part.out);
  return a;
}
Access access_of(const Rope& o) { return {{o.value}, {o.value}}; }
Access access_of(const Attention& o) { return {{o.q, o.k, o.v}, {o.out}}; }
Access access_of(const Experts& o) { return {{o.in, o.residual}, {o.out}}; }
Access access_of(const Add& o) { return {{o.a, o.b}, {o.out}}; }
Access access_of(const Scale& o) { return {{o.value}, {o.value}}; }
Access access_of(const SelectRows& o) { return {{o.in}, {o.out}}; }
Access access_of(const AllReduce& o) { return {{o.value}, {o.value}}; }
}  // namespace

const Linear* only_product(const Program& p, std::size_t step, ValueId value) {
  const auto* product = step < p.steps.size() ? std::get_if<Linear>(&p.steps[step].operation) : nullptr;
  if (!product || product->in != value || product->residual == value || value == p.logits) return nullptr;
  const auto has = [&](const std::vector<ValueId>& all) {
    return std::find(all.begin(), all.end(), value) != all.end();
  };
  for (std::size_t i = step + 1; i < p.steps.size(); ++i) {
    const Access a = std::visit([](const auto& o) { return access_of(o); }, p.steps[i].operation);
    if (has(a.read)) return nullptr;
    if (has(a.written)) break;
  }
  return product;
}

std::vector<Product> products_of(const Linear& o, const Program& p, const model::Source& file) {
  std::vector<Product> out;
  int64_t column = 0;
  for (const Linear::Part& part : o.parts) {
    const Weight& w = p.weights[std::size_t(part.weight)];
    const auto format = [&](WeightId id) { return format_of(p.weights[std::size_t(id)], file); };
    if (out.empty() || format(out.back().weights[0]) != format(part.weight)) out.push_back({{}, column});
    out.back().weights.push_back(part.weight);
    column += w.rows;
  }
  return out;
}

}  // namespace device_plan

using namespace device_plan;

namespace {

uint64_t cache_bytes(const Program& p, const BackendOptions& o) {
  return uint64_t(p.cache_layers) * aligned(cache_shape(p, o).bytes());
}
uint64_t value_bytes(const Program& p, const BackendOptions& o) {
  uint64_t bytes = 0;
  for (const Value& v : p.values) bytes += aligned(uint64_t(v.width * rows_of(v, o)) * 4);
  const int64_t rows = std::max(o.max_rows, o.max_outputs);
  bytes += aligned(uint64_t(widest_product(p) * rows) * 2);
  bytes += 2 * aligned(uint64_t(p.context * p.kv_heads * p.head_dim) * 2);
  return bytes + Control(o, columns_of(p, o), p.values[std::size_t(embedding_of(p).out)].width).bytes;
}

}  // namespace

MemoryEstimate device_memory(const Program& p, const model::Source& file, const runtime::Device& device,
                             const BackendOptions& o) {
  require_supported(p, device, o);
  MemoryEstimate out;
  uint64_t staged = 0;
  for (const Step& s : p.steps) {
    if (const auto* e = std::get_if<Experts>(&s.operation)) {
      out.weights += int64_t(DeviceExperts::bytes_for(device, p, file, *e));
      for (const std::vector<WeightId>& w : {std::vector{e->gate, e->up}, std::vector{e->down}})
        staged = std::max(staged, DeviceMatrix::staged_bytes(p, file, w));
    }
    if (const auto* l = std::get_if<Linear>(&s.operation))
      for (const Product& product : products_of(*l, p, file)) {
        out.weights += int64_t(DeviceMatrix::bytes_for(device, p, file, product.weights));
        staged = std::max(staged, DeviceMatrix::staged_bytes(p, file, product.weights));
      }
  }
  out.cache = int64_t(cache_bytes(p, o));
  out.workspace = int64_t(value_bytes(p, o) + ExpertsWorkspace::bytes(p, o) + staged);
  for (const RopeTable& t : p.rope_tables) out.workspace += int64_t(t.frequencies.size()) * 8 * p.context;
  return out;
}

}  // namespace cgp::engine
