// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/summary/summary.h"

#include <charconv>
#include <cmath>
#include <filesystem>

#include "cgp/base/text.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/safetensors/safetensors.h"
#include "cgp/model/source/source.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

template <class T>
std::string number(T v) {
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(v)) return "null";
  char digits[64];
  std::string out(digits, std::to_chars(digits, digits + sizeof digits, v).ptr);
  if (std::is_floating_point_v<T> && out.find_first_of(".e") == out.npos) out += ".0";
  return out;
}

std::string to_json(const GgufArray& a) {
  if (a.count > 16 || a.element == GgufType::array)
    return text::cat("{\"array\":", json_string(name_of(a.element)), ",\"count\":", a.count, "}");
  const auto element = [&](std::size_t i) -> std::string {
    switch (a.element) {
      case GgufType::u8:
        return number(unsigned(a.at<std::uint8_t>(i)));
      case GgufType::i8:
        return number(int(a.at<std::int8_t>(i)));
      case GgufType::u16:
        return number(a.at<std::uint16_t>(i));
      case GgufType::i16:
        return number(a.at<std::int16_t>(i));
      case GgufType::u32:
        return number(a.at<std::uint32_t>(i));
      case GgufType::i32:
        return number(a.at<std::int32_t>(i));
      case GgufType::u64:
        return number(a.at<std::uint64_t>(i));
      case GgufType::i64:
        return number(a.at<std::int64_t>(i));
      case GgufType::f32:
        return number(a.at<float>(i));
      case GgufType::f64:
        return number(a.at<double>(i));
      case GgufType::boolean:
        return a.at<std::uint8_t>(i) ? "true" : "false";
      case GgufType::string:
        return json_string(unicode::valid(a.strings[i]));
      case GgufType::array:
        break;
    }
    return "null";
  };
  std::string out;
  for (std::size_t i = 0; i < a.count; ++i) out += (i ? "," : "") + element(i);
  return "[" + out + "]";
}

std::string to_json(const GgufValue& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string_view>)
          return json_string(unicode::valid(held));
        else if constexpr (std::is_same_v<T, GgufArray>)
          return to_json(held);
        else if constexpr (std::is_same_v<T, bool>)
          return held ? "true" : "false";
        else
          return number(held);
      },
      value.held);
}

ModelSummary of_source(const Source& file, std::string format, std::string version) {
  ModelSummary out{std::move(format), std::move(version), {}, {}};
  for (const auto& [key, value] : file.metadata())
    out.metadata.emplace_back(unicode::valid(key), to_json(value));
  for (const GgufTensor& t : file.tensors()) {
    std::uint64_t bytes = t.data.size();
    for (const auto& part : t.parts) bytes += part.size();
    out.tensors.push_back({unicode::valid(t.name), std::string(t.type->name), t.shape, t.elements, bytes});
  }
  return out;
}

ModelSummary of_safetensors(const std::string& path) {
  const Safetensors file = Safetensors::open(path);
  ModelSummary out{"safetensors", "", {}, {}};
  for (const auto& [key, value] : file.metadata()) out.metadata.emplace_back(key, json_string(value));
  for (const SafetensorsTensor& t : file.tensors()) {
    out.tensors.push_back({t.name, std::string(t.type->name), t.shape, 1, t.data.size()});
    for (std::uint64_t n : t.shape) out.tensors.back().elements *= n;
  }
  return out;
}

}  // namespace

std::string ModelSummary::Tensor::shape_text() const {
  std::string out;
  for (std::uint64_t n : shape) out += (out.empty() ? "" : " x ") + text::cat(n);
  return out.empty() ? "scalar" : out;
}

bool is_model_file(const std::string& path) {
  for (const char* end : {".gguf", ".safetensors", ".safetensors.index.json"})
    if (path.ends_with(end)) return true;
  std::error_code none;
  return std::filesystem::exists(std::filesystem::path(path) / "config.json", none);
}

ModelSummary summary(const std::string& path) {
  if (path.ends_with(".gguf")) {
    const Gguf file = Gguf::open(path);
    return of_source(file, "GGUF", text::cat(file.version()));
  }
  if (std::filesystem::is_directory(path)) return of_source(*Source::open(path), "Hugging Face folder", "");
  return of_safetensors(path);
}

}  // namespace cgp::model
