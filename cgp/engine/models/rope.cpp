// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/models/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::engine {
namespace {

using std::int64_t;
using text::cat;

[[noreturn]] void refuse(const model::Source& file, const std::string& key, std::string why) {
  throw ArgumentError(ErrorText{
      "rotary embeddings need positive frequencies", cat(file.path(), ", ", key), std::move(why), {}});
}

/// Divisors of the frequencies in a tensor of f32; empty: the file has none.
std::vector<float> factors(const model::Source& file, std::string_view name, std::size_t count) {
  const model::GgufTensor* t = file.find_tensor(name);
  if (!t) return {};
  if (t->type->name != "F32" || t->elements != count)
    refuse(file, std::string(name),
           cat(t->elements, " values of type ", t->type->name, ", needed are ", count, " of F32"));
  std::vector<float> out(count);
  std::memcpy(out.data(), t->data.data(), t->data.size());
  for (float f : out)
    if (!(f > 0)) refuse(file, std::string(name), cat("a factor is ", f));
  return out;
}

/// Of YaRN: the index of the pair that turns `turns` times within the original context.
double corrected_dim(double dims, double context, double turns, double base) {
  return dims * std::log(context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

RopeTable plain_rope_table(int64_t dims, double base) {
  RopeTable table;
  for (int64_t i = 0; i < dims / 2; ++i)
    table.frequencies.push_back(float(std::pow(base, -2.0 * double(i) / double(dims))));
  return table;
}

RopeTable rope_table(const model::Source& file, int64_t head_dim, int64_t context) {
  const std::string prefix = cat(file.string("general.architecture"), ".rope.");
  const auto key = [&](std::string_view name) { return prefix + std::string(name); };
  const auto number = [&](std::string_view name, double otherwise) {
    return file.find_number(key(name)).value_or(otherwise);
  };
  const auto dims = int64_t(file.find_integer(key("dimension_count")).value_or(std::uint64_t(head_dim)));
  const double base = number("freq_base", 10000);
  if (dims < 2 || dims % 2 != 0 || dims > head_dim)
    refuse(file, key("dimension_count"), cat(dims, " dimensions of heads of ", head_dim));
  if (!(base > 1)) refuse(file, key("freq_base"), cat("the base is ", base));
  RopeTable table = plain_rope_table(dims, base);
  const std::size_t pairs = table.frequencies.size();
  const std::string_view type = file.find_string(key("scaling.type")).value_or("none");
  const double factor = number("scaling.factor", number("scale_linear", 1));
  if (!(factor > 0)) refuse(file, key("scaling.factor"), cat("the factor is ", factor));
  const double trained = number("scaling.original_context_length", double(context));
  const double attention_factor = number("scaling.attn_factor", 1);
  std::vector<float> divisors = factors(file, "rope_freqs.weight", pairs);
  if (type == "linear") {
    for (float& f : table.frequencies) f = float(double(f) / factor);
  } else if (type == "yarn") {
    const double fast = number("scaling.yarn_beta_fast", 32), slow = number("scaling.yarn_beta_slow", 1);
    const double low = std::max(0.0, std::floor(corrected_dim(double(dims), trained, fast, base)));
    const double high =
        std::min(double(dims - 1), std::ceil(corrected_dim(double(dims), trained, slow, base)));
    for (std::size_t i = 0; i < pairs; ++i) {
      const double kept = 1 - std::clamp((double(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
      const double f = table.frequencies[i];
      table.frequencies[i] = float(f / factor * (1 - kept) + f * kept);
    }
    table.magnitude = float(attention_factor * (1 + 0.1 * std::log(factor)));
  } else if (type == "longrope") {
    const bool is_long = double(context) > trained;
    divisors = factors(file, is_long ? "rope_factors_long.weight" : "rope_factors_short.weight", pairs);
    if (divisors.empty())
      static_cast<void>(file.tensor(is_long ? "rope_factors_long.weight" : "rope_factors_short.weight"));
    table.magnitude = float(attention_factor);
  } else if (type != "none") {
    throw Unsupported(ErrorText{"the RoPE scaling is none, linear, yarn or longrope",
                                cat(file.path(), ", ", key("scaling.type")),
                                cat("it is ", type),
                                {}});
  }
  for (std::size_t i = 0; i < divisors.size(); ++i) table.frequencies[i] /= divisors[i];
  return table;
}

}  // namespace cgp::engine
