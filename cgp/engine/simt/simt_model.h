// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program as launches of kernels without tensor cores and asynchronous copies: they run on every device from sm_75 on, on Vulkan and
// on WebGPU. Weights stay quantised and are multiplied as they lie in the file. Values are f32; queries, keys and values of attention
// and its result are f16. A step of one token is a fixed list of launches that read what changes from memory (Control), so it can be
// recorded once and repeated.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cgp/engine/backend.h"
#include "cgp/kernels/quantized_matmul/quantized_matmul.h"
#include "cgp/model/source/source.h"
#include "cgp/runtime/buffer.h"
#include "cgp/runtime/stream.h"

namespace cgp::engine {

class SimtModel {
 public:
  enum class Weights : std::uint8_t {
    uploaded,
    left_out  ///< memory is there and weights() says what it holds; somebody else fills it
  };
  /// Throws ArgumentError for a program that is none and for pages that do not hold a whole sequence, Unsupported that names what the
  /// kernels lack.
  SimtModel(Program program, std::shared_ptr<const model::Source> file, const runtime::Device& device,
            const BackendOptions& options, Weights weights);
  static void require_supported(const Program& program, const BackendOptions& options);

  /// What a step reads, at these bytes of the memory at `address`. Rows are those of Batch::tokens.
  struct Control {
    std::uint64_t address = 0;
    std::uint64_t tokens = 0;     ///< s32 [max_rows]
    std::uint64_t positions = 0;  ///< s32 [max_rows]
    std::uint64_t slots = 0;      ///< u64 [max_rows]: page * page_tokens + position
    std::uint64_t lengths = 0;    ///< u32 [max_sequences]: keys, those of the step included
    std::uint64_t outputs = 0;    ///< s32 [max_outputs]: Batch::outputs
    std::uint64_t bytes = 0;
  };
  const Control& control() const { return control_; }
  std::uint64_t logits() const;                                   ///< f32 [max_outputs, vocabulary]
  std::uint64_t greedy() const { return greedy_.address(); }      ///< s32 [max_outputs]
  std::uint64_t greatest() const { return greatest_.address(); }  ///< f32 [max_outputs], NaN where one is

  struct Loaded {
    std::uint64_t address = 0;
    std::span<const std::byte> bytes;  ///< of the mapped file
  };
  const std::vector<Loaded>& weights() const { return loaded_; }

  /// Once, before the first step: decodes the table of embeddings and packs matrices.
  void prepare(runtime::Stream& s);
  /// The step that control() describes. `sequences` has rows and pages alone to say: a sequence's only page is pages[0].
  void issue(runtime::Stream& s, std::span<const BatchSequence> sequences, std::int64_t outputs, bool greedy);

  const Program& program() const { return program_; }
  const BackendOptions& options() const { return options_; }
  /// Keys and values of layer `layer`: pages one after the other.
  runtime::Slice<std::uint8_t> cache(std::int64_t layer) { return caches_[std::size_t(layer)].all(); }
  std::int64_t memory() const { return bytes_; }  ///< of the device, all together

 private:
  struct Place {
    std::uint64_t address = 0;
    DType type = DType::f32;
  };
  std::int64_t width(ValueId v) const { return program_.values[std::size_t(v)].width; }
  bool on_outputs(ValueId v) const { return program_.values[std::size_t(v)].rows == Rows::outputs; }
  std::uint64_t rows(ValueId v) const { return std::uint64_t(on_outputs(v) ? outputs_ : rows_); }
  std::uint64_t allocate(std::uint64_t bytes, std::string_view name);
  kernels::View view(std::uint64_t address, DType type, bool writes = false) const;
  kernels::View view(ValueId v, bool writes = false) const;
  kernels::View vector(WeightId id);
  const kernels::QuantizedWeight& matrix(WeightId id);
  kernels::QuantizedMatmul product(WeightId id, std::uint64_t m, const kernels::View& x,
                                   const kernels::View& y);
  void load(WeightId id);
  void pack_later(WeightId id);
  kernels::View packed_view(std::uint64_t address, const kernels::QuantizedWeight& w, bool writes) const;

  void run(runtime::Stream& s, const Embedding& o);
  void run(runtime::Stream& s, const RmsNorm& o);
  void run(runtime::Stream& s, const LayerNorm& o);
  void run(runtime::Stream& s, const Linear& o);
  void run(runtime::Stream& s, const Rope& o);
  void run(runtime::Stream& s, const Attention& o);
  void run(runtime::Stream& s, const Experts& o);
  void run(runtime::Stream& s, const Add& o);
  void run(runtime::Stream& s, const Scale& o);
  void run(runtime::Stream& s, const SelectRows& o);
  void run(runtime::Stream&, const AllReduce&) {}  ///< refused before
  void add(runtime::Stream& s, const kernels::View& a, const kernels::View& b, ValueId out);
  void gather(runtime::Stream& s, const kernels::View& from, std::uint64_t table_rows, std::uint64_t indices,
              ValueId out);

  Program program_;
  std::shared_ptr<const model::Source> file_;
  BackendOptions options_;
  runtime::Device device_;
  Weights how_;
  std::deque<runtime::Buffer<std::uint8_t>> memory_;
  std::vector<runtime::Buffer<std::uint8_t>> caches_;
  std::int64_t bytes_ = 0;
  Control control_;
  std::vector<Place> places_;
  std::uint64_t scratch_[2] = {};        ///< f32 [rows, widest product]: results on the way to their values
  std::uint64_t q_ = 0, k_ = 0, v_ = 0;  ///< f16, of attention
  std::uint64_t workspace_ = 0, workspace_bytes_ = 0, error_ = 0;
  std::vector<std::pair<runtime::Buffer<float>, runtime::Buffer<float>>> ropes_;  ///< cosines and sines
  std::map<WeightId, runtime::Buffer<float>> vectors_;
  std::map<WeightId, kernels::QuantizedWeight> matrices_;
  struct Packed {
    std::uint64_t address = 0;
    WeightId weight{};
  };
  std::map<std::uint64_t, Packed> packed_;    ///< by the address of a matrix
  std::map<WeightId, std::uint64_t> tables_;  ///< f32, of Embedding
  std::vector<Loaded> loaded_;
  runtime::Buffer<std::int32_t> greedy_;
  runtime::Buffer<float> greatest_;
  std::span<const BatchSequence> sequences_;  ///< of the step that is issued
  std::int64_t rows_ = 0, outputs_ = 0;
};

}  // namespace cgp::engine
