// SPDX-License-Identifier: Apache-2.0
// cgp inspect of a model file: metadata, formats, tensors, sizes.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/safetensors/safetensors.h"
#include "cgp/model/unicode/unicode.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/model_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

using nlohmann::ordered_json;

struct Tensor {
  std::string name, format;
  std::vector<std::uint64_t> shape;
  std::uint64_t elements = 1, bytes = 0;
};

struct Summary {
  std::string format, version;
  ordered_json metadata = ordered_json::object();
  std::vector<Tensor> tensors;
};

ordered_json to_json(const model::GgufValue& value);

/// Arrays of up to 16 scalars are whole; of others the type and the count.
ordered_json to_json(const model::GgufArray& a) {
  if (a.count > 16 || a.element == model::GgufType::array)
    return {{"array", model::name_of(a.element)}, {"count", a.count}};
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < a.count; ++i) {
    using model::GgufType;
    switch (a.element) {
      case GgufType::u8:
        out.push_back(a.at<std::uint8_t>(i));
        break;
      case GgufType::i8:
        out.push_back(a.at<std::int8_t>(i));
        break;
      case GgufType::u16:
        out.push_back(a.at<std::uint16_t>(i));
        break;
      case GgufType::i16:
        out.push_back(a.at<std::int16_t>(i));
        break;
      case GgufType::u32:
        out.push_back(a.at<std::uint32_t>(i));
        break;
      case GgufType::i32:
        out.push_back(a.at<std::int32_t>(i));
        break;
      case GgufType::u64:
        out.push_back(a.at<std::uint64_t>(i));
        break;
      case GgufType::i64:
        out.push_back(a.at<std::int64_t>(i));
        break;
      case GgufType::f32:
        out.push_back(a.at<float>(i));
        break;
      case GgufType::f64:
        out.push_back(a.at<double>(i));
        break;
      case GgufType::boolean:
        out.push_back(a.at<std::uint8_t>(i) != 0);
        break;
      case GgufType::string:
        out.push_back(model::unicode::valid(a.strings[i]));
        break;
      case GgufType::array:
        break;
    }
  }
  return out;
}

ordered_json to_json(const model::GgufValue& value) {
  return std::visit(
      [](const auto& held) -> ordered_json {
        using T = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<T, std::string_view>)
          return model::unicode::valid(held);
        else if constexpr (std::is_same_v<T, model::GgufArray>)
          return to_json(held);
        else
          return held;
      },
      value.held);
}

Summary of_gguf(const std::string& path) {
  const model::Gguf file = model::Gguf::open(path);
  Summary out{"GGUF", text::cat(file.version()), {}, {}};
  out.metadata = ordered_json::object();
  for (const auto& [key, value] : file.metadata()) out.metadata[model::unicode::valid(key)] = to_json(value);
  for (const model::GgufTensor& t : file.tensors())
    out.tensors.push_back(
        {model::unicode::valid(t.name), std::string(t.type->name), t.shape, t.elements, t.data.size()});
  return out;
}

Summary of_safetensors(const std::string& path) {
  const model::Safetensors file = model::Safetensors::open(path);
  Summary out{"safetensors", "", {}, {}};
  out.metadata = ordered_json::object();
  for (const auto& [key, value] : file.metadata()) out.metadata[key] = value;
  for (const model::SafetensorsTensor& t : file.tensors()) {
    Tensor row{t.name, std::string(t.type->name), t.shape, 1, t.data.size()};
    for (std::uint64_t n : t.shape) row.elements *= n;
    out.tensors.push_back(std::move(row));
  }
  return out;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string out;
  for (std::uint64_t n : shape) out += (out.empty() ? "" : " x ") + std::to_string(n);
  return out.empty() ? "scalar" : out;
}

std::string shortened(std::string text, std::size_t width) {
  if (text.size() <= width) return text;
  while (width > 0 && (text[width] & 0xC0) == 0x80) --width;
  return text.substr(0, width) + "...";
}

}  // namespace

bool names_model_file(const std::string& target) {
  for (const char* end : {".gguf", ".safetensors", ".safetensors.index.json"})
    if (target.ends_with(end)) return true;
  return false;
}

int inspect_model(const Context& context, const std::string& path) {
  const Summary s = path.ends_with(".gguf") ? of_gguf(path) : of_safetensors(path);
  struct Format {
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<std::string, Format> formats;
  Format all;
  for (const Tensor& t : s.tensors)
    for (Format* f : {&formats[t.format], &all}) {
      ++f->tensors;
      f->elements += t.elements;
      f->bytes += t.bytes;
    }
  if (context.json) {
    ordered_json j = {{"schema", "cgp.inspect/1"},  {"file", path},
                      {"format", s.format},         {"version", s.version},
                      {"parameters", all.elements}, {"tensor_bytes", all.bytes}};
    j["formats"] = ordered_json::array();
    for (const auto& [name, f] : formats)
      j["formats"].push_back(
          {{"name", name}, {"tensors", f.tensors}, {"elements", f.elements}, {"bytes", f.bytes}});
    j["metadata"] = s.metadata;
    j["tensors"] = ordered_json::array();
    for (const Tensor& t : s.tensors)
      j["tensors"].push_back(
          {{"name", t.name}, {"format", t.format}, {"shape", t.shape}, {"bytes", t.bytes}});
    write_out(spec::dumped(j, 2) + "\n");
    return kClean;
  }
  std::string out = fmt::format("{}: {}{}, {} tensors, {} parameters, {} of weights\n", path, s.format,
                                s.version.empty() ? "" : " version " + s.version, s.tensors.size(),
                                text::grouped(all.elements), text::bytes(all.bytes));
  if (!s.metadata.empty()) out += "\nmetadata\n";
  const std::size_t width = std::size_t(context.width) > 60 ? std::size_t(context.width) - 50 : 10;
  for (const auto& [key, value] : s.metadata.items())
    out += fmt::format(
        "  {:<44}  {}\n", model::json_string(key).substr(1, model::json_string(key).size() - 2),
        shortened(value.is_object()
                      ? fmt::format("{} of {}", value["count"].dump(), value["array"].get<std::string>())
                      : value.dump(),
                  width));
  if (!s.tensors.empty()) out += "\nformats\n";
  for (const auto& [name, f] : formats)
    out += fmt::format("  {:<8} {:>6} tensors {:>18} parameters {:>12}  {:.2f} bits each\n", name, f.tensors,
                       text::grouped(f.elements), text::bytes(f.bytes),
                       f.elements ? 8.0 * double(f.bytes) / double(f.elements) : 0.0);
  if (!s.tensors.empty()) out += "\ntensors\n";
  for (const Tensor& t : s.tensors) {
    const std::string name = model::json_string(t.name);
    out += fmt::format("  {:<40} {:<8} {:<24} {:>12}\n", name.substr(1, name.size() - 2), t.format,
                       shape_text(t.shape), text::bytes(t.bytes));
  }
  write_out(out);
  return kClean;
}

}  // namespace cgp::cli
