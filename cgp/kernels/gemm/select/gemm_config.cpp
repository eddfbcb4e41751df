// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/gemm/select/gemm_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::kernels {
namespace {

// One row a part of the name, in the order in which parts are printed.
struct Field {
  enum class Form : std::uint8_t { number, flag, eviction };
  std::string_view word;
  std::array<int GemmConfig::*, 3> values;  // several: joined by x, as many as are not 0
  std::array<std::string_view, 3> keys;     // in JSON
  Form form;
};
using C = GemmConfig;
constexpr Field kFields[] = {
    {"", {&C::tile_m, &C::tile_n, &C::tile_k}, {"tile_m", "tile_n", "tile_k"}, Field::Form::number},
    {"s", {&C::stages}, {"stages"}, Field::Form::number},
    {"cluster", {&C::cluster_m, &C::cluster_n}, {"cluster_m", "cluster_n"}, Field::Form::number},
    {"split_k", {&C::split_k}, {"split_k"}, Field::Form::number},
    {"group", {&C::group}, {"group"}, Field::Form::number},
    {"raster_grid", {&C::raster_grid}, {"raster_grid"}, Field::Form::flag},
    {"stores", {&C::store_buffers}, {"store_buffers"}, Field::Form::number},
    {"warps", {&C::warps}, {"warps"}, Field::Form::number},
    {"unroll", {&C::unroll}, {"unroll"}, Field::Form::number},
    {"min_blocks", {&C::min_blocks}, {"min_blocks"}, Field::Form::number},
    {"vec", {&C::vec_a, &C::vec_b}, {"vec_a", "vec_b"}, Field::Form::number},
    {"promote", {&C::promote}, {"promote"}, Field::Form::number},
    {"overlap", {&C::overlap}, {"overlap"}, Field::Form::flag},
    {"block_scales", {&C::block_scales}, {"block_scales"}, Field::Form::flag},
    {"a_evict", {&C::evict_a}, {"evict_a"}, Field::Form::eviction},
    {"b_evict", {&C::evict_b}, {"evict_b"}, Field::Form::eviction},
    {"c_evict", {&C::evict_c}, {"evict_c"}, Field::Form::eviction},
    {"swap_ab", {&C::swap_ab}, {"swap_ab"}, Field::Form::flag},
    {"source_c", {&C::source_c}, {"source_c"}, Field::Form::flag},
    {"direct", {&C::direct}, {"direct"}, Field::Form::flag},
    {"partial", {&C::partial}, {"partial"}, Field::Form::flag},
};
constexpr std::string_view kLayouts[] = {"", "nn", "nt", "tn", "tt"};
constexpr std::string_view kEvictions[] = {"", "_first", "_last"};
constexpr std::string_view kEpilogue = "epilogue_";

// Takes `word` off the front of `rest`, which are parts joined by '_'.
bool take(std::string_view& rest, std::string_view word) {
  if (!rest.starts_with(word) || (rest.size() > word.size() && rest[word.size()] != '_')) return false;
  rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  return true;
}

bool take_numbers(std::string_view& rest, const Field& f, GemmConfig& c) {
  if (!rest.starts_with(f.word)) return false;
  std::string_view s = rest.substr(f.word.size());
  for (const auto value : f.values) {
    if (!value) break;
    int v = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), v);
    if (error != std::errc() || v <= 0 || s[0] == '0') return false;
    c.*value = v;
    s.remove_prefix(std::size_t(end - s.data()));
    if (s.empty() || s[0] != 'x') break;
    s.remove_prefix(1);
  }
  if (!s.empty() && s[0] != '_') return false;
  rest = s.substr(std::min<std::size_t>(s.size(), 1));
  return true;
}

bool take_field(std::string_view& rest, const Field& f, GemmConfig& c) {
  switch (f.form) {
    case Field::Form::number:
      return take_numbers(rest, f, c);
    case Field::Form::flag:
      return take(rest, f.word) && (c.*f.values[0] = 1);
    case Field::Form::eviction:
      for (int policy : {1, 2})
        if (take(rest, text::cat(f.word, kEvictions[policy]))) return (c.*f.values[0] = policy) != 0;
      return false;
  }
  return false;
}

std::string shown(const Field& f) {
  if (f.word.empty()) return "MxN or MxNxK";
  if (f.form == Field::Form::eviction) return text::cat(f.word, "_first or _last");
  return f.form == Field::Form::flag ? std::string(f.word) : text::cat(f.word, f.values[1] ? "NxN" : "N");
}

[[noreturn]] void bad(std::string_view name, std::string_view part, std::string_view what,
                      std::vector<std::string> possible) {
  throw ArgumentError(
      {text::cat("not a variant of gemm: ", part.empty() ? text::cat("it ends before its ", what)
                                                         : text::cat("\"", part, "\" is no ", what)),
       std::string(name),
       {},
       text::cat("possible here: ", text::join(possible, ", "))});
}

}  // namespace

std::string print(const GemmConfig& c) {
  std::string out = text::cat("gemm_", cgp::name(c.a));
  if (c.b != c.a || c.c != c.a) text::append(out, text::cat("_", cgp::name(c.b), "_", cgp::name(c.c)));
  if (c.layout != GemmLayout::any) text::append(out, text::cat("_", kLayouts[int(c.layout)]));
  text::append(out, text::cat("_", name(c.family)));
  for (const auto& f : kFields) {
    if (!(c.*f.values[0])) continue;
    out += '_';
    out += f.word;
    if (f.form == Field::Form::eviction) out += kEvictions[c.*f.values[0]];
    if (f.form == Field::Form::number)
      for (std::size_t i = 0; i < f.values.size() && f.values[i] && c.*f.values[i]; ++i) {
        if (i) out += 'x';
        text::append(out, c.*f.values[i]);
      }
  }
  if (!c.epilogue.empty()) text::append(out, text::cat("_", kEpilogue, c.epilogue));
  return out;
}

GemmConfig parse_gemm_config(std::string_view whole) {
  std::string_view rest = whole;
  const auto part = [&] { return rest.substr(0, rest.find('_')); };
  if (!take(rest, "gemm")) bad(whole, part(), "kernel", {"gemm"});
  GemmConfig c;
  const auto take_type = [&](DType& t) {
    const auto parsed = parse_dtype(part());
    return parsed && (t = *parsed, take(rest, part()));
  };
  if (!take_type(c.a)) bad(whole, part(), "type of A", {"f32", "f16", "bf16", "e4m3", "e5m2", "s8"});
  c.b = c.c = c.a;
  if (take_type(c.b) && !take_type(c.c))
    bad(whole, part(), "type of C", {"f32", "f16", "bf16", "e4m3", "e5m2", "s8", "s32"});
  for (int i = 1; i < 5; ++i)
    if (take(rest, kLayouts[i])) c.layout = GemmLayout(i);
  // The longest name that fits: sm90 is the beginning of sm90_persistent.
  const GemmFamilyInfo* family = nullptr;
  std::string_view behind = rest;
  for (const auto& f : gemm_families())
    if (auto s = rest; take(s, f.name) && (!family || f.name.size() > family->name.size()))
      family = &f, behind = s;
  if (!family) {
    std::vector<std::string> names;
    for (const auto& f : gemm_families()) names.emplace_back(f.name);
    bad(whole, part(), c.layout == GemmLayout::any ? "layout or family" : "family", std::move(names));
  }
  c.family = family->family, rest = behind;
  for (const auto& f : kFields) take_field(rest, f, c);
  if (rest.starts_with(kEpilogue)) c.epilogue = rest.substr(kEpilogue.size()), rest = {};
  if (!rest.empty()) {
    std::vector<std::string> forms;
    for (const auto& f : kFields) forms.push_back(shown(f));
    bad(whole, rest, "choice of a kernel, or not in its place", std::move(forms));
  }
  return c;
}

std::size_t hash(const GemmConfig& c) { return std::hash<std::string>()(print(c)); }

std::string json(const GemmConfig& c) {
  std::string out =
      text::cat("{\"family\":\"", name(c.family), "\",\"types\":[\"", cgp::name(c.a), "\",\"", cgp::name(c.b),
                "\",\"", cgp::name(c.c), "\"],\"layout\":\"", kLayouts[int(c.layout)], "\"");
  for (const auto& f : kFields)
    for (std::size_t i = 0; i < f.values.size() && f.values[i]; ++i)
      if (const int v = c.*f.values[i]) text::append(out, text::cat(",\"", f.keys[i], "\":", v));
  if (!c.epilogue.empty()) text::append(out, text::cat(",\"epilogue\":\"", c.epilogue, "\""));
  return out + "}";
}

}  // namespace cgp::kernels
