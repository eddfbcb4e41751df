// SPDX-License-Identifier: Apache-2.0
// attention on the host: checks, selection and launches.
#include "cgp/kernels/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/attention/attention_params.h"
#include "cgp/kernels/attention/attention_sm90_tiles.h"
#include "cgp/kernels/decode/decode.h"

namespace cgp::kernels {
namespace {

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

AttentionStrides dense_strides(const AttentionStrides& s, std::uint64_t heads, std::uint64_t rows,
                               std::uint64_t d) {
  if (s.batch || s.head || s.row) return s;
  return {heads * rows * d, rows * d, d};
}

// Of packed sequences offsets take the place of the batch's stride; what lies alone has none.
AttentionStrides map_strides(const AttentionProblem& p, const AttentionStrides& s) {
  return {p.packed ? 0 : s.batch, s.head, s.row};
}

}  // namespace

std::string_view name(AttentionMask m) {
  constexpr std::string_view names[] = {"none", "additive", "boolean"};
  return names[int(m)];
}
std::string_view name(AttentionKind k) {
  constexpr std::string_view names[] = {"simt", "mma", "sm90"};
  return names[int(k)];
}

AttentionProblem AttentionProblem::dense() const {
  AttentionProblem p = *this;
  if (!p.heads_kv) p.heads_kv = p.heads_q;
  if (!p.d_v) p.d_v = p.d_qk;
  if (p.scale < 0) p.scale = float(1 / std::sqrt(double(p.d_qk)));
  p.q = dense_strides(q, p.heads_q, p.n_q, p.d_qk);
  p.k = dense_strides(k, p.heads_kv, p.n_kv, p.d_qk);
  p.v = dense_strides(v, p.heads_kv, p.n_kv, p.d_v);
  p.o = dense_strides(o, p.heads_q, p.n_q, p.d_v);
  return p;
}

double AttentionProblem::flops() const {
  const auto p = dense();
  const double q = double(p.n_q), kv = double(p.n_kv);
  double pairs = q * kv;
  if (p.causal) pairs = kv >= q ? q * (kv - q) + q * (q + 1) / 2 : kv * (kv + 1) / 2;
  if (p.window_left >= 0) pairs = std::min(pairs, q * (double(p.window_left) + 1 + (p.causal ? 0 : kv)));
  return 2.0 * double(p.batch) * double(p.heads_q) * pairs * double(p.d_qk + p.d_v);
}

std::string reject(const AttentionProblem& q) {
  const auto p = q.dense();
  if (p.type == DType::e4m3) return "type = e4m3: only the forward pass takes it";
  if (p.promoted)
    return text::cat("promoted: sums of ", name(p.type), " have no need of it, those of e4m3 do");
  if (p.type != DType::f32 && p.type != DType::f16 && p.type != DType::bf16)
    return text::cat("type = ", name(p.type), ": attention takes f32, f16, bf16 and (forward) e4m3");
  for (auto [what, d] : {std::pair{"d_qk", p.d_qk}, {"d_v", p.d_v}})
    if (d < 1 || d > 256) return text::cat(what, " = ", d, ": head dimensions are 1 to 256");
  if (p.heads_kv == 0 || p.heads_q % p.heads_kv != 0)
    return text::cat("heads_q = ", p.heads_q, " must be a multiple of heads_kv = ", p.heads_kv);
  for (auto [what, window] : {std::pair{"window_left", p.window_left}, {"window_right", p.window_right}})
    if (window < -1)
      return text::cat(what, " = ", window, " is neither a number of keys nor -1 for no limit");
  if (std::isnan(p.scale) || std::isinf(p.scale)) return text::cat("scale = ", p.scale, " is not a number");
  if (std::isnan(p.soft_cap) || p.soft_cap < 0 || std::isinf(p.soft_cap))
    return text::cat("soft_cap = ", p.soft_cap, " must be positive, or 0 for none");
  if (p.packed && p.key_lengths) return "packed sequences have their own lengths: key_lengths must be false";
  if (p.packed && p.mask != AttentionMask::none) return "a mask has no meaning for packed sequences";
  for (auto [what, n] :
       {std::pair{"batch", p.batch}, {"heads_q", p.heads_q}, {"n_q", p.n_q}, {"n_kv", p.n_kv}})
    if (n > 0x7fffffffu) return text::cat(what, " = ", n, " is above 2^31 - 1");
  if (p.batch && p.heads_q && p.n_q > 0xffffffffull / p.batch / p.heads_q)
    return text::cat("batch * heads_q * n_q = ", p.batch, " * ", p.heads_q, " * ", p.n_q,
                     " rows are above 2^32 - 1");
  return {};
}

std::string reject_forward(const AttentionProblem& p) {
  if (p.type != DType::e4m3) return reject(p);
  if (p.out != DType::bf16 && p.out != DType::f16)
    return text::cat("out = ", name(p.out), ": of e4m3 operands attention makes bf16 or f16");
  auto rest = p;
  rest.type = p.out, rest.promoted = false;
  return reject(rest);
}

AttentionFeatures AttentionFeatures::of(const AttentionProblem& p, bool lse) {
  AttentionFeatures f;
  f.window_left = p.window_left >= 0;
  f.window_right = p.causal || p.window_right >= 0;
  f.soft_cap = p.soft_cap != 0, f.alibi = p.alibi, f.packed = p.packed, f.key_lengths = p.key_lengths;
  f.lse = lse, f.mask = p.mask;
  if (p.modify.apply) f.modify = p.modify;
  return f;
}
// ---------------------------------------------------------------- selection
namespace {

bool aligned(const AttentionProblem& p, const AttentionAddresses& at, std::string* why) {
  const auto in_row = [](DType t) { return 16 / std::uint64_t(bytes(t)); };
  const auto check = [&](const char* what, std::uint64_t address, const AttentionStrides& s, DType t) {
    const auto each = in_row(t);
    if (address % 16) return *why = text::cat(what, " does not begin at a multiple of 16 bytes"), false;
    const bool rows =
        s.row % each == 0 && s.head % each == 0 && (p.packed || p.batch == 1 || s.batch % each == 0);
    if (!rows) return *why = text::cat("rows of ", what, " do not lie at multiples of 16 bytes"), false;
    return true;
  };
  for (auto [what, d] : {std::pair{"d_qk", p.d_qk}, {"d_v", p.d_v}})
    if (d % in_row(p.type))
      return *why = text::cat(what, " = ", d, " is no multiple of ", in_row(p.type)), false;
  return check("q", at.q, p.q, p.type) && check("k", at.k, p.k, p.type) && check("v", at.v, p.v, p.type) &&
         check("o", at.o, p.o, p.o_type());
}

// Why sequences of their own lengths have no tensor maps.
std::string own_rows(const AttentionProblem& p, const AttentionAddresses& at) {
  constexpr std::uint64_t most = 0x7fffffff;
  const auto total_kv = at.total_kv ? at.total_kv : p.batch * p.n_kv;
  const auto far = [&](const AttentionStrides& s, std::uint64_t heads, std::uint64_t total, std::uint64_t n) {
    const auto used = map_strides(p, s);
    const auto rows = p.packed ? total : n;
    return (used.batch * p.batch + used.head * heads + used.row * rows) >> unit_of_map(used) > most;
  };
  for (auto [what, s, queries] :
       {std::tuple{"q", p.q, true}, {"k", p.k, false}, {"v", p.v, false}, {"o", p.o, true}})
    if (own_lengths(p.packed, p.key_lengths, queries) &&
        far(s, queries ? p.heads_q : p.heads_kv, queries ? packed_rows(p, at) : total_kv,
            queries ? p.n_q : p.n_kv))
      return text::cat("sequences of ", what, " lie further apart than a tensor map reaches");
  return {};
}

}  // namespace

std::string reject(AttentionKind kind, const AttentionProblem& q, const AttentionAddresses& at,
                   const runtime::DeviceInfo& d) {
  const auto p = q.dense();
  std::string why;
  const auto lead = text::cat("attention ", name(kind), ": ");
  if (p.type == DType::e4m3 && kind != AttentionKind::sm90)
    return text::cat(lead, "of e4m3 operands only the sm90 kernel makes products, on sm_90a");
  if (kind == AttentionKind::simt) return {};
  if (p.type == DType::f32) return text::cat(lead, "tensor cores take f16 and bf16, not f32");
  if (!aligned(p, at, &why)) return text::cat(lead, why);
  if (p.n_kv == 0) return text::cat(lead, "n_kv = 0");
  if (kind == AttentionKind::mma) {
    if (d.cc() < 80) return text::cat(lead, "needs sm_80 or later, this is ", d.arch);
    for (auto [row, n] : {std::pair{p.q.row, p.n_q}, {p.k.row, p.n_kv}, {p.v.row, p.n_kv}})
      if (n && row > 0xffffffffull / n)
        return text::cat(lead, n, " rows ", row, " elements apart are above 2^32 - 1 elements");
    return {};
  }
  if (d.arch != "sm_90a") return text::cat(lead, "needs sm_90a, this is ", d.arch);
  if (p.promoted && (p.d_qk > 128 || p.d_v > 128))
    return text::cat(lead, "promoted sums of head dimensions above 128 (", p.d_qk, " and ", p.d_v,
                     ") do not fit into registers");
  if (auto rows = own_rows(p, at); !rows.empty()) return text::cat(lead, rows);
  return {};
}

AttentionChoice choose_sm90(const AttentionProblem& q, const AttentionSm90Tuning& tuning, int columns,
                            bool lse) {
  const auto p = q.dense();
  const auto& t = sm90_tile(p);
  // What TMA fills with zeros is not multiplied, in whole instructions.
  AttentionChoice c;
  auto& of = c.config;
  of.kind = AttentionKind::sm90, of.type = p.type, of.d_qk = t.d_qk, of.d_v = t.d_v, of.tune = tuning;
  of.f16_output = p.type == DType::e4m3 && p.out == DType::f16;
  auto& tune = of.tune;
  const auto used = [](std::uint64_t d, int tile, std::uint64_t each) {
    const int columns = int((d + each - 1) / each * each);
    return columns < tile ? columns : 0;
  };
  tune.used_d_qk = used(p.d_qk, t.d_qk, p.type == DType::e4m3 ? 32 : 16);
  tune.used_d_v = tune.promoted ? 0 : used(p.d_v, t.d_v, 16);
  of.features = AttentionFeatures::of(p, lse);
  of.columns = columns ? columns : of.features.modifies_scores() ? t.modified_columns : t.columns;
  c.variant = attention_variant(of);
  return c;
}

static int mma_width(const AttentionProblem& p) {
  for (int d : {32, 64, 128, 192})
    if (std::max(p.d_qk, p.d_v) <= std::uint64_t(d)) return d;
  return 256;
}
AttentionChoice choose_attention(AttentionKind kind, const AttentionProblem& q, bool lse) {
  const auto p = q.dense();
  AttentionChoice c;
  c.why = "asked for";
  c.config.kind = kind, c.config.type = p.type, c.config.features = AttentionFeatures::of(p, lse);
  if (kind == AttentionKind::mma) c.config.d_qk = c.config.d_v = mma_width(p);
  c.variant = attention_variant(c.config);
  return c;
}

Variant attention_variant(const AttentionConfig& c) {
  if (c.kind == AttentionKind::sm90) return attention_sm90(c);
  return c.kind == AttentionKind::mma ? attention_mma(c) : attention_simt(c);
}

std::vector<AttentionConfig> attention_configs() {
  std::vector<AttentionConfig> all;
  AttentionFeatures plain, causal, every;
  causal.window_right = causal.lse = true;
  every.window_left = every.window_right = every.soft_cap = every.alibi = every.lse = true;
  every.mask = AttentionMask::additive;
  const auto add_mma = [&](DType t, int d, const AttentionFeatures& f) {
    all.push_back({.kind = AttentionKind::mma, .type = t, .d_qk = d, .d_v = d, .features = f});
  };
  const auto add_sm90 = [&](DType t, int d_qk, int d_v, int columns, const AttentionSm90Tuning& tune,
                            const AttentionFeatures& f, bool f16_output = false) {
    all.push_back({AttentionKind::sm90, t, f16_output, d_qk, d_v, columns, tune, f});
  };
  for (DType t : {DType::f32, DType::f16, DType::bf16})
    for (const auto& f : {plain, every})
      all.push_back({.kind = AttentionKind::simt, .type = t, .features = f});
  for (int d : {32, 64, 128, 192, 256}) add_mma(DType::bf16, d, causal);
  add_mma(DType::f16, 64, every);
  bool promoted = false;
  const auto add = [&](DType t, const Sm90Tile& tile, const AttentionFeatures& f) {
    AttentionSm90Tuning tune;
    tune.warpgroups = tile.warpgroups, tune.promoted = promoted;
    const bool fp8 = t == DType::e4m3;
    if (fp8) tune.q_tiles = 2, tune.pingpong = tile.d_qk == 128 ? Pingpong::at_scores : Pingpong::none;
    add_sm90(t, tile.d_qk, tile.d_v, f.modifies_scores() ? tile.modified_columns : tile.columns, tune, f,
             fp8);
  };
  for (const auto& tile : kSm90Tiles)
    for (const auto& f : {plain, causal}) add(DType::bf16, tile, f);
  add(DType::f16, kSm90Tiles[1], causal);
  add(DType::f16, kSm90Tiles[0], every);
  add(DType::bf16, kSm90Tiles[3], every);
  for (const auto& tile : kFp8Tiles) add(DType::e4m3, tile, causal);
  AttentionSm90Tuning part;  // heads of 96 columns in tiles of 128
  part.used_d_qk = part.used_d_v = 96;
  add_sm90(DType::bf16, 128, 128, 128, part, causal);
  AttentionSm90Tuning narrow;  // e4m3 of 64 columns: short sequences with bounds, and all without
  narrow.q_tiles = 2, narrow.pingpong = Pingpong::at_scores;
  add_sm90(DType::e4m3, 64, 64, 128, narrow, causal);
  narrow.warpgroups = narrow.stages = 3, narrow.pingpong = Pingpong::none;
  add_sm90(DType::e4m3, 64, 64, 128, narrow, plain);
  narrow.stages = 2;
  add_sm90(DType::e4m3, 128, 128, 96, narrow, causal);
  add(DType::e4m3, kFp8Tiles[0], every);
  for (const auto& tile : kSm90Tiles)
    for (bool split : {false, true}) {
      AttentionSm90Tuning shared;
      shared.warpgroups = tile.warpgroups, shared.dynamic = !split, shared.persistent = !split;
      shared.split = split;
      add_sm90(DType::bf16, tile.d_qk, tile.d_v, tile.columns, shared, split ? plain : causal);
    }
  AttentionFeatures packed = causal, lengths = causal;
  packed.packed = lengths.key_lengths = true;
  add(DType::bf16, kSm90Tiles[1], packed), add(DType::bf16, kSm90Tiles[3], lengths);
  add(DType::e4m3, kFp8Tiles[0], packed);
  promoted = true;
  add(DType::e4m3, kPromotedTiles[0], every), add(DType::e4m3, kPromotedTiles[1], causal);
  return all;
}
std::vector<Variant> attention_variants() {
  std::vector<Variant> all;
  for (const auto& c : attention_configs()) all.push_back(attention_variant(c));
  for (DType t : {DType::f16, DType::bf16}) all.push_back(attention_combine({t, true}));
  return all;
}

// ---------------------------------------------------------------- launches
AttentionArguments attention_arguments(const AttentionProblem& p, const AttentionAddresses& at) {
  AttentionArguments n{};
  n.q = at.q, n.k = at.k, n.v = at.v, n.o = at.o, n.lse = at.lse, n.slopes = at.slopes, n.mask = at.mask;
  n.cu_seqlens_q = at.cu_seqlens_q, n.cu_seqlens_kv = at.cu_seqlens_kv, n.lengths = at.lengths,
  n.data = at.data;
  const auto batch = [&](std::uint64_t s) { return p.packed ? 0 : s; };
  n.q_batch = batch(p.q.batch), n.q_head = p.q.head, n.q_row = p.q.row;
  n.k_batch = batch(p.k.batch), n.k_head = p.k.head, n.k_row = p.k.row;
  n.v_batch = batch(p.v.batch), n.v_head = p.v.head, n.v_row = p.v.row;
  n.o_batch = batch(p.o.batch), n.o_head = p.o.head, n.o_row = p.o.row;
  n.q_scale = at.q_scale, n.q_scale_batch = p.q_scale.batch, n.q_scale_head = p.q_scale.head;
  n.k_scale = at.k_scale, n.k_scale_batch = p.k_scale.batch, n.k_scale_head = p.k_scale.head;
  n.v_scale = at.v_scale, n.v_scale_batch = p.v_scale.batch, n.v_scale_head = p.v_scale.head;
  n.mask_batch = p.mask_batch, n.mask_head = p.mask_head, n.mask_row = p.mask_row, n.mask_col = p.mask_col;
  n.lse_batch = p.packed ? 0 : p.heads_q * p.n_q, n.lse_head = p.packed ? at.total_q : p.n_q;
  const auto u32 = [](std::uint64_t v) { return std::uint32_t(v); };
  n.batch = u32(p.batch), n.heads_q = u32(p.heads_q), n.group = u32(p.heads_q / p.heads_kv);
  n.n_q = u32(p.n_q), n.n_kv = u32(p.n_kv), n.d_qk = u32(p.d_qk), n.d_v = u32(p.d_v);
  // No bound reaches further than all rows and keys; sums of two stay below 2^31.
  const std::int64_t far = std::min<std::int64_t>(std::int64_t(p.n_q + p.n_kv), 0x3fffffff);
  const auto bound = [&](std::int64_t v) { return std::int32_t(v < 0 ? far : std::min(v, far)); };
  n.window_left = bound(p.window_left);
  n.window_right = p.causal ? 0 : bound(p.window_right);
  constexpr float log2e = 1.4426950408889634f;
  n.scale = p.scale, n.scale_log2 = p.scale * log2e;
  n.soft_cap = p.soft_cap, n.inverse_cap = p.soft_cap != 0 ? 1 / p.soft_cap : 0;
  n.negative = -1;
  n.pairs = u32(p.batch * p.heads_q);
  const auto unit = [&](const AttentionStrides& s) {
    return u32(std::uint64_t(unit_of_map(map_strides(p, s))));
  };
  n.q_unit = unit(p.q), n.k_unit = unit(p.k), n.v_unit = unit(p.v), n.o_unit = unit(p.o);
  return n;
}

AttentionRows rows_for_map(const AttentionProblem& p, std::uint64_t address, const AttentionStrides& s,
                           std::uint64_t d, bool queries) {
  const bool own = own_lengths(p.packed, p.key_lengths, queries);
  return {address,
          own ? map_strides(p, s) : s,
          d,
          queries ? p.n_q : p.n_kv,
          queries ? p.heads_q : p.heads_kv,
          p.batch,
          own};
}
runtime::TensorMap attention_map(const runtime::Device& device, const runtime::LoadedKernel& fn,
                                 std::size_t param, const AttentionRows& of, DType type) {
  auto spec = tensor_map_spec(fn.image(), param);
  const auto element = std::uint64_t(bytes(type));
  // The stride of a dimension of one element is never used, but must be legal.
  const auto stride = [&](std::uint64_t n, std::uint64_t elements) {
    return n > 1 ? elements * element : std::uint64_t(16) * ceil_div(of.d * element, 16);
  };
  spec.l2 = runtime::L2Promotion::b256;
  if (!of.own_lengths) {
    spec.dims = {of.d, of.rows, of.heads, of.batch};
    spec.strides = {stride(of.rows, of.strides.row), stride(of.heads, of.strides.head),
                    stride(of.batch, of.strides.batch)};
  } else {  // 2^30 rows and 2^30 wraps are 2^64 bytes
    const auto row = of.strides.row * element;
    spec.dims = {of.d, kRowsOfMap, 1ull << 31, 1ull << 31};
    spec.strides = {row, element << unit_of_map(of.strides), (1ull << 34) - row};
  }
  return device.tensor_map(spec, of.address);
}

namespace {

// Heads visited together keep their keys and values in L2: as many as 34 MB hold. Without bounds all tiles are
// equally long, and one head after the other does.
std::uint32_t head_swizzle(const AttentionProblem& p, const AttentionChoice& c) {
  const std::uint64_t pairs = (p.packed ? 1 : p.batch) * p.heads_q, group = p.heads_q / p.heads_kv;
  if (c.config.tune.head_swizzle)
    return std::uint32_t(std::min<std::uint64_t>(pairs, std::uint64_t(c.config.tune.head_swizzle)));
  if (!p.packed && !p.causal && p.window_left < 0 && p.window_right < 0) return 1;
  const std::uint64_t head_bytes =
      std::max<std::uint64_t>(1, p.n_kv * (p.d_qk + p.d_v) * std::uint64_t(bytes(p.type)));
  return std::uint32_t(even_groups(pairs / group, (34u << 20) / head_bytes) * group);
}

void launch_sm90(runtime::Stream& s, const runtime::LoadedKernel& fn, const AttentionChoice& c,
                 const AttentionProblem& p, const AttentionAddresses& at) {
  auto n = attention_arguments(p, at);
  const auto rows = std::uint64_t(c.config.rows());
  const std::uint64_t tiles_m =
      p.packed ? packed_tiles(packed_rows(p, at), p.batch, rows) : ceil_div(p.n_q, rows);
  if (p.packed) n.pairs = std::uint32_t(p.heads_q);
  const auto& tune = c.config.tune;
  const std::uint64_t splits = tune.split ? std::uint64_t(tune.splits) : 1,
                      tiles = tiles_m * n.pairs * splits;
  n.tiles_m = std::uint32_t(tiles_m), n.tiles = std::uint32_t(tiles);
  n.head_swizzle = head_swizzle(p, c);
  const auto map = [&](std::size_t param, std::uint64_t address, const AttentionStrides& strides,
                       std::uint64_t d, bool queries) {
    return attention_map(s.device(), fn, param, rows_for_map(p, address, strides, d, queries), p.type);
  };
  const auto q = map(0, at.q, p.q, p.d_qk, true), k = map(1, at.k, p.k, p.d_qk, false),
             v = map(2, at.v, p.v, p.d_v, false);
  if (tune.dynamic) {
    n.tickets = s.scratch(256);
    s.fill(runtime::Region{s.device().backend().get(), n.tickets, sizeof(std::uint32_t)}, 0);
  }
  const std::uint64_t rows_of_slices = p.batch * p.heads_q * p.n_q * splits;
  if (tune.split) {
    n.partial_o = s.scratch(rows_of_slices * (p.d_v + 1) * sizeof(float)), n.splits = std::uint32_t(splits);
    n.partial_lse = n.partial_o + rows_of_slices * p.d_v * sizeof(float);
  }
  const auto sms = std::uint64_t(std::max(1, s.device().info().sm_count));
  const runtime::Dim3 grid{std::uint32_t(tune.persistent ? std::min(tiles, sms) : tiles), 1, 1};
  fn(s, grid, q, k, v, n);
  if (tune.split)
    load(s.device(), attention_combine({p.type, at.lse != 0}))(
        s, runtime::grid_for(p.batch * p.heads_q * p.n_q, 4), n);
}

}  // namespace

void run_attention(runtime::Stream& s, const AttentionChoice& choice, const AttentionProblem& q,
                   const AttentionAddresses& at) {
  const auto p = q.dense();
  if (p.batch == 0 || p.heads_q == 0 || p.n_q == 0) return;
  if (auto why = reject(choice.config.kind, p, at, s.device().info()); !why.empty())
    throw Unsupported(std::move(why));
  const auto fn = load(s.device(), choice.variant);
  if (choice.config.kind == AttentionKind::sm90) return launch_sm90(s, fn, choice, p, at);
  auto n = attention_arguments(p, at);
  if (choice.config.kind == AttentionKind::mma) {
    n.tiles_m = std::uint32_t(ceil_div(p.n_q, std::uint64_t(choice.config.rows())));
    return fn(s, runtime::grid_for(std::uint64_t(n.tiles_m) * n.pairs, 1), n);
  }
  const std::uint64_t rows = p.batch * p.heads_q * p.n_q;
  n.tiles = std::uint32_t(rows);
  fn(s, runtime::grid_for(rows, 4), n);
}

void attention(runtime::Stream& s, const AttentionProblem& q, const AttentionAddresses& at) {
  if (auto why = reject_forward(q); !why.empty()) throw ArgumentError(text::cat("attention: ", why));
  const auto missing = [&](bool used, std::uint64_t address, const char* what) {
    if (used && !address)
      throw ArgumentError(text::cat("attention: the problem uses ", what, ", whose address is 0"));
  };
  const bool any = q.batch && q.heads_q && q.n_q;
  missing(any, at.q, "q"), missing(any && q.n_kv, at.k, "k"), missing(any && q.n_kv, at.v, "v");
  missing(any, at.o, "o"), missing(q.alibi, at.slopes, "slopes");
  missing(q.mask != AttentionMask::none, at.mask, "a mask"),
      missing(q.packed, at.cu_seqlens_q, "cu_seqlens_q");
  missing(q.packed, at.cu_seqlens_kv, "cu_seqlens_kv"), missing(q.key_lengths, at.lengths, "key_lengths");
  const auto& info = s.device().info();
  if (const auto p = q.dense(); any && suits_split_kv(p) && reject_split_kv(p, at, info).empty())
    return attention_split_kv(s, p, at);
  run_attention(s, select_attention(q, at, info), q, at);
}

}  // namespace cgp::kernels
