// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/gguf/gguf_writer.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::engine {
namespace {

using text::cat;

/// Calls part(i) for i below `count`, on several threads. The first exception is thrown again.
void on_threads(int threads, std::size_t count, const std::function<void(std::size_t)>& part) {
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < count;) part(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> others;
    for (int t = 1; t < threads && std::size_t(t) < count; ++t) others.emplace_back(work);
    work();
  }
  if (error) std::rethrow_exception(error);
}

/// The tensor's rows in another format.
std::vector<std::byte> converted(const model::GgufTensor& t, quant::Format from, quant::Format to,
                                 int threads) {
  const std::uint64_t row = t.shape[0], rows = t.elements / row;
  const std::uint64_t row_before = quant::bytes_of(from, row), row_after = quant::bytes_of(to, row);
  std::vector<std::byte> out(rows * row_after);
  const std::uint64_t rows_of_part = std::max<std::uint64_t>(1, (1 << 16) / row);
  on_threads(threads, (rows + rows_of_part - 1) / rows_of_part, [&](std::size_t part) {
    const std::uint64_t first = part * rows_of_part, count = std::min(rows_of_part, rows - first);
    std::vector<float> values(count * row);
    quant::decode(from, t.data.subspan(first * row_before, count * row_before), values);
    quant::encode(to, values, std::span(out).subspan(first * row_after, count * row_after));
  });
  return out;
}

}  // namespace

QuantizeResult quantize(const model::Source& file, const std::string& out, const QuantizeMix& mix,
                        const QuantizeOptions& options) {
  const int threads =
      options.threads > 0 ? options.threads : int(std::max(1u, std::thread::hardware_concurrency()));
  const auto types = quantized_types(file, mix);
  model::GgufWriter writer(file.find_integer("general.alignment").value_or(32));
  for (const auto& [key, value] : file.metadata())
    if (key != "general.file_type" && key != "general.quantization_version" && key != "general.alignment" &&
        !key.starts_with("split."))
      writer.add(key, value);
  writer.add("general.file_type", mix.file_type);
  writer.add("general.quantization_version", std::uint32_t(2));
  QuantizeResult result;
  std::uint64_t all = 0, done = 0;
  for (const auto& t : file.tensors()) all += t.elements;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const model::GgufTensor& t = file.tensors()[i];
    const std::string where = cat(file.path(), ", tensor '", t.name, "'");
    if (t.layout != model::TensorLayout::rows || !t.parts.empty())
      throw ArgumentError(
          ErrorText{"a file that is quantised is GGUF", where, "its rows are another program's", {}});
    const model::GgmlType& type = *model::find_ggml_type(types[i]);
    ++result.tensors[std::string(type.name)];
    result.bytes_before += t.data.size();
    result.bytes_after += t.elements / type.block_elements * type.block_bytes;
    const auto said = [&options, &done, all, elements = t.elements] {
      done += elements;
      if (options.progress) options.progress(double(done) / double(all));
    };
    if (t.type == &type) {
      writer.add_tensor(t.name, type, t.shape, [&t, said] {
        std::vector<std::byte> copy(t.data.begin(), t.data.end());
        said();
        return copy;
      });
      continue;
    }
    const quant::Format from = quant::format_of_ggml_type(t.type->id, t.name),
                        to = quant::format_of_ggml_type(type.id);
    if (quant::info(from).elements > 1 && !options.requantize)
      throw ArgumentError(ErrorText{"a tensor is quantised once", where,
                                    cat("it is ", t.type->name, " already, and would be ", type.name),
                                    "begin with a file in F16, or ask for it (--requantize)"});
    if (!quant::info(to).encodes)
      throw Unsupported(ErrorText{"a tensor's new type can be made", where,
                                  cat(type.name, " is decoded only"), "choose another type"});
    writer.add_tensor(t.name, type, t.shape, [&t, from, to, threads, said] {
      auto data = converted(t, from, to, threads);
      said();
      return data;
    });
  }
  writer.write(out);
  return result;
}

}  // namespace cgp::engine
