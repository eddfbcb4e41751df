// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/matrix_plan.h"

#include "cgp/base/float16.h"
#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/tensor/block_scale.h"
#include "cgp/emu/tensor/fragments.h"
#include "cgp/emu/tensor/sparse.h"

namespace cgp::emu {
using ptx::Mod;
using text::cat;

Shape matrix_shape(Decoder& d, const ptx::Inst& i) {
  for (Mod mod : i.mods) {
    const std::string_view s = ptx::name(mod);
    if (s.size() < 6 || s[0] != 'm' || s.find('k') == s.npos) continue;
    Shape shape;
    int* part = nullptr;
    bool good = true;
    for (char ch : s) {
      if (ch == 'm')
        part = &shape.m;
      else if (ch == 'n')
        part = &shape.n;
      else if (ch == 'k')
        part = &shape.k;
      else if (ch >= '0' && ch <= '9' && part)
        *part = *part * 10 + (ch - '0');
      else
        good = false;
    }
    if (good && shape.m && shape.n && shape.k) return shape;
  }
  d.unsupported("no matrix shape among its modifiers");
}

Round matrix_rounding(const ptx::Inst& i) {
  return i.has(Mod::rz) ? Round::rz : i.has(Mod::rm) ? Round::rm : i.has(Mod::rp) ? Round::rp : Round::rn;
}

Generation generation_of(const Warp& w) {
  return generation_of(std::string_view(w.worker->launch->properties->arch));
}

MatrixPrecision precision_of(const Warp& w) {
  return w.worker->launch->options.fast_matrix ? MatrixPrecision::f32 : MatrixPrecision::exact;
}

MatrixOperands& matrix_scratch() {
  static thread_local MatrixOperands m;
  return m;
}

bool need_full_warp(Warp& w, const Op& op) {
  if (w.active == ~Mask(0)) return true;
  w.report(
      Check::barrier, "barrier.divergence", op, w.active,
      cat("this instruction needs all 32 lanes of the warp; ", std::popcount(w.active),
          " execute it, the others have exited or never existed"),
      "make the block a multiple of 32 threads and keep all lanes alive until the last matrix instruction");
  return true;
}

namespace {

MatrixKind kind_of(Decoder& d, Mod a, Mod b, Mod c) {
  const auto in = [](Mod m, std::initializer_list<Mod> set) {
    for (Mod x : set)
      if (x == m) return true;
    return false;
  };
  if (in(a, {Mod::f16, Mod::bf16, Mod::tf32}) && a == b) return MatrixKind::floating;
  const auto small = {Mod::e4m3, Mod::e5m2, Mod::e3m2, Mod::e2m3, Mod::e2m1};
  if (in(a, small) && in(b, small)) return MatrixKind::floating;
  if (c == Mod::s32 && ((in(a, {Mod::s8, Mod::u8}) && in(b, {Mod::s8, Mod::u8})) ||
                        (in(a, {Mod::s4, Mod::u4}) && in(b, {Mod::s4, Mod::u4}))))
    return MatrixKind::integer;
  if (a == Mod::b1 && b == Mod::b1 && c == Mod::s32) return MatrixKind::bits;
  if (a == Mod::f64 && b == Mod::f64) return MatrixKind::f64;
  d.unsupported(
      cat("matrix operands .", ptx::name(a), " and .", ptx::name(b), " with accumulators .", ptx::name(c)));
}

}  // namespace

void plan_matrix(Decoder& d, MatrixPlan& p, Mod type_d, Mod type_a, Mod type_b, Mod type_c) {
  if (!ptx::type_bits(type_a) || !ptx::type_bits(type_b)) d.unsupported("no type of A or B");
  p.kind = kind_of(d, type_a, type_b, type_c);
  p.a_type = type_a;
  p.b_type = type_b;
  p.f16_c = type_c == Mod::f16;
  p.f16_d = type_d == Mod::f16;
  const int bits = p.element_bits();
  const bool packed_bits = p.kind == MatrixKind::bits;
  const int per = packed_bits ? 1 : elements_per_register(bits);
  const int width = packed_bits ? 32 : 1;  // matrix elements in one array cell
  p.a_elements = p.b_elements = per;
  p.k_cells = p.shape.k / width;
  const int padded = (p.shape.m + 15) / 16 * 16;
  const int a_regs = fragment_registers(p.shape.m * p.shape.k / (p.sparse ? 2 : 1), bits);
  const int b_regs = fragment_registers(p.shape.n * p.shape.k, bits);
  for (int r = 0; r < a_regs; ++r)
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < per; ++i) {
        const Place at = a_place(p.shape.m, bits, lane, r, i);
        p.a_at.push_back(std::uint16_t(at.column / width * padded + at.row));
      }
  for (int r = 0; r < b_regs; ++r)
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < per; ++i) {
        const Place at = b_place(p.shape.k, bits, lane, r, i);
        p.b_at.push_back(std::uint16_t(at.row * p.k_cells + at.column / width));
      }
  for (int v = 0; v < p.shape.m * p.shape.n / kLanes; ++v)
    for (int lane = 0; lane < kLanes; ++lane) {
      const Place at = d_place(p.shape.m, lane, v);
      p.d_at.push_back(std::uint16_t(at.column * padded + at.row));
    }
  if (p.kind == MatrixKind::floating)
    for (int g = p.in_bytes ? int(Generation::blackwell) : 0; g < 5 && !p.scale_blocks; ++g)
      p.rule[g] = fused_rule(MatrixUnit::mma, type_a, Generation(g), p.f16_d && p.f16_c);
  if (p.sparse)
    for (FusedRule& rule : p.rule)
      rule.step *= 2, rule.widened_run = 4;  // as many products, of twice the elements
}

FragmentSizes fragment_sizes(const MatrixPlan& p) {
  const int accumulators = p.shape.m * p.shape.n / kLanes;
  FragmentSizes s;
  s.a = int(p.a_at.size()) / kLanes / p.a_elements;
  s.b = int(p.b_at.size()) / kLanes / p.b_elements;
  s.c = p.f16_c ? accumulators / 2 : accumulators;
  s.d = p.f16_d ? accumulators / 2 : accumulators;
  return s;
}

namespace {

// Unpacks registers of `per` elements each into array cells.
void gather(const Warp& w, const std::vector<Loc>& regs, int count, int per,
            const std::vector<std::uint16_t>& at, std::uint32_t* out) {
  const std::uint16_t* index = at.data();
  const int bits = 32 / per;
  const std::uint32_t mask = bits == 32 ? ~0u : (1u << bits) - 1;
  for (int r = 0; r < count; ++r) {
    const std::uint32_t* row = w.row<std::uint32_t>(regs[std::size_t(r)]);
    for (int lane = 0; lane < kLanes; ++lane) {
      std::uint32_t u = row[lane];
      for (int i = 0; i < per; ++i, u = bits == 32 ? 0 : u >> bits) out[*index++] = u & mask;
    }
  }
}

void gather_wide(const Warp& w, const std::vector<Loc>& regs, const std::vector<std::uint16_t>& at,
                 std::uint64_t* out) {
  const std::uint16_t* index = at.data();
  for (Loc l : regs) {
    const std::uint64_t* row = w.row<std::uint64_t>(l);
    for (int lane = 0; lane < kLanes; ++lane) out[*index++] = row[lane];
  }
}

template <class T>
void load_accumulators(const Warp& w, const MatrixPlan& p, T* out) {
  const std::uint16_t* index = p.d_at.data();
  for (Loc l : p.c) {
    const T* row = w.row<T>(l);
    for (int lane = 0; lane < kLanes; ++lane) out[*index++] = row[lane];
  }
}

template <class T>
void store_accumulators(const Warp& w, const MatrixPlan& p, const T* from) {
  const std::uint16_t* index = p.d_at.data();
  for (Loc l : p.d) {
    T* row = w.row<T>(l);
    for (int lane = 0; lane < kLanes; ++lane, ++index)
      if (w.active >> lane & 1) row[lane] = from[*index];
  }
}

void load_halves(const Warp& w, const MatrixPlan& p, float* out) {
  const std::uint16_t* index = p.d_at.data();
  for (Loc l : p.c) {
    const std::uint32_t* row = w.row<std::uint32_t>(l);
    for (int h = 0; h < 2; ++h)
      for (int lane = 0; lane < kLanes; ++lane)
        out[*index++] = float(half::from_bits(std::uint16_t(row[lane] >> (16 * h))));
  }
}

void store_halves(const Warp& w, const MatrixPlan& p, const float* from) {
  const std::uint16_t* index = p.d_at.data();
  for (Loc l : p.d) {
    std::uint32_t* row = w.row<std::uint32_t>(l);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!(w.active >> lane & 1)) continue;
      const auto low = half(double(from[index[lane]])).bits,
                 high = half(double(from[index[lane + kLanes]])).bits;
      row[lane] = low | std::uint32_t(high) << 16;
    }
    index += 2 * kLanes;
  }
}

// Spreads the stored half of A (in [k / 2][padded]) over its places; marks them in the result.
const std::uint8_t* spread(const Warp& w, const MatrixPlan& p, int padded, const std::uint32_t* stored,
                           std::uint32_t* out) {
  static thread_local std::vector<std::uint8_t> present;
  const int bits = p.element_bits(), chunk = sparse_chunk(bits), chunks = p.shape.k / chunk;
  present.assign(std::size_t(p.shape.k * padded), 0);
  std::fill_n(out, p.shape.k * padded, 0u);
  const std::uint32_t* metadata = w.row<std::uint32_t>(p.metadata);
  for (int row = 0; row < p.shape.m; ++row)
    for (int s = 0; s < p.shape.k / 2; ++s) {
      const SparsePlace at = sparse_metadata(bits, row, s / (chunk / 2), chunks, p.selector);
      const int k =
          s / (chunk / 2) * chunk + sparse_place(bits, metadata[at.lane] >> at.shift & 15, s % (chunk / 2));
      out[k * padded + row] = stored[s * padded + row];
      present[std::size_t(k * padded + row)] = 1;
    }
  return present.data();
}

// Elements of kind::f8f6f4 to the low bits of their cells.
void from_bytes(Mod type, std::uint32_t* cells, int count) {
  const int bits = type == Mod::e2m1 ? 4 : type == Mod::e3m2 || type == Mod::e2m3 ? 6 : 8;
  for (int i = 0; i < count; ++i) cells[i] = cells[i] >> (bits == 4 ? 2 : 0) & ((1u << bits) - 1);
}

// The scales of a row of A: two lanes of a quad hold rows g and g + 8. Of a column of B: one lane of a quad.
void read_scales(const Warp& w, const MatrixPlan& p, int index, bool of_a, BlockScale* out) {
  const auto id = [&](std::size_t k) { return int(w.row<std::uint32_t>(p.scale_ids[k])[0] & 0xffff); };
  const int byte = id(of_a ? 0 : 2), thread = id(of_a ? 1 : 3);
  const int lane = of_a ? index % 8 * 4 + thread * 2 + index / 8 : index * 4 + thread;
  const std::uint32_t word = w.row<std::uint32_t>(of_a ? p.scale_a : p.scale_b)[lane & 31];
  for (int b = 0; b < p.scale_blocks; ++b)
    out[b] = decode_scale(word >> (8 * ((byte + b) & 3)) & 0xff, p.ue8m0);
}

// Block-scaled kinds, output by output; with a sparse A only what exists meets.
void multiply_scaled(const Warp& w, const MatrixPlan& p, MatrixOperands& m, const std::uint8_t* present) {
  std::array<std::array<BlockScale, 4>, 16> sa;
  for (int row = 0; row < p.shape.m; ++row) read_scales(w, p, row, true, sa[std::size_t(row)].data());
  for (int n = 0; n < p.shape.n; ++n) {
    BlockScale sb[4];
    read_scales(w, p, n, false, sb);
    for (int row = 0; row < p.shape.m; ++row) {
      ScaledElements a, b;
      for (int k = 0; k < p.shape.k; ++k) {
        if (present && !present[k * m.padded_columns() + row]) continue;
        a.add(p.a_type, m.b_bits(k, row));
        b.add(p.b_type, m.a_bits(n, k));
      }
      m.d(n, row) = scaled_sum(a, b, sa[std::size_t(row)].data(), sb, p.scale_blocks, p.four_bit_kind,
                               m.d(n, row), precision_of(w));
    }
  }
}

}  // namespace

void run_matrix(Warp& w, const MatrixPlan& p) {
  MatrixOperands& m = matrix_scratch();
  m.resize(p.shape.n, p.shape.m, p.k_cells);
  if (p.kind == MatrixKind::f64) {
    m.use_wide();
    gather_wide(w, p.a, p.a_at, m.b_data64());
    gather_wide(w, p.b, p.b_at, m.a_data64());
    load_accumulators(w, p, m.d_data64());
    MatrixCore::multiply_f64(m, p.rounding);
    store_accumulators(w, p, m.d_data64());
    return;
  }
  const FragmentSizes size = fragment_sizes(p);
  const std::uint8_t* present = nullptr;
  if (p.sparse) {
    static thread_local std::vector<std::uint32_t> stored;
    stored.resize(std::size_t(p.k_cells * m.padded_columns()));
    gather(w, p.a, size.a, p.a_elements, p.a_at, stored.data());
    present = spread(w, p, m.padded_columns(), stored.data(), m.b_data());
  } else {
    gather(w, p.a, size.a, p.a_elements, p.a_at, m.b_data());
  }
  gather(w, p.b, size.b, p.b_elements, p.b_at, m.a_data());
  if (p.in_bytes) {
    from_bytes(p.a_type, m.b_data(), p.k_cells * m.padded_columns());
    from_bytes(p.b_type, m.a_data(), p.k_cells * p.shape.n);
  }
  if (p.scale_blocks) {
    load_accumulators(w, p, m.d_data());
    multiply_scaled(w, p, m, present);
    return store_accumulators(w, p, m.d_data());
  }
  if (p.kind == MatrixKind::floating) {
    if (p.f16_c)
      load_halves(w, p, m.d_data());
    else
      load_accumulators(w, p, m.d_data());
    const FusedRule& rule = p.rule[int(generation_of(w))];
    if (present)
      MatrixCore::multiply_sparse(m, p.b_type, p.a_type, rule, precision_of(w), present, false);
    else
      MatrixCore::multiply(m, p.b_type, p.a_type, rule, precision_of(w));
    if (p.f16_d)
      store_halves(w, p, m.d_data());
    else
      store_accumulators(w, p, m.d_data());
    return;
  }
  load_accumulators(w, p, m.d_int_data());
  if (p.kind == MatrixKind::integer)
    MatrixCore::multiply_int(m, p.b_type, p.a_type, p.saturate);
  else
    MatrixCore::multiply_bits(m, p.bit_operation);
  store_accumulators(w, p, m.d_int_data());
}

}  // namespace cgp::emu
