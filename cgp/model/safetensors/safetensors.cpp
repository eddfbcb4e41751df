// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/safetensors/safetensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/files/output_file.h"

namespace cgp::model {

using text::cat;

namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxRank = 64;
constexpr SafetensorsType kTypes[] = {
    {"BOOL", 8},    {"U8", 8},      {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F4", 4},
    {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},
    {"U32", 32},    {"F32", 32},    {"I64", 64}, {"U64", 64},    {"F64", 64},    {"C64", 64}};

/// Nothing where the bits overflow or are no whole number of bytes.
std::optional<std::uint64_t> size_of(const SafetensorsType& type, const std::vector<std::uint64_t>& shape) {
  std::uint64_t bits = type.bits;
  for (std::uint64_t n : shape)
    if (__builtin_mul_overflow(bits, n, &bits)) return {};
  if (bits % 8 != 0) return {};
  return bits / 8;
}

/// One file's header: where each tensor's data lies.
struct HeaderReader {
  JsonCursor json;
  std::span<const std::byte> data;
  struct Range {
    std::uint64_t begin, end;
    std::string name;
  };
  std::vector<Range> ranges;

  SafetensorsTensor tensor(const std::string& name) {
    json.set_subject(cat("tensor '", name, "'"));
    SafetensorsTensor t;
    t.name = name;
    bool has_shape = false;
    std::vector<std::uint64_t> offsets;
    json.object([&](const std::string& key) {
      if (key == "dtype" && !t.type) {
        std::string type = json.string();
        t.type = find_safetensors_type(type);
        if (!t.type) json.fail("a tensor must have a known dtype", cat("it has '", type, "'"));
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        json.array([&] {
          if (t.shape.size() == kMaxRank)
            json.fail(cat("a tensor must have at most ", kMaxRank, " dimensions"));
          t.shape.push_back(json.integer());
        });
      } else if (key == "data_offsets" && offsets.empty()) {
        json.array([&] {
          if (offsets.size() == 2) json.fail("data_offsets must be two numbers");
          offsets.push_back(json.integer());
        });
      } else {
        json.fail("a tensor must have dtype, shape and data_offsets once", cat("found '", key, "'"));
      }
    });
    if (!t.type || !has_shape || offsets.size() != 2)
      json.fail("a tensor must have dtype, shape and data_offsets");
    auto [begin, end] = std::pair(offsets[0], offsets[1]);
    if (begin > end || end > data.size())
      json.fail("a tensor's data must lie in the file",
                cat("bytes ", begin, " to ", end, ", the file has ", data.size(), " bytes of data"));
    auto size = size_of(*t.type, t.shape);
    if (!size || *size != end - begin)
      json.fail("a tensor's data must have the size of its shape",
                cat(size ? cat(*size, " bytes") : std::string("no whole number of bytes below 2^61"), " for ",
                    t.type->name, ", ", end - begin, " are there"));
    t.data = data.subspan(begin, end - begin);
    ranges.push_back({begin, end, name});
    json.set_subject({});
    return t;
  }
  void check_cover() {
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    std::uint64_t at = 0;
    for (const Range& r : ranges) {
      if (r.begin != at) {
        json.set_subject(cat("tensor '", r.name, "'"));
        json.fail("tensors must lie one after the other",
                  cat("it begins at ", r.begin, ", the one before ends at ", at));
      }
      at = r.end;
    }
    if (at != data.size())
      json.fail("the tensors must cover the file",
                cat("they end at ", at, ", the data has ", data.size(), " bytes"));
  }
};

}  // namespace

std::span<const SafetensorsType> safetensors_types() { return kTypes; }

const SafetensorsType* find_safetensors_type(std::string_view name) {
  for (const SafetensorsType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

void Safetensors::add(SafetensorsTensor tensor) {
  names_.emplace(tensor.name, tensors_.size());
  tensors_.push_back(std::move(tensor));
}

const SafetensorsTensor* Safetensors::find(std::string_view name) const {
  auto found = names_.find(std::string(name));
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

Safetensors Safetensors::parse(std::span<const std::byte> bytes, const std::string& name) {
  auto fail = [&](std::string rule, std::string why) {
    throw ParseError(ErrorText{std::move(rule), cat(name, ", byte 0"), std::move(why), {}});
  };
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length)
    fail("a safetensors file must begin with its header's length", cat("it has ", bytes.size(), " bytes"));
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader || length > bytes.size() - sizeof length)
    fail("the header must fit the file and 100 MB",
         cat("it has ", length, " bytes, the file ", bytes.size()));
  std::string_view header(reinterpret_cast<const char*>(bytes.data()) + sizeof length, length);
  HeaderReader in{JsonCursor(header, name, sizeof length), bytes.subspan(sizeof length + length), {}};
  Safetensors out;
  bool has_metadata = false;
  in.json.object([&](const std::string& key) {
    if (out.names_.count(key) || (key == "__metadata__" && has_metadata))
      in.json.fail("a name must occur once", cat("'", key, "' occurs again"));
    if (key != "__metadata__") return out.add(in.tensor(key));
    has_metadata = true;
    in.json.object([&](const std::string& entry) {
      if (!out.metadata_.emplace(entry, in.json.string()).second)
        in.json.fail("a name must occur once", cat("'", entry, "' occurs again"));
    });
  });
  in.json.end();
  in.check_cover();
  return out;
}

Safetensors Safetensors::open(const std::string& path) {
  if (path.ends_with(".json")) return open_index(path);
  MappedFile file(path);
  Safetensors out = parse(file.bytes(), path);
  out.files_.push_back(std::move(file));
  return out;
}

Safetensors Safetensors::open_index(const std::string& path) {
  MappedFile index(path);
  std::string_view text(reinterpret_cast<const char*>(index.bytes().data()), index.bytes().size());
  JsonCursor json(text, path);
  std::map<std::string, std::set<std::string>> files;  // file -> its tensors
  std::set<std::string> seen;
  bool has_map = false;
  json.object([&](const std::string& key) {
    if (key != "weight_map") return json.skip();
    if (has_map) json.fail("a name must occur once", "'weight_map' occurs again");
    has_map = true;
    json.object([&](const std::string& tensor) {
      json.set_subject(cat("tensor '", tensor, "'"));
      std::string file = json.string();
      if (file.empty() || file.find('/') != std::string::npos || file.find('\0') != std::string::npos ||
          file == "..")
        json.fail("a file of an index must lie beside it", cat("it is '", file, "'"));
      if (!seen.insert(tensor).second) json.fail("a name must occur once", "it occurs again");
      files[file].insert(tensor);
      json.set_subject({});
    });
  });
  json.end();
  if (!has_map) json.fail("an index must have a weight_map");
  Safetensors out;
  std::string folder = path.substr(0, path.rfind('/') + 1);
  for (const auto& [name, wanted] : files) {
    Safetensors part = open(folder + name);
    for (const std::string& tensor : wanted) {
      const SafetensorsTensor* found = part.find(tensor);
      if (!found)
        throw ParseError(ErrorText{"a file must hold the tensors that the index names",
                                   cat(folder, name, ", tensor '", tensor, "'"),
                                   "it is not there",
                                   {}});
      out.add(*found);
    }
    for (MappedFile& file : part.files_) out.files_.push_back(std::move(file));
  }
  return out;
}

void write_safetensors(const std::string& path, std::span<const SafetensorsTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::string header = "{";
  auto separate = [&] { header += header.back() == '{' ? "" : ","; };
  if (!metadata.empty()) {
    header += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      separate();
      header += cat(json_string(key), ":", json_string(value));
    }
    header += "}";
  }
  std::uint64_t at = 0;
  std::set<std::string_view> names{"__metadata__"};
  for (const SafetensorsTensor& t : tensors) {
    auto size = size_of(*t.type, t.shape);
    if (!size || *size != t.data.size())
      throw ArgumentError(ErrorText{"a tensor's data must have the size of its shape",
                                    cat("tensor '", t.name, "'"),
                                    cat(t.data.size(), " bytes are given"),
                                    {}});
    if (!names.insert(t.name).second)
      throw ArgumentError(ErrorText{"a tensor's name must occur once", cat("tensor '", t.name, "'"), {}, {}});
    separate();
    header += cat(json_string(t.name), ":{\"dtype\":\"", t.type->name, "\",\"shape\":[");
    for (std::size_t i = 0; i < t.shape.size(); ++i) header += cat(i ? "," : "", t.shape[i]);
    header += cat("],\"data_offsets\":[", at, ",", at + t.data.size(), "]}");
    at += t.data.size();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  OutputFile file(path);
  std::uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const SafetensorsTensor& t : tensors) file.write(t.data);
  file.commit();
}

}  // namespace cgp::model
