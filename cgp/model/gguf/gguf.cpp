// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/gguf/gguf.h"

#include <bit>
#include <cstdio>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

static_assert(std::endian::native == std::endian::little, "GGUF values are copied as they lie in the file");

using text::cat;

namespace {

constexpr std::uint64_t kMaxNameLength = 64 * 1024;  // of keys and tensor names
constexpr int kMaxNesting = 8;                       // arrays in arrays
constexpr std::uint64_t kMaxParts = 1 << 16;

struct ValueType {
  std::string_view name;
  std::size_t size;
};
constexpr ValueType kValueTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                     {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                     {"u64", 8}, {"i64", 8}, {"f64", 8}};

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

}  // namespace

std::string_view name_of(GgufType type) { return kValueTypes[std::size_t(type)].name; }
std::size_t size_of(GgufType type) { return kValueTypes[std::size_t(type)].size; }

/// Walks the bytes of one file from front to back.
struct Gguf::Reader {
  std::span<const std::byte> bytes;
  const std::string& path;
  std::uint64_t at = 0;
  std::string subject;  // "key 'x'" or "tensor 'x'", once known

  [[noreturn]] void fail(std::string rule, std::string why, std::string hint = {}) const {
    fail_at(at, rule, why, hint);
  }
  [[noreturn]] void fail_at(std::uint64_t offset, std::string rule, std::string why,
                            std::string hint = {}) const {
    throw ParseError(ErrorText{std::move(rule),
                               cat(path, ", byte ", offset, subject.empty() ? "" : ", ", subject),
                               std::move(why), std::move(hint)});
  }
  std::uint64_t left() const { return bytes.size() - at; }
  std::span<const std::byte> take(std::uint64_t n, std::string_view what) {
    if (n > left())
      fail("a GGUF file must hold all of its metadata",
           cat(what, " needs ", n, " bytes, ", left(), " are left"),
           "the file is truncated or damaged: load it again");
    auto found = bytes.subspan(at, n);
    at += n;
    return found;
  }
  template <class T>
  T scalar(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  std::string_view string(std::string_view what) {
    auto length = scalar<std::uint64_t>(what);
    auto found = take(length, what);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
  std::string_view name(std::string_view what) {
    std::uint64_t start = at;
    std::string_view found = string(cat("a ", what));
    if (found.size() > kMaxNameLength)
      fail_at(start, cat("a ", what, " must have at most ", kMaxNameLength, " bytes"),
              cat("it has ", found.size()));
    return found;
  }
  GgufType type() {
    std::uint64_t start = at;
    auto id = scalar<std::uint32_t>("a value's type");
    if (id >= std::size(kValueTypes))
      fail_at(start, "a value's type must be one of 0 to 12", cat("it is ", id));
    return GgufType(id);
  }
  /// A count of things that take at least `least` bytes each: never more than the bytes that are left.
  std::uint64_t count(std::uint64_t least, std::string_view what) {
    std::uint64_t start = at;
    auto n = scalar<std::uint64_t>(what);
    if (n > left() / least)
      fail_at(start, cat("the ", what, " must fit the file"),
              cat(n, " of at least ", least, " bytes each, ", left(), " bytes are left"));
    return n;
  }
  bool boolean(std::uint64_t offset, std::byte value) const {
    if (value > std::byte{1}) fail_at(offset, "a bool must be 0 or 1", cat("it is ", int(value)));
    return value == std::byte{1};
  }
  GgufArray array(int depth) {
    GgufArray out;
    std::uint64_t start = at;
    out.element = type();
    if (out.element == GgufType::array && depth == kMaxNesting)
      fail_at(start, cat("arrays must be nested at most ", kMaxNesting, " deep"), "this one is deeper");
    constexpr std::uint64_t kArrayHeader = 12, kStringHeader = 8;
    bool is_string = out.element == GgufType::string, is_array = out.element == GgufType::array;
    std::uint64_t least = is_string ? kStringHeader : is_array ? kArrayHeader : size_of(out.element);
    out.count = count(least, "array's count");
    if (is_string) {
      out.strings.reserve(out.count);
      for (std::uint64_t i = 0; i < out.count; ++i) out.strings.push_back(string("a string of an array"));
    } else if (is_array) {
      for (std::uint64_t i = 0; i < out.count; ++i) out.arrays.push_back(array(depth + 1));
    } else {
      std::uint64_t first = at;
      out.data = take(out.count * least, "an array");
      if (out.element == GgufType::boolean)
        for (std::uint64_t i = 0; i < out.count; ++i) boolean(first + i, out.data[i]);
    }
    return out;
  }
  GgufValue value() {
    GgufValue v;
    v.type = type();
    std::uint64_t start = at;
    switch (v.type) {
      case GgufType::u8:
        v.held = std::uint64_t(scalar<std::uint8_t>("a u8"));
        break;
      case GgufType::u16:
        v.held = std::uint64_t(scalar<std::uint16_t>("a u16"));
        break;
      case GgufType::u32:
        v.held = std::uint64_t(scalar<std::uint32_t>("a u32"));
        break;
      case GgufType::u64:
        v.held = scalar<std::uint64_t>("a u64");
        break;
      case GgufType::i8:
        v.held = std::int64_t(scalar<std::int8_t>("an i8"));
        break;
      case GgufType::i16:
        v.held = std::int64_t(scalar<std::int16_t>("an i16"));
        break;
      case GgufType::i32:
        v.held = std::int64_t(scalar<std::int32_t>("an i32"));
        break;
      case GgufType::i64:
        v.held = scalar<std::int64_t>("an i64");
        break;
      case GgufType::f32:
        v.held = double(scalar<float>("an f32"));
        break;
      case GgufType::f64:
        v.held = scalar<double>("an f64");
        break;
      case GgufType::boolean:
        v.held = boolean(start, scalar<std::byte>("a bool"));
        break;
      case GgufType::string:
        v.held = string("a string");
        break;
      case GgufType::array:
        v.held = array(1);
        break;
    }
    return v;
  }
  void header(Gguf& out, std::uint64_t& tensor_count, std::uint64_t& entry_count) {
    std::uint64_t start = at;
    if (left() < 8 || std::memcmp(bytes.data(), "GGUF", 4) != 0)
      fail_at(start, "a GGUF file must begin with the letters GGUF and a version",
              left() < 8 ? cat("it has ", left(), " bytes") : "it begins with other bytes");
    at += 4;
    auto version = scalar<std::uint32_t>("the version");
    if (version != 0 && (version & 0xffff) == 0)
      fail_at(4, "a GGUF file must be little endian",
              cat("version ", __builtin_bswap32(version), " in big endian"),
              "convert the model again for little-endian machines");
    if (version != 2 && version != 3)
      fail_at(4, "a GGUF file must have version 2 or 3", cat("it has version ", version),
              version == 1 ? "convert the model again: version 1 is of 2023" : "");
    out.version_ = version;
    constexpr std::uint64_t kLeastTensor = 8 + 4 + 8 + 4 + 8, kLeastEntry = 8 + 4 + 1;
    tensor_count = count(kLeastTensor, "number of tensors");
    entry_count = count(kLeastEntry, "number of keys");
  }
  void metadata(Gguf& out, std::uint64_t entries) {
    for (std::uint64_t i = 0; i < entries; ++i) {
      subject.clear();
      std::uint64_t start = at;
      std::string_view key = name("key");
      subject = cat("key '", key, "'");
      if (!out.keys_.emplace(key, out.metadata_.size()).second)
        fail_at(start, "a key must occur once", "it occurs again");
      out.metadata_.push_back({key, value()});
    }
    subject.clear();
  }
  void alignment(Gguf& out) {
    auto wanted = out.find_integer("general.alignment");
    if (!wanted) return;
    subject = "key 'general.alignment'";
    if (!std::has_single_bit(*wanted) || *wanted > (1u << 30))
      fail("the alignment must be a power of two of at most 2^30", cat("it is ", *wanted));
    subject.clear();
    out.alignment_ = *wanted;
  }
  /// One entry of the table; the offset of its data is returned, from the start of all data.
  std::uint64_t tensor_entry(GgufTensor& t) {
    subject.clear();
    t.name = name("tensor's name");
    subject = cat("tensor '", t.name, "'");
    std::uint64_t start = at;
    auto rank = scalar<std::uint32_t>("the number of dimensions");
    if (rank < 1 || rank > 4) fail_at(start, "a tensor must have 1 to 4 dimensions", cat("it has ", rank));
    t.elements = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      start = at;
      t.shape.push_back(scalar<std::uint64_t>("a dimension"));
      if (!multiply(t.elements, t.shape.back(), t.elements) || t.elements > std::uint64_t(INT64_MAX) ||
          t.shape.back() > std::uint64_t(INT64_MAX))
        fail_at(start, "a tensor must have fewer than 2^63 elements",
                cat("dimension ", i, " is ", t.shape.back()));
    }
    start = at;
    auto type = scalar<std::uint32_t>("the type");
    t.type = find_ggml_type(type);
    if (!t.type)
      fail_at(start, "a tensor must have a known type", cat("type ", type, " is not one of GGML's"));
    if (t.shape[0] % t.type->block_elements != 0)
      fail_at(start, "a row must be a whole number of blocks",
              cat("a row of ", t.shape[0], " values, blocks of ", t.type->block_elements, " (", t.type->name,
                  ")"));
    return scalar<std::uint64_t>("the data's offset");
  }
  void tensors(Gguf& out, std::uint64_t count) {
    struct Place {
      std::uint64_t offset, entry_at;
    };
    std::vector<Place> places;
    std::size_t first = out.tensors_.size();
    for (std::uint64_t i = 0; i < count; ++i) {
      GgufTensor t;
      std::uint64_t start = at;
      std::uint64_t offset = tensor_entry(t);
      if (!out.tensor_names_.emplace(t.name, out.tensors_.size()).second)
        fail_at(start, "a tensor's name must occur once", "it occurs again");
      places.push_back({offset, at - 8});
      out.tensors_.push_back(std::move(t));
    }
    subject.clear();
    // The data begins at the next multiple of the alignment; a file without tensors may end before it.
    std::uint64_t base = (at + out.alignment_ - 1) / out.alignment_ * out.alignment_;
    std::uint64_t room = base < bytes.size() ? bytes.size() - base : 0;
    for (std::size_t i = 0; i < places.size(); ++i) {
      GgufTensor& t = out.tensors_[first + i];
      auto [offset, entry_at] = places[i];
      subject = cat("tensor '", t.name, "'");
      std::uint64_t size;
      if (!multiply(t.elements / t.type->block_elements, t.type->block_bytes, size))
        fail_at(entry_at, "a tensor must have fewer than 2^64 bytes",
                cat(t.elements, " values of ", t.type->name));
      if (offset % out.alignment_ != 0)
        fail_at(entry_at, "a tensor's data must be aligned",
                cat("offset ", offset, ", alignment ", out.alignment_));
      if (offset > room || size > room - offset)
        fail_at(entry_at, "a tensor's data must lie in the file",
                cat("offset ", offset, " and ", size, " bytes, the file has ", room, " bytes of data"),
                "the file is truncated or damaged: load it again");
      t.data = bytes.subspan(base + offset, size);
    }
    subject.clear();
  }
};

Gguf Gguf::parse(std::span<const std::byte> bytes, const std::string& name) {
  Gguf out;
  out.path_ = name;
  Reader in{bytes, out.path_, 0, {}};
  std::uint64_t tensors = 0, entries = 0;
  in.header(out, tensors, entries);
  in.metadata(out, entries);
  in.alignment(out);
  in.tensors(out, tensors);
  return out;
}

Gguf Gguf::open(const std::string& path) {
  MappedFile file(path);
  Gguf out = parse(file.bytes(), path);
  out.files_.push_back(std::move(file));
  std::uint64_t parts = out.find_integer("split.count").value_or(1);
  if (parts <= 1) return out;
  std::uint64_t part = out.find_integer("split.no").value_or(0);
  if (part != 0)
    throw ParseError(ErrorText{"a split model is opened by its first file", cat(path, ", key 'split.no'"),
                               cat("this is file ", part + 1, " of ", parts),
                               "open the one that ends in -00001-of-…"});
  if (parts > kMaxParts)
    throw ParseError(ErrorText{cat("a model must have at most ", kMaxParts, " files"),
                               cat(path, ", key 'split.count'"),
                               cat("it says ", parts),
                               {}});
  for (std::uint64_t i = 1; i < parts; ++i) out.add_part(path, i, parts);
  auto total = out.find_integer("split.tensors.count");
  if (total && *total != out.tensors_.size())
    throw ParseError(ErrorText{"a split model must hold all of its tensors",
                               cat(path, ", key 'split.tensors.count'"),
                               cat(*total, " are named, ", out.tensors_.size(), " are there"),
                               {}});
  return out;
}

void Gguf::add_part(const std::string& path, std::uint64_t part, std::uint64_t parts) {
  auto suffix = [&](std::uint64_t index) {
    char buffer[64];
    std::snprintf(buffer, sizeof buffer, "-%05llu-of-%05llu.gguf", static_cast<unsigned long long>(index),
                  static_cast<unsigned long long>(parts));
    return std::string(buffer);
  };
  std::string first = suffix(1);
  if (!path.ends_with(first))
    throw ParseError(ErrorText{"a file of a split model must keep its name",
                               cat(path, ", key 'split.count'"),
                               cat("it has ", parts, " files, so the first must end in ", first),
                               {}});
  MappedFile file(path.substr(0, path.size() - first.size()) + suffix(part + 1));
  Gguf more = parse(file.bytes(), file.path());
  if (more.find_integer("split.no").value_or(0) != part ||
      more.find_integer("split.count").value_or(0) != parts)
    throw ParseError(ErrorText{"the files of a split model must belong together",
                               cat(file.path(), ", key 'split.no'"),
                               cat("expected file ", part + 1, " of ", parts),
                               {}});
  for (GgufTensor& t : more.tensors_) {
    if (!tensor_names_.emplace(t.name, tensors_.size()).second)
      throw ParseError(ErrorText{"a tensor's name must occur once",
                                 cat(file.path(), ", tensor '", t.name, "'"),
                                 "an earlier file of the model has it too",
                                 {}});
    tensors_.push_back(std::move(t));
  }
  files_.push_back(std::move(file));
}

}  // namespace cgp::model
