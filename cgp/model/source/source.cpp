// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/source/source.h"

#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/source/hugging_face.h"

namespace cgp::model {

using text::cat;

std::shared_ptr<const Source> Source::open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return std::make_shared<const HuggingFaceFolder>(HuggingFaceFolder::open(path));
  return std::make_shared<const Gguf>(Gguf::open(path));
}

const GgufValue* Source::find(std::string_view key) const {
  auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &metadata_[found->second].value;
}

const GgufTensor* Source::find_tensor(std::string_view name) const {
  auto found = tensor_names_.find(name);
  return found == tensor_names_.end() ? nullptr : &tensors_[found->second];
}

const GgufTensor& Source::tensor(std::string_view name) const {
  if (const GgufTensor* found = find_tensor(name)) return *found;
  std::vector<std::string> names;
  for (const GgufTensor& t : tensors_) names.emplace_back(t.name);
  throw ParseError(ErrorText{"the model must have every tensor of its architecture",
                             cat(path_, ", tensor '", name, "'"), "it is not in the file",
                             cat("close to it: ", text::join(text::closest(name, names), ", "))});
}

void Source::wrong_type(std::string_view key, const GgufValue& value, std::string_view want) const {
  std::string found{name_of(value.type)};
  if (auto* array = std::get_if<GgufArray>(&value.held)) found += cat(" of ", name_of(array->element));
  throw ParseError(
      ErrorText{cat("the value must be ", want), cat(path_, ", key '", key, "'"), cat("it is ", found), {}});
}

void Source::missing(std::string_view key) const {
  throw ParseError(
      ErrorText{"the file must have this key", cat(path_, ", key '", key, "'"), "it is not there", {}});
}

std::optional<std::uint64_t> Source::find_integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return {};
  if (auto* u = std::get_if<std::uint64_t>(&value->held)) return *u;
  if (auto* i = std::get_if<std::int64_t>(&value->held); i && *i >= 0) return std::uint64_t(*i);
  wrong_type(key, *value, "an integer that is not negative");
}

std::optional<std::int64_t> Source::find_signed(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return {};
  if (auto* i = std::get_if<std::int64_t>(&value->held)) return *i;
  if (auto* u = std::get_if<std::uint64_t>(&value->held); u && *u <= std::uint64_t(INT64_MAX))
    return std::int64_t(*u);
  wrong_type(key, *value, "an integer of 64 bits with a sign");
}

std::optional<double> Source::find_number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return {};
  if (auto* f = std::get_if<double>(&value->held)) return *f;
  if (auto* u = std::get_if<std::uint64_t>(&value->held)) return double(*u);
  if (auto* i = std::get_if<std::int64_t>(&value->held)) return double(*i);
  wrong_type(key, *value, "a number");
}

std::optional<bool> Source::find_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return {};
  if (auto* b = std::get_if<bool>(&value->held)) return *b;
  wrong_type(key, *value, "a bool");
}

std::optional<std::string_view> Source::find_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (!value) return {};
  if (auto* s = std::get_if<std::string_view>(&value->held)) return *s;
  wrong_type(key, *value, "a string");
}

const GgufArray* Source::find_array(std::string_view key, GgufType element) const {
  const GgufValue* value = find(key);
  if (!value) return nullptr;
  auto* array = std::get_if<GgufArray>(&value->held);
  if (!array || array->element != element) wrong_type(key, *value, cat("an array of ", name_of(element)));
  return array;
}

std::uint64_t Source::integer(std::string_view key) const {
  if (auto found = find_integer(key)) return *found;
  missing(key);
}

double Source::number(std::string_view key) const {
  if (auto found = find_number(key)) return *found;
  missing(key);
}

std::string_view Source::string(std::string_view key) const {
  if (auto found = find_string(key)) return *found;
  missing(key);
}

}  // namespace cgp::model
