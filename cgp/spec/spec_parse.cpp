// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/spec/report/json_text.h"
#include "cgp/spec/spec.h"

namespace cgp::spec {
namespace {

using text::cat;

constexpr std::uint64_t kMaxBufferBytes = 1ull << 40;

/// A field that means nothing to us is no reason to refuse a case, but never passes in silence.
void note_unknown(const Node& node, const std::vector<std::string>& known, Spec& spec) {
  for (const auto& key : node.keys()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const auto near = text::closest(key, known, 1);
    spec.warnings.push_back(cat(spec.path, ": ", node.pointer(), "/", key, ": field ignored",
                                near.empty() ? "" : cat(" (did you mean \"", near[0], "\"?)")));
  }
}

std::uint64_t element_count(const Node& node, DType dtype) {
  const Node count = node.at("count");
  const std::uint64_t n = count.u64();
  if (n > kMaxBufferBytes / std::uint64_t(bytes(dtype)))
    count.fail("a buffer must be at most 1 TiB", cat(n, " elements of ", name(dtype)));
  return n;
}

Role parse_role(const Node& node) {
  const std::string word = node.string();
  for (int i = 0; i < 4; ++i)
    if (name(Role(i)) == word) return Role(i);
  node.fail(cat("unknown role \"", word, "\""), "known: in, out, inout, scratch");
}

Compare parse_compare(const Node& buffer) {
  Compare how;
  const Node node = buffer.at("compare");
  std::optional<Node> mode;
  std::optional<Node> tolerances;
  if (node.is_string()) {
    mode = node;
    tolerances = buffer;
  } else {
    tolerances = node;
    for (const char* key : {"mode", "kind", "type", "method"})
      if (node.has(key)) mode = node.at(key);
    for (const char* key : {"exact", "abs_rel", "multiset"})
      if (!mode && node.has(key)) {
        how.mode = Compare::Mode(key == std::string("exact") ? 0 : key == std::string("abs_rel") ? 1 : 2);
        if (node.at(key).is_object() || node.at(key).is_array()) tolerances = node.at(key);
        mode = std::nullopt;
        break;
      }
    if (!mode && (node.has("abs") || node.has("rel"))) how.mode = Compare::Mode::abs_rel;
  }
  if (mode) {
    const std::string word = mode->string();
    bool known = false;
    for (int i = 0; i < 3; ++i)
      if (name(Compare::Mode(i)) == word) how.mode = Compare::Mode(i), known = true;
    if (!known) mode->fail(cat("unknown compare mode \"", word, "\""), "known: exact, abs_rel, multiset");
  }
  if (how.mode == Compare::Mode::abs_rel) {
    if (tolerances->is_array()) {
      const auto items = tolerances->items();
      if (items.size() > 0) how.abs = items[0].number();
      if (items.size() > 1) how.rel = items[1].number();
    } else {
      if (!tolerances->has("abs") && !tolerances->has("rel")) (void)tolerances->at("abs");
      if (tolerances->has("abs")) how.abs = tolerances->at("abs").number();
      if (tolerances->has("rel")) how.rel = tolerances->at("rel").number();
    }
  }
  return how;
}

std::uint32_t parse_crc(const Node& node) {
  return node.is_string() ? std::uint32_t(node.element_bits(DType::u32)) : node.u32();
}

BufferSpec parse_buffer(const Node& node, Spec& spec) {
  BufferSpec b;
  b.name = node.at("name").string();
  if (spec.find_buffer(b.name)) node.at("name").fail(cat("two buffers are called \"", b.name, "\""));
  b.dtype = node.at("dtype").dtype();
  b.count = element_count(node, b.dtype);
  b.role = parse_role(node.at("role"));
  if (node.has("init")) b.init = parse_init(node.at("init"), b.dtype, b.count);
  if (node.has("crc32")) b.crc32 = parse_crc(node.at("crc32"));
  if (node.has("compare")) b.compare = parse_compare(node);
  if (node.has("expected")) {
    const Node expected = node.at("expected");
    if (expected.is_string() && expected.string().find('.') != std::string::npos) {
      b.expected = Init{};
      b.expected->kind = Init::Kind::file;
      b.expected->path = expected.string();
      b.expected->count = b.count;
    } else {
      b.expected = parse_init(expected, b.dtype, b.count);
    }
  }
  note_unknown(node, {"name", "dtype", "count", "role", "init", "crc32", "compare", "expected", "abs", "rel"},
               spec);
  return b;
}

SymbolSpec parse_symbol(const Node& node, Spec& spec) {
  SymbolSpec s;
  s.name = node.at("name").string();
  s.dtype = node.at("dtype").dtype();
  s.count = element_count(node, s.dtype);
  s.init = parse_init(node.at("init"), s.dtype, s.count);
  note_unknown(node, {"name", "dtype", "count", "init", "crc32"}, spec);
  return s;
}

/// [x, y, z], with missing trailing extents 1; or one number.
Dim3 parse_dim3(const Node& node) {
  std::array<std::uint32_t, 3> v{1, 1, 1};
  if (node.is_number()) {
    v[0] = node.u32();
  } else {
    const auto items = node.items();
    if (items.empty() || items.size() > 3)
      node.fail("must have 1 to 3 extents", cat("it has ", items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) v[i] = items[i].u32();
  }
  return {v[0], v[1], v[2]};
}

Dim3 parse_shape(const Node& node) {
  const Dim3 d = parse_dim3(node);
  if (d.count() == 0) node.fail("extents must be at least 1", cat(d.x, ",", d.y, ",", d.z));
  return d;
}

// ---------------------------------------------------------------- parameters
AddressOf parse_address(const Node& buf, std::optional<Node> offset, std::uint32_t at, const Spec& spec) {
  const std::string wanted = buf.is_integer() ? cat("arg", buf.u64()) : buf.string();
  const auto found = spec.find_buffer(wanted);
  if (!found) {
    std::vector<std::string> names;
    for (const auto& b : spec.buffers) names.push_back(b.name);
    const auto near = text::closest(wanted, names, 1);
    buf.fail(cat("there is no buffer \"", wanted, "\""), cat("there are: ", text::join(names, ", ")),
             near.empty() ? "" : cat("did you mean ", near[0], "?"));
  }
  AddressOf a{*found, 0, at};
  if (offset)
    a.offset = std::uint64_t(offset->s64());  // negative: before the buffer, as a kernel might be given
  return a;
}

DType scalar_type(const Node& node) {
  const std::string word = node.string();
  constexpr std::pair<const char*, DType> untyped[] = {
      {"b8", DType::u8},     {"b16", DType::u16},    {"b32", DType::u32}, {"b64", DType::u64},
      {"f16x2", DType::u32}, {"bf16x2", DType::u32}, {"pred", DType::u8}, {"bool", DType::u8}};
  for (const auto& [alias, type] : untyped)
    if (word == alias) return type;
  return node.dtype();
}

/// Appends the little-endian bytes of a value, or of every value of a list.
void append_value(const Node& value, DType t, std::vector<std::uint8_t>& out) {
  if (value.is_array()) {
    for (const Node& item : value.items()) append_value(item, t, out);
    return;
  }
  const std::uint64_t bits = value.element_bits(t);
  for (int i = 0; i < bytes(t); ++i) out.push_back(std::uint8_t(bits >> (8 * i)));
}

void parse_struct(const Node& node, ParamSpec& p, Spec& spec) {
  p.kind = ParamSpec::Kind::structure;
  const std::uint32_t size = node.at("size").u32();
  if (size > 32764) node.at("size").fail("a parameter must be at most 32764 bytes", cat("it has ", size));
  p.bytes.assign(size, 0);
  for (const Node& field : node.at("fields").items()) {
    const std::uint32_t at = field.at("offset").u32();
    std::vector<std::uint8_t> data;
    if (field.has("buf")) {
      std::optional<Node> offset;
      if (field.has("buf_offset")) offset = field.at("buf_offset");
      p.addresses.push_back(parse_address(field.at("buf"), offset, at, spec));
      data.assign(8, 0);
    } else {
      append_value(field.at("value"), scalar_type(field.at("type")), data);
    }
    if (at > size || data.size() > size - at)
      field.fail("a field must lie inside its struct",
                 cat("it covers bytes ", at, " to ", at + data.size(), " of ", size));
    std::copy(data.begin(), data.end(), p.bytes.begin() + at);
    note_unknown(field, {"offset", "buf", "buf_offset", "type", "value", "name"}, spec);
  }
  note_unknown(node, {"size", "align", "fields", "name"}, spec);
}

template <class T>
std::vector<T> numbers(const Node& node) {
  std::vector<T> out;
  for (const Node& item : node.items()) out.push_back(T(sizeof(T) == 4 ? item.u32() : item.u64()));
  return out;
}

runtime::TensorType parse_tensor_type(const Node& node) {
  const std::string word = node.string();
  for (int i = 0; i <= int(runtime::TensorType::tf32_ftz); ++i)
    if (runtime::name(runtime::TensorType(i)) == word) return runtime::TensorType(i);
  return runtime::tensor_type(node.dtype());
}

runtime::Swizzle parse_swizzle(const Node& node) {
  if (node.is_integer() && node.u64() == 0) return runtime::Swizzle::none;
  const std::string word = node.is_integer() ? cat(node.u64(), "B") : node.string();
  constexpr std::pair<const char*, runtime::Swizzle> table[] = {{"none", runtime::Swizzle::none},
                                                                {"32B", runtime::Swizzle::b32},
                                                                {"64B", runtime::Swizzle::b64},
                                                                {"128B", runtime::Swizzle::b128}};
  for (const auto& [key, swizzle] : table)
    if (word == key) return swizzle;
  node.fail(cat("unknown swizzle \"", word, "\""), "known: none, 32B, 64B, 128B");
}

void parse_tensor_map(const Node& outer, const Node& node, ParamSpec& p, Spec& spec) {
  p.kind = ParamSpec::Kind::tensor_map;
  const Node& base = node.has("buf") || !outer.has("buf") ? node : outer;
  std::optional<Node> offset;
  if (base.has("offset")) offset = base.at("offset");
  p.addresses.push_back(parse_address(base.any_of({"buf", "base", "buffer"}), offset, 0, spec));
  p.map.type = node.has("dtype") ? parse_tensor_type(node.at("dtype"))
                                 : runtime::tensor_type(spec.buffers[p.addresses[0].buffer].dtype);
  p.map.dims = numbers<std::uint64_t>(node.at("dims"));
  if (node.has("strides")) p.map.strides = numbers<std::uint64_t>(node.at("strides"));
  p.map.box = numbers<std::uint32_t>(node.at("box"));
  if (node.has("elem_strides")) p.map.element_strides = numbers<std::uint32_t>(node.at("elem_strides"));
  if (node.has("swizzle")) p.map.swizzle = parse_swizzle(node.at("swizzle"));
  if (node.has("interleave") && node.at("interleave").is_string() && node.at("interleave").string() != "none")
    node.at("interleave").fail("interleave must be none");
  if (std::string why = runtime::reject(p.map); !why.empty()) node.fail("must be a legal tensor map", why);
  note_unknown(node,
               {"buf", "base", "buffer", "offset", "dtype", "dims", "strides", "box", "elem_strides",
                "swizzle", "interleave", "fill", "oob_fill", "l2_promotion", "name", "rank"},
               spec);
}

LaunchSpec parse_launch(const Node& node, Spec& spec) {
  LaunchSpec l;
  l.entry = node.at("entry").string();
  l.grid = parse_shape(node.at("grid"));
  l.block = parse_shape(node.at("block"));
  if (node.has("cluster")) l.cluster = parse_shape(node.at("cluster"));
  if (node.has("dynamic_smem")) l.dynamic_smem = node.at("dynamic_smem").u32();
  if (node.has("cooperative")) l.cooperative = node.at("cooperative").boolean();
  for (const Node& param : node.at("params").items()) l.params.push_back(parse_param(param, spec));
  note_unknown(node, {"entry", "grid", "block", "cluster", "dynamic_smem", "params", "cooperative"}, spec);
  return l;
}

/// "global_ld_sectors" -> "global_load_sectors".
std::string counter_name(std::string s) {
  constexpr std::pair<const char*, const char*> words[] = {{"_ld_", "_load_"},
                                                           {"_st_", "_store_"},
                                                           {"_loads_", "_load_"},
                                                           {"_stores_", "_store_"},
                                                           {"_atom_", "_atomic_"}};
  for (const auto& [from, to] : words)
    if (auto at = s.find(from); at != std::string::npos) s.replace(at, std::string(from).size(), to);
  return s;
}

void parse_counters(const Node& node, Spec& spec) {
  const std::vector<Node> items = node.is_array() ? node.items() : std::vector<Node>{node};
  for (std::size_t i = 0; i < items.size(); ++i) {
    CounterSpec c;
    c.launch = items[i].has("launch") ? items[i].at("launch").u64() : i;
    if (c.launch >= spec.launches.size())
      items[i].fail("counters must belong to a launch",
                    cat("launch ", c.launch, " of ", spec.launches.size()));
    const Node* values = &items[i];
    std::optional<Node> nested;
    for (const char* key : {"values", "counters", "expected"})
      if (items[i].has(key) && items[i].at(key).is_object()) nested = items[i].at(key), values = &*nested;
    for (const auto& key : values->keys())
      if (values->has(key) && values->at(key).is_integer() && key != "launch")
        c.values[counter_name(key)] = values->at(key).u64();
    spec.counters.push_back(std::move(c));
  }
}

Expectation parse_expect(const Node& node, Spec& spec) {
  Expectation e;
  e.cls = node.at("class").string();
  const auto words = [&](const char* key, std::vector<std::string>& out) {
    if (!node.has(key)) return;
    if (node.at(key).is_string())
      out.push_back(node.at(key).string());
    else
      for (const Node& item : node.at(key).items()) out.push_back(item.string());
  };
  words("also", e.also);
  words("ops", e.ops);
  if (node.has("buffer")) e.buffer = node.at("buffer").string();
  if (node.has("byte_offset")) e.byte_offset = node.at("byte_offset").s64();
  if (node.has("thread")) {
    e.thread = parse_dim3(node.at("thread"));
    if (node.at("thread").size() < 3) e.thread->z = 0;
    if (node.at("thread").size() < 2) e.thread->y = 0;
  }
  if (node.has("block")) {
    e.block = parse_dim3(node.at("block"));
    if (node.at("block").size() < 3) e.block->z = 0;
    if (node.at("block").size() < 2) e.block->y = 0;
  }
  if (node.has("note")) e.note = node.at("note").is_string() ? node.at("note").string() : "";
  note_unknown(node, {"class", "also", "ops", "buffer", "byte_offset", "thread", "block", "note"}, spec);
  return e;
}

}  // namespace

std::string_view name(Role r) {
  constexpr std::string_view names[] = {"in", "out", "inout", "scratch"};
  return names[int(r)];
}

bool Expectation::accepts(const std::string& found) const {
  return found == cls || std::find(also.begin(), also.end(), found) != also.end();
}

std::optional<std::size_t> Spec::find_buffer(const std::string& wanted) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == wanted) return i;
  return std::nullopt;
}

ParamSpec parse_param(const Node& node, Spec& spec) {
  ParamSpec p;
  if (node.has("name")) p.name = node.at("name").string();
  if (node.has("struct")) {
    parse_struct(node.at("struct"), p, spec);
  } else if (node.has("tensormap") || node.has("tensor_map")) {
    parse_tensor_map(node, node.any_of({"tensormap", "tensor_map"}), p, spec);
  } else if (node.has("buf")) {
    p.kind = ParamSpec::Kind::address;
    std::optional<Node> offset;
    if (node.has("offset")) offset = node.at("offset");
    p.addresses.push_back(parse_address(node.at("buf"), offset, 0, spec));
  } else if (node.is_object() && (node.has("type") || node.has("value"))) {
    p.kind = ParamSpec::Kind::scalar;
    p.dtype = scalar_type(node.at("type"));
    if (node.at("value").is_array()) node.at("value").fail("a scalar parameter must have one value");
    append_value(node.at("value"), p.dtype, p.bytes);
  } else {
    node.fail("a parameter must be a buffer, a scalar, a struct or a tensor map",
              cat("it has the fields: ", text::join(node.keys(), ", ")),
              "write {\"buf\": NAME, \"offset\": BYTES}, {\"type\", \"value\"}, {\"struct\": ...} or "
              "{\"tensormap\": ...}");
  }
  note_unknown(node, {"name", "buf", "offset", "type", "value", "struct", "tensormap", "tensor_map"}, spec);
  return p;
}

Spec parse_spec(const std::string& text, const std::string& path, const std::string& ptx_path) {
  const Document document(text, path);
  const Node root = document.root();
  if (!root.is_object()) root.fail("a launch spec must be an object");
  Spec spec;
  spec.path = path;
  namespace fs = std::filesystem;
  spec.folder = fs::path(path).parent_path().string();
  spec.ptx_path = ptx_path.empty() ? fs::path(path).replace_extension(".ptx").string() : ptx_path;
  if (root.has("target")) spec.target = root.at("target").string();
  if (root.has("symbols"))
    for (const Node& n : root.at("symbols").items()) spec.symbols.push_back(parse_symbol(n, spec));
  if (root.has("buffers"))
    for (const Node& n : root.at("buffers").items()) {
      BufferSpec buffer = parse_buffer(n, spec);
      spec.buffers.push_back(std::move(buffer));
    }
  const Node launches = root.at("launches");
  for (const Node& n : launches.items()) spec.launches.push_back(parse_launch(n, spec));
  if (spec.launches.empty()) launches.fail("a launch spec must launch something", "launches is empty");
  if (root.has("counters")) parse_counters(root.at("counters"), spec);
  if (root.has("opcodes"))
    for (const auto& key : root.at("opcodes").keys())
      if (root.at("opcodes").at(key).is_integer()) spec.opcodes[key] = root.at("opcodes").at(key).u64();
  if (root.has("expect")) spec.expect = parse_expect(root.at("expect"), spec);
  note_unknown(root,
               {"target", "nvcc_flags", "symbols", "buffers", "launches", "counters", "ptxas_registers",
                "opcodes", "expect", "hw_verified", "name", "description", "note", "schema", "version"},
               spec);
  return spec;
}

Spec load_spec(const std::string& path, const std::string& ptx_path) {
  return parse_spec(read_file(path), path, ptx_path);
}

}  // namespace cgp::spec
