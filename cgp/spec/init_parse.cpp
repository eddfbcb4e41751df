// SPDX-License-Identifier: Apache-2.0
// The JSON spellings of an init. Three are accepted: a word ("zero"), an object that names its generator in
// "kind" ({"kind": "iota", "start": 3}), and an object keyed by it ({"iota": {"start": 3}}, {"fill": 7},
// {"randint": [0, 9], "seed": 1}).
#include <optional>

#include "cgp/base/text.h"
#include "cgp/spec/generate.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::spec {
namespace {

using Kind = Init::Kind;
using text::cat;

struct Row {
  const char* word;
  Kind kind;
  std::vector<std::string> positional;  ///< fields of the list form
  const char* single;                   ///< the field that a bare payload stands for
};
const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"zero", Kind::zero, {}, ""},
      {"uninit", Kind::uninit, {}, ""},
      {"fill", Kind::fill, {}, "value"},
      {"values", Kind::values, {}, "values"},
      {"iota", Kind::iota, {"start", "step"}, "start"},
      {"file", Kind::file, {}, "path"},
      {"concat", Kind::concat, {}, "parts"},
      {"bits", Kind::bits, {}, "seed"},
      {"randint", Kind::randint, {"lo", "hi"}, ""},
      {"grid", Kind::grid, {"lo", "hi", "den"}, ""},
      {"uniform", Kind::uniform, {"lo", "hi"}, ""},
      {"choice", Kind::choice, {}, "of"},
      {"perm", Kind::perm, {}, "seed"},
  };
  return table;
}
const Row* row_of(const std::string& word) {
  for (const Row& row : rows())
    if (word == row.word) return &row;
  return nullptr;
}
std::vector<std::string> words() {
  std::vector<std::string> out;
  for (const Row& row : rows()) out.emplace_back(row.word);
  return out;
}
const std::vector<std::string> kKindKeys = {"kind", "type", "gen",    "generator",
                                            "op",   "init", "method", "name"};

[[noreturn]] void unknown(const Node& node, const std::string& word) {
  const auto near = text::closest(word, words(), 1);
  node.fail(cat("unknown generator \"", word, "\""), cat("known: ", text::join(words(), " ")),
            near.empty() ? "" : cat("did you mean ", near[0], "?"));
}

/// The fields of one generator, wherever the spelling put them.
struct Fields {
  Node outer;
  const Row* row = nullptr;
  std::optional<Node> payload;

  std::optional<Node> find(const std::string& field) const {
    if (payload && payload->is_object() && payload->has(field)) return payload->at(field);
    if (payload && payload->is_array() && !row->positional.empty())
      for (std::size_t i = 0; i < row->positional.size() && i < payload->size(); ++i)
        if (row->positional[i] == field) return payload->items()[i];
    if (payload && field == row->single && !payload->is_object()) return payload;
    if (outer.is_object() && outer.has(field) && field != row->word) return outer.at(field);
    return std::nullopt;
  }
  Node need(const std::string& field) const {
    if (auto found = find(field)) return *found;
    if (payload && payload->is_object()) return payload->at(field);
    return outer.at(field);
  }
};

Fields fields_of(const Node& node) {
  if (node.is_string()) {
    const Row* row = row_of(node.string());
    if (!row) unknown(node, node.string());
    return {node, row, {}};
  }
  if (!node.is_object()) node.fail("must be an init: a generator's name or an object", "it is neither");
  for (const auto& key : kKindKeys)
    if (node.has(key) && node.at(key).is_string()) {
      const std::string word = node.at(key).string();
      const Row* row = row_of(word);
      if (!row) unknown(node.at(key), word);
      // {"kind": "fill", "fill": 3}: the generator's own name may also be the field's
      if (node.has(word)) return {node, row, node.at(word)};
      return {node, row, {}};
    }
  for (const auto& key : node.keys())
    if (const Row* row = row_of(key)) return {node, row, Node(node.at(key))};
  node.fail("an init must name its generator", cat("it has the fields: ", text::join(node.keys(), ", ")),
            cat("write {\"kind\": NAME, ...} with one of: ", text::join(words(), " ")));
}

std::uint64_t seed_of(const Fields& f) {
  const auto found = f.find("seed");
  if (!found) return f.need("seed").u64();
  return found->is_string() ? found->element_bits(DType::u64) : found->u64();
}

std::vector<std::uint64_t> list_of(const Node& list, DType dtype) {
  std::vector<std::uint64_t> out;
  out.reserve(list.size());
  for (const Node& item : list.items()) out.push_back(item.element_bits(dtype));
  return out;
}

void read_iota(const Fields& f, Init& init) {
  const auto start = f.find("start"), step = f.find("step");
  init.integral = (!start || start->is_integer()) && (!step || step->is_integer());
  if (start) init.start = start->number();
  if (step) init.step = step->number();
  if (init.integral) {
    init.istart = start ? std::uint64_t(start->s64()) : 0;
    init.istep = step ? std::uint64_t(step->s64()) : 1;
  }
}

void read_range(const Fields& f, Init& init) {
  init.lo = f.need("lo").s64();
  init.hi = f.need("hi").s64();
  // Bounds above 2^63 arrive as their two's complement pattern, so only same-sign pairs can be ordered.
  if ((init.lo < 0) == (init.hi < 0) && init.hi < init.lo)
    f.need("hi").fail("hi must not be below lo", cat("lo = ", init.lo, ", hi = ", init.hi));
}

constexpr int kMaxDepth = 32;  // of concat in concat

Init parse(const Node& node, DType dtype, std::uint64_t count, int depth);

void read_parts(const Fields& f, DType dtype, Init& init, int depth) {
  const Node list = f.need("parts");
  if (depth == kMaxDepth) list.fail(cat("concat may nest ", kMaxDepth, " deep"), "it nests deeper");
  for (const Node& part : list.items()) {
    init.parts.push_back(parse(part, dtype, 0, depth + 1));
    Init& last = init.parts.back();
    if (last.kind == Kind::values && !last.count)
      last.count = last.values.size();
    else if (part.is_object() && !last.count && !part.has("count"))
      (void)part.at("count");  // throws: needs the field
  }
}

void check_values(const Node& node, const Init& init, std::uint64_t count) {
  if (count && init.values.size() != count)
    node.fail(cat("the list must have ", count, " values"), cat("it has ", init.values.size()));
}

Init parse(const Node& node, DType dtype, std::uint64_t count, int depth) {
  Init init;
  init.count = count;
  if (node.is_array()) {
    init.kind = Kind::values;
    init.values = list_of(node, dtype);
    check_values(node, init, count);
    return init;
  }
  if (node.is_number()) {
    init.kind = Kind::fill;
    init.values = {node.element_bits(dtype)};
    return init;
  }
  const Fields f = fields_of(node);
  init.kind = f.row->kind;
  if (const auto n = f.find("count")) init.count = n->u64();
  switch (init.kind) {
    case Kind::zero:
    case Kind::uninit:
      break;
    case Kind::fill:
      init.values = {f.need("value").element_bits(dtype)};
      break;
    case Kind::values:
      init.values = list_of(f.need("values"), dtype);
      check_values(f.need("values"), init, init.count);
      break;
    case Kind::iota:
      read_iota(f, init);
      break;
    case Kind::file:
      init.path = f.need("path").string();
      break;
    case Kind::concat:
      read_parts(f, dtype, init, depth);
      break;
    case Kind::randint:
      init.seed = seed_of(f);
      read_range(f, init);
      break;
    case Kind::grid:
      init.seed = seed_of(f);
      read_range(f, init);
      init.den = f.need("den").number();
      if (init.den == 0) f.need("den").fail("den must not be 0");
      break;
    case Kind::uniform:
      init.seed = seed_of(f);
      init.flo = f.find("lo") ? f.need("lo").number() : 0;
      init.fhi = f.find("hi") ? f.need("hi").number() : 1;
      break;
    case Kind::choice:
      init.seed = seed_of(f);
      init.values = list_of(f.find("of")       ? f.need("of")
                            : f.find("values") ? f.need("values")
                                               : f.need("of"),
                            dtype);
      if (init.values.empty()) node.fail("choice must have something to choose from", "its list is empty");
      break;
    case Kind::bits:
      init.seed = seed_of(f);
      break;
    case Kind::perm:
      init.seed = seed_of(f);
      if (const auto m = f.find("mul")) init.mul = std::uint64_t(m->s64());
      break;
  }
  return init;
}

}  // namespace

std::string_view name(Kind k) { return rows()[std::size_t(k)].word; }

Init parse_init(const Node& node, DType dtype, std::uint64_t count) { return parse(node, dtype, count, 0); }

}  // namespace cgp::spec
