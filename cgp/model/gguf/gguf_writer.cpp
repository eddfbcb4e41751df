// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/gguf/gguf_writer.h"

#include <algorithm>
#include <bit>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/files/output_file.h"

namespace cgp::model {

using text::cat;

namespace {

template <class T>
void put_scalar(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void put_string(std::string& out, std::string_view s) {
  put_scalar(out, std::uint64_t(s.size()));
  out.append(s);
}

}  // namespace

GgufWriter::GgufWriter(std::uint64_t alignment) : alignment_(alignment) {
  if (!std::has_single_bit(alignment) || alignment > (1u << 30))
    throw ArgumentError(
        ErrorText{"the alignment must be a power of two of at most 2^30", {}, cat("it is ", alignment), {}});
  if (alignment != 32) add("general.alignment", std::uint32_t(alignment));
}

void GgufWriter::raw(const void* data, std::size_t size) {
  entries_.append(static_cast<const char*>(data), size);
}
void GgufWriter::put(std::string_view s) { put_string(entries_, s); }

void GgufWriter::begin(std::string_view key, GgufType type) {
  if (std::find(keys_.begin(), keys_.end(), key) != keys_.end())
    throw ArgumentError(ErrorText{"a key must be added once", cat("key '", key, "'"), {}, {}});
  keys_.emplace_back(key);
  put(key);
  put_scalar(entries_, std::uint32_t(type));
}

void GgufWriter::begin_array(std::string_view key, GgufType element, std::uint64_t count) {
  begin(key, GgufType::array);
  put_scalar(entries_, std::uint32_t(element));
  put_scalar(entries_, count);
}

void GgufWriter::add(std::string_view key, std::string_view value) {
  begin(key, GgufType::string);
  put(value);
}

void GgufWriter::add_array(std::string_view key, std::span<const std::string_view> values) {
  begin_array(key, GgufType::string, values.size());
  for (std::string_view s : values) put(s);
}

void GgufWriter::put(const GgufArray& array) {
  put_scalar(entries_, std::uint32_t(array.element));
  put_scalar(entries_, array.count);
  raw(array.data.data(), array.data.size());
  for (std::string_view s : array.strings) put(s);
  for (const GgufArray& inner : array.arrays) put(inner);
}

void GgufWriter::add(std::string_view key, const GgufValue& value) {
  // The bits of an integer are the same with and without a sign.
  auto integer = [&] {
    if (auto* i = std::get_if<std::int64_t>(&value.held)) return std::uint64_t(*i);
    return std::get<std::uint64_t>(value.held);
  };
  switch (value.type) {
    case GgufType::u8:
      return add(key, std::uint8_t(integer()));
    case GgufType::i8:
      return add(key, std::int8_t(integer()));
    case GgufType::u16:
      return add(key, std::uint16_t(integer()));
    case GgufType::i16:
      return add(key, std::int16_t(integer()));
    case GgufType::u32:
      return add(key, std::uint32_t(integer()));
    case GgufType::i32:
      return add(key, std::int32_t(integer()));
    case GgufType::u64:
      return add(key, integer());
    case GgufType::i64:
      return add(key, std::int64_t(integer()));
    case GgufType::f32:
      return add(key, float(std::get<double>(value.held)));
    case GgufType::f64:
      return add(key, std::get<double>(value.held));
    case GgufType::boolean:
      return add(key, std::get<bool>(value.held));
    case GgufType::string:
      return add(key, std::get<std::string_view>(value.held));
    case GgufType::array:
      begin(key, GgufType::array);
      return put(std::get<GgufArray>(value.held));
  }
}

void GgufWriter::add_tensor(std::string_view name, const GgmlType& type, std::vector<std::uint64_t> shape,
                            std::span<const std::byte> data) {
  add({std::string(name), &type, std::move(shape), data.size(), data, {}});
}

void GgufWriter::add_tensor(std::string_view name, const GgmlType& type, std::vector<std::uint64_t> shape,
                            std::function<std::vector<std::byte>()> make) {
  std::uint64_t size = shape.empty() ? 0 : shape[0] / type.block_elements * type.block_bytes;
  for (std::size_t i = 1; i < shape.size(); ++i) size *= shape[i];
  add({std::string(name), &type, std::move(shape), size, {}, std::move(make)});
}

void GgufWriter::add(Tensor tensor) {
  auto fail = [&](std::string rule, std::string why) {
    throw ArgumentError(ErrorText{std::move(rule), cat("tensor '", tensor.name, "'"), std::move(why), {}});
  };
  const auto& shape = tensor.shape;
  const GgmlType& type = *tensor.type;
  for (const Tensor& t : tensors_)
    if (t.name == tensor.name) fail("a tensor must be added once", "the name is there");
  if (shape.empty() || shape.size() > 4)
    fail("a tensor must have 1 to 4 dimensions", cat("it has ", shape.size()));
  if (shape[0] % type.block_elements != 0)
    fail("a row must be a whole number of blocks",
         cat("a row of ", shape[0], " values, blocks of ", type.block_elements, " (", type.name, ")"));
  std::uint64_t size = shape[0] / type.block_elements;
  bool fits = !__builtin_mul_overflow(size, std::uint64_t(type.block_bytes), &size);
  for (std::size_t i = 1; i < shape.size(); ++i)
    fits = fits && !__builtin_mul_overflow(size, shape[i], &size);
  if (!fits || size != tensor.size)
    fail("a tensor's data must have the size of its shape",
         cat("the shape needs ", size, " bytes, ", tensor.size, " are given"));
  tensors_.push_back(std::move(tensor));
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put_scalar(out, std::uint32_t(3));
  put_scalar(out, std::uint64_t(tensors_.size()));
  put_scalar(out, std::uint64_t(keys_.size()));
  out += entries_;
  std::uint64_t offset = 0;
  for (const Tensor& t : tensors_) {
    put_string(out, t.name);
    put_scalar(out, std::uint32_t(t.shape.size()));
    for (std::uint64_t size : t.shape) put_scalar(out, size);
    put_scalar(out, t.type->id);
    put_scalar(out, offset);
    offset += (t.size + alignment_ - 1) / alignment_ * alignment_;
  }
  out.resize((out.size() + alignment_ - 1) / alignment_ * alignment_);
  return out;
}

template <class Sink>
void GgufWriter::write_to(Sink&& sink) const {
  sink(header());
  for (const Tensor& t : tensors_) {
    std::vector<std::byte> made;
    if (t.make) made = t.make();
    const auto data = t.make ? std::span<const std::byte>(made) : t.data;
    if (data.size() != t.size)
      throw ArgumentError(ErrorText{"a tensor's data must have the size of its shape",
                                    cat("tensor '", t.name, "'"),
                                    cat(t.size, " bytes, ", data.size(), " were made"),
                                    {}});
    sink(std::string_view(reinterpret_cast<const char*>(data.data()), data.size()));
    sink(std::string((alignment_ - t.size % alignment_) % alignment_, '\0'));
  }
}

std::string GgufWriter::bytes() const {
  std::string out;
  write_to([&](std::string_view piece) { out.append(piece); });
  return out;
}

void GgufWriter::write(const std::string& path) const {
  OutputFile file(path);
  write_to([&](std::string_view piece) { file.write(piece); });
  file.commit();
}

}  // namespace cgp::model
