// SPDX-License-Identifier: Apache-2.0
// cgp inspect of a model file: metadata, formats, tensors, sizes.
#include <fmt/core.h>

#include <map>
#include <nlohmann/json.hpp>

#include "cgp/base/text.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/summary/summary.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/model_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using nlohmann::ordered_json;

std::string shortened(std::string text, std::size_t width) {
  if (text.size() <= width) return text;
  while (width > 0 && (text[width] & 0xC0) == 0x80) --width;
  return text.substr(0, width) + "...";
}

}  // namespace

int inspect_model(const Context& context, const std::string& path) {
  const model::ModelSummary s = model::summary(path);
  struct Format {
    std::uint64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::map<std::string, Format> formats;
  Format all;
  for (const model::ModelSummary::Tensor& t : s.tensors)
    for (Format* f : {&formats[t.type], &all}) {
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
    j["metadata"] = ordered_json::object();
    for (const auto& [key, value] : s.metadata) j["metadata"][key] = ordered_json::parse(value);
    j["tensors"] = ordered_json::array();
    for (const model::ModelSummary::Tensor& t : s.tensors)
      j["tensors"].push_back({{"name", t.name}, {"format", t.type}, {"shape", t.shape}, {"bytes", t.bytes}});
    write_out(spec::dumped(j, 2) + "\n");
    return kClean;
  }
  std::string out = fmt::format("{}: {}{}, {} tensors, {} parameters, {} of weights\n", path, s.format,
                                s.version.empty() ? "" : " version " + s.version, s.tensors.size(),
                                text::grouped(all.elements), text::bytes(all.bytes));
  if (!s.metadata.empty()) out += "\nmetadata\n";
  const std::size_t width = std::size_t(context.width) > 60 ? std::size_t(context.width) - 50 : 10;
  for (const auto& [key, json] : s.metadata) {
    const auto value = ordered_json::parse(json);
    out += fmt::format("  {:<44}  {}\n", model::json_escaped(key),
                       shortened(value.is_object() ? fmt::format("{} of {}", value["count"].dump(),
                                                                 value["array"].get<std::string>())
                                                   : value.dump(),
                                 width));
  }
  if (!s.tensors.empty()) out += "\nformats\n";
  for (const auto& [name, f] : formats)
    out += fmt::format("  {:<8} {:>6} tensors {:>18} parameters {:>12}  {:.2f} bits each\n", name, f.tensors,
                       text::grouped(f.elements), text::bytes(f.bytes),
                       f.elements ? 8.0 * double(f.bytes) / double(f.elements) : 0.0);
  if (!s.tensors.empty()) out += "\ntensors\n";
  for (const model::ModelSummary::Tensor& t : s.tensors)
    out += fmt::format("  {:<40} {:<8} {:<24} {:>12}\n", model::json_escaped(t.name), t.type, t.shape_text(),
                       text::bytes(t.bytes));
  write_out(out);
  return kClean;
}

}  // namespace cgp::cli
