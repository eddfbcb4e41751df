// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix, movmatrix, mma.sync and wmma. PTX ISA 9.7.14.
#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/decode/tensor_families.h"
#include "cgp/emu/race/race.h"
#include "cgp/emu/tensor/fragments.h"
#include "cgp/emu/tensor/matrix_plan.h"

namespace cgp::emu {
namespace {

using ptx::Inst;
using ptx::Mod;
using text::cat;

// ---------------------------------------------------------------- ldmatrix, stmatrix, movmatrix
struct MatrixAccess {
  std::vector<Loc> regs;  // one per matrix: 8x8 of 16 bits, or 16x8 of 8 bits
  bool transposed = false, bytes = false;
};

const MatrixAccess* decode_access(Decoder& d, const Inst& i, Op& op, const ptx::Operand& regs,
                                  const ptx::Operand& address, bool load) {
  MatrixAccess a;
  a.bytes = i.has(Mod::b8);
  a.regs = load ? d.dests(regs, Mod::b32) : d.sources(regs, Mod::b32);
  a.transposed = i.has(Mod::trans);
  const std::size_t count = i.has(Mod::x4) ? 4 : i.has(Mod::x2) ? 2 : 1;
  if (a.regs.size() != count)
    d.unsupported(cat(".x", count, " takes ", count, " registers, not ", a.regs.size()));
  d.set_address(address, op);
  op.where = d.where(i);
  op.bytes = 16;
  op.flags |= kSplits;
  return d.keep(std::move(a));
}

bool same_row(Warp& w, const Op& op, int lane, int other, const std::byte* at);

// Row addresses: lane 8j + r holds row r of matrix j. Returns the lanes whose row can be accessed.
Mask matrix_rows(Warp& w, const Op& op, std::size_t count, Access access, std::byte** host) {
  const Mask lanes = w.active & (count == 4 ? ~Mask(0) : (Mask(1) << (8 * count)) - 1);
  std::uint64_t address[kLanes];
  w.addresses(op, address);
  const Mask good = resolve(w, op, op.where, address, 16, access, lanes, host, 16);
  std::uint32_t offset[kLanes];
  for (int l = 0; l < kLanes; ++l) offset[l] = std::uint32_t(address[l]) & ((1u << kRankShift) - 1);
  count_shared(w, op, access == Access::write ? SharedKind::matrix_store : SharedKind::matrix, 16, offset,
               good);
  if (access == Access::write)
    race::access(w, op, op.where, address, 16, race::Use::write, good, host, same_row);
  else
    race::access(w, op, op.where, address, 16, race::Use::read, good);
  return good;
}

// Where byte k of a lane's register lies in the eight rows of 16 bytes. A matrix of bytes has 16 rows and 8
// columns, and its columns are the rows in memory: lane L holds rows L/4 and L/4 + 8 of columns 2 (L % 4) and
// the next, the accumulator layout of mma.
Place byte_place(const MatrixAccess& a, int lane, int k) {
  if (a.bytes) return {2 * (lane % 4) + k % 2, lane / 4 + 8 * (k / 2)};
  const Place p = matrix_place(lane, k / 2, a.transposed);
  return {p.row, 2 * p.column + k % 2};
}

// The 16 bytes that stmatrix stores to the address of `lane`.
std::array<std::uint8_t, 16> stored_row(Warp& w, const MatrixAccess& a, int lane) {
  std::array<std::uint8_t, 16> bytes{};
  const std::uint32_t* from = w.row<std::uint32_t>(a.regs[std::size_t(lane / 8)]);
  for (int l = 0; l < kLanes; ++l)
    for (int k = 0; k < 4; ++k)
      if (const Place p = byte_place(a, l, k); int(p.row) == lane % 8)
        bytes[std::size_t(p.column)] = std::uint8_t(from[l] >> (8 * k));
  return bytes;
}

// For the race detector: whether two rows that are stored to one address have the same bits.
bool same_row(Warp& w, const Op& op, int lane, int other, const std::byte* at) {
  const auto& a = op.data_as<MatrixAccess>();
  const auto mine = stored_row(w, a, lane);
  if (other >= 0) return mine == stored_row(w, a, other);
  return std::memcmp(mine.data(), at, mine.size()) == 0;
}

// Lanes that hold part of one of the rows in `rows` of a matrix.
Mask holders(Mask rows, const MatrixAccess& a) {
  Mask lanes = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    for (int k = 0; k < 4; ++k)
      if (rows >> byte_place(a, lane, k).row & 1) lanes |= lane_bit(lane);
  return lanes;
}

void exec_ldmatrix(Warp& w, const Op& op) {
  if (!w.converge(op)) return;
  const auto& a = op.data_as<MatrixAccess>();
  std::byte* host[kLanes];
  w.unwritten = 0;
  const Mask good = matrix_rows(w, op, a.regs.size(), Access::read, host);
  const Mask unwritten = w.unwritten;
  w.unwritten = 0;
  for (std::size_t j = 0; j < a.regs.size(); ++j) {
    std::uint16_t tile[8][8] = {};
    for (std::size_t r = 0; r < 8; ++r)
      if (good >> (8 * j + r) & 1) std::memcpy(tile[r], host[8 * j + r], 16);
    std::uint32_t* row = w.row<std::uint32_t>(a.regs[j]);
    for_lanes(w.active, [&](int lane) {
      const Place lo = matrix_place(lane, 0, a.transposed), hi = matrix_place(lane, 1, a.transposed);
      row[lane] = tile[lo.row][lo.column] | std::uint32_t(tile[hi.row][hi.column]) << 16;
    });
    if (const Mask rows = unwritten >> (8 * j) & 0xff) taint_loaded(w, op, a.regs[j], holders(rows, a));
  }
}

// ldmatrix of sm_100 on bytes: 8 or 16 rows of 16 elements of 8 bits, or of 6 or 4 that come as bytes. A row
// of 16 bytes in memory holds 16 elements of 6 bits and 32 bits of padding, or of 4 bits and 64 of padding.
struct ByteMatrices {
  std::vector<Loc> regs;
  int rows = 8, bits = 8;
  bool transposed = false;
};
void exec_ldmatrix_bytes(Warp& w, const Op& op) {
  if (!w.converge(op)) return;
  const auto& a = op.data_as<ByteMatrices>();
  const int matrices = int(a.regs.size()) * 8 / a.rows, lanes = matrices * a.rows;
  std::uint64_t address[kLanes];
  std::byte* host[kLanes];
  std::uint32_t offset[kLanes];
  w.addresses(op, address);
  w.unwritten = 0;
  const auto bytes = std::uint32_t(2 * a.bits);
  const Mask wanted = w.active & (lanes == kLanes ? ~Mask(0) : (Mask(1) << lanes) - 1);
  const Mask good = resolve(w, op, op.where, address, bytes, Access::read, wanted, host, 16);
  const Mask unwritten = w.unwritten;
  w.unwritten = 0;
  for (int l = 0; l < kLanes; ++l) offset[l] = std::uint32_t(address[l]) & ((1u << kRankShift) - 1);
  count_shared(w, op, SharedKind::matrix, 16, offset, good);
  race::access(w, op, op.where, address, bytes, race::Use::read, good);
  for (int j = 0; j < matrices; ++j) {
    std::uint8_t tile[16][16] = {};
    for (int r = 0; r < a.rows; ++r) {
      const int from = j * a.rows + r;
      if (!(good >> from & 1)) continue;
      std::uint8_t packed[17] = {};
      std::memcpy(packed, host[from], bytes);
      for (int e = 0; e < 16; ++e) {
        const int at = e * a.bits;
        const unsigned two = packed[at / 8] | unsigned(packed[at / 8 + 1]) << 8;
        const auto v = std::uint8_t(two >> (at % 8) & ((1u << a.bits) - 1));
        (a.transposed ? tile[e][r] : tile[r][e]) = v;
      }
    }
    for (int half = 0; half < a.rows / 8; ++half) {
      const Loc reg = a.regs[std::size_t(j * a.rows / 8 + half)];
      std::uint32_t* to = w.row<std::uint32_t>(reg);
      for_lanes(w.active,
                [&](int lane) { std::memcpy(&to[lane], &tile[half * 8 + lane / 4][4 * (lane % 4)], 4); });
      if (unwritten >> (j * a.rows) & (a.rows == 16 ? 0xffffu : 0xffu)) taint_loaded(w, op, reg, ~Mask(0));
    }
  }
}
void decode_ldmatrix_bytes(Decoder& d, const Inst& i, Op& op) {
  ByteMatrices a;
  a.rows = i.has(Mod::m16n16) ? 16 : 8;
  a.bits = i.has(Mod::b6x16_p32) ? 6 : i.has(Mod::b4x16_p64) ? 4 : 8;
  a.transposed = i.has(Mod::trans);
  a.regs = d.dests(d.operand(i, 0), Mod::b32);
  const std::size_t count = (i.has(Mod::x4) ? 4 : i.has(Mod::x2) ? 2 : 1) * std::size_t(a.rows / 8);
  if (a.regs.size() != count)
    d.unsupported(cat("this shape takes ", count, " registers, not ", a.regs.size()));
  d.set_address(d.operand(i, 1), op);
  op.where = d.where(i);
  op.bytes = 16;
  op.flags |= kSplits;
  op.data = d.keep(std::move(a));
  op.fn = exec_ldmatrix_bytes;
}

void decode_ldmatrix(Decoder& d, const Inst& i, Op& op) {
  if (i.has(Mod::m16n16) || i.has(Mod::m8n16)) return decode_ldmatrix_bytes(d, i, op);
  op.data = decode_access(d, i, op, d.operand(i, 0), d.operand(i, 1), true);
  op.fn = exec_ldmatrix;
}

void exec_stmatrix(Warp& w, const Op& op) {
  if (!w.converge(op)) return;
  const auto& a = op.data_as<MatrixAccess>();
  std::byte* host[kLanes];
  const Mask good = matrix_rows(w, op, a.regs.size(), Access::write, host);
  for (std::size_t j = 0; j < a.regs.size(); ++j) {
    std::uint8_t tile[8][16];
    const std::uint32_t* row = w.row<std::uint32_t>(a.regs[j]);
    for (int lane = 0; lane < kLanes; ++lane)
      for (int k = 0; k < 4; ++k) {
        const Place p = byte_place(a, lane, k);
        tile[p.row][p.column] = std::uint8_t(row[lane] >> (8 * k));
      }
    for (std::size_t r = 0; r < 8; ++r)
      if (good >> (8 * j + r) & 1) std::memcpy(host[8 * j + r], tile[r], 16);
    if (!w.taint) continue;
    // Rows that hold never-written data stay never written.
    const Mask tainted = taint_of(w, a.regs[j]);
    std::uint64_t address[kLanes];
    w.addresses(op, address);
    for (std::size_t r = 0; tainted && r < 8; ++r)
      if (holders(Mask(1) << r, a) & tainted)
        store_unwritten(w, op.where, address[8 * j + r], 16, taint_origin(w, a.regs[j]));
  }
}
void decode_stmatrix(Decoder& d, const Inst& i, Op& op) {
  op.data = decode_access(d, i, op, d.operand(i, 1), d.operand(i, 0), false);
  op.fn = exec_stmatrix;
}

void exec_movmatrix(Warp& w, const Op& op) {
  if (!w.converge(op)) return;
  const std::uint32_t* from = w.row<std::uint32_t>(op.a);
  std::uint16_t tile[8][8];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int h = 0; h < 2; ++h) {
      const Place p = matrix_place(lane, h, false);
      tile[p.row][p.column] = std::uint16_t(from[lane] >> (16 * h));
    }
  std::uint32_t* to = w.row<std::uint32_t>(op.d);
  for_lanes(w.active, [&](int lane) {
    const Place lo = matrix_place(lane, 0, true), hi = matrix_place(lane, 1, true);
    to[lane] = tile[lo.row][lo.column] | std::uint32_t(tile[hi.row][hi.column]) << 16;
  });
}
void decode_movmatrix(Decoder& d, const Inst& i, Op& op) {
  op.d = d.dest(d.operand(i, 0), Mod::b32);
  op.a = d.source(d.operand(i, 1), Mod::b32);
  op.flags |= kSplits;
  op.fn = exec_movmatrix;
}

// ---------------------------------------------------------------- mma.sync
void exec_mma(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  run_matrix(w, op.data_as<MatrixPlan>());
}

Mod register_type(Mod element, bool accumulator) {
  if (element == Mod::f64) return Mod::f64;
  if (accumulator && element == Mod::f32) return Mod::f32;
  return Mod::b32;
}

void check_registers(Decoder& d, const char* which, std::size_t have, int need) {
  if (have != std::size_t(need))
    d.unsupported(cat("fragment ", which, " has ", have, " registers; this shape and type take ", need));
}

// sm_120: kind::f8f6f4, and the kinds with scales behind the other operands.
void decode_kind(Decoder& d, const Inst& i, MatrixPlan& p) {
  p.in_bytes = i.has(Mod::kind_f8f6f4) || i.has(Mod::kind_mxf8f6f4);
  p.four_bit_kind = i.has(Mod::kind_mxf4) || i.has(Mod::kind_mxf4nvf4);
  if (!i.has(Mod::block_scale)) return;
  p.scale_blocks = i.has(Mod::scale_vec_4X) ? 4 : i.has(Mod::kind_mxf8f6f4) ? 1 : 2;
  p.ue8m0 = i.has(Mod::ue8m0);
  const std::size_t at = p.sparse ? 6 : 4;
  p.scale_a = d.source(d.operand(i, at), Mod::b32);
  p.scale_b = d.source(d.operand(i, at + 2), Mod::b32);
  for (std::size_t side = 0; side < 2; ++side) {
    const auto ids = d.sources(d.operand(i, at + 1 + 2 * side), Mod::u16);
    if (ids.size() != 2) d.unsupported("a scale's selector is {byte, thread}");
    for (std::size_t k = 0; k < 2; ++k) p.scale_ids[2 * side + k] = ids[k];
  }
}

void decode_mma(Decoder& d, const Inst& i, Op& op) {
  MatrixPlan p;
  p.shape = matrix_shape(d, i);
  if (p.shape.k == 4 && p.shape.m == 8 && i.type(1) == Mod::f16) return decode_mma_quad(d, i, op);
  if (!i.has(Mod::row) || !i.has(Mod::col)) d.unsupported("A must be .row and B .col");
  p.saturate = i.has(Mod::satfinite);
  p.bit_operation = i.has(Mod::and_) ? BitOperation::and_popc : BitOperation::xor_popc;
  p.rounding = matrix_rounding(i);
  if (i.op != ptx::Op::mma) {
    p.sparse = true;
    p.metadata = d.source(d.operand(i, 4), Mod::b32);
    p.selector = int(d.immediate(d.operand(i, 5)));
  }
  decode_kind(d, i, p);
  plan_matrix(d, p, i.type(0), i.type(1), i.type(2), i.type(3));
  p.d = d.dests(d.operand(i, 0), register_type(i.type(0), true));
  p.a = d.sources(d.operand(i, 1), register_type(i.type(1), false));
  p.b = d.sources(d.operand(i, 2), register_type(i.type(2), false));
  p.c = d.sources(d.operand(i, 3), register_type(i.type(3), true));
  const FragmentSizes need = fragment_sizes(p);
  check_registers(d, "D", p.d.size(), need.d);
  check_registers(d, "A", p.a.size(), need.a);
  check_registers(d, "B", p.b.size(), need.b);
  check_registers(d, "C", p.c.size(), need.c);
  op.data = d.keep(std::move(p));
  op.flags |= kSplits;
  op.fn = exec_mma;
}

// ---------------------------------------------------------------- wmma
// The ISA leaves the lane map open; ours makes m16n16k16 two m16n8k16 side by side. f16 A and B have eight
// registers whatever the shape: those beyond the elements repeat them.
struct WmmaAccess {
  std::vector<Loc> regs;
  Loc stride = kNoLoc;
  int bits = 16;         // of one cell in memory: an element, or a word of 4- or 1-bit elements
  int stride_shift = 0;  // stride in elements >> this = in cells
  bool by_column = false;
  bool packed = false;                     // several elements in a 32-bit register
  std::vector<std::uint16_t> row, column;  // [register][lane][element]
};

const WmmaAccess* decode_wmma_access(Decoder& d, const Inst& i, Op& op, char which, const ptx::Operand& regs,
                                     const ptx::Operand& address, std::size_t stride_at, bool load) {
  const Shape s = matrix_shape(d, i);
  const Mod type = i.type(0);
  WmmaAccess a;
  const int bits = ptx::type_bits(type);
  if (!bits) d.unsupported("no type");
  const int in_word = bits < 8 ? 32 / bits : 1;  // 4- and 1-bit elements move as whole words along k
  a.bits = bits * in_word;
  a.stride_shift = std::countr_zero(unsigned(in_word));
  const Mod reg = type == Mod::f64 || type == Mod::f32 ? type : Mod::b32;
  a.regs = load ? d.dests(regs, reg) : d.sources(regs, reg);
  a.packed = a.bits < 32;
  const bool column_major = i.has(Mod::col);
  a.by_column = column_major;
  const int per = a.packed ? 32 / a.bits : 1;
  const int elements = which == 'a' ? s.m * s.k : which == 'b' ? s.k * s.n : s.m * s.n;
  const int used = elements / kLanes / per / in_word;
  if (used == 0 || a.regs.size() < std::size_t(used)) d.unsupported("this shape with this type");
  if (in_word > 1 && which != 'c' && column_major != (which == 'b'))
    d.unsupported("4- and 1-bit operands need A in .row and B in .col");
  for (std::size_t r = 0; r < a.regs.size(); ++r)
    for (int lane = 0; lane < kLanes; ++lane)
      for (int e = 0; e < per; ++e) {
        const int reg_index = int(r) % used;
        Place p;
        if (which == 'a') {
          p = a_place(s.m, bits, lane, reg_index, e);
          p.column /= in_word;
        } else if (which == 'b') {
          const Place t = b_place(s.k, bits, lane, reg_index, e);
          p = {t.column / in_word, t.row};
        } else {
          p = d_place(s.m, lane, reg_index * per + e);
        }
        a.row.push_back(std::uint16_t(p.row));
        a.column.push_back(std::uint16_t(p.column));
      }
  if (i.operands.size() > stride_at)
    a.stride = d.source(d.operand(i, stride_at), Mod::u32);
  else
    a.stride = d.constant(std::uint64_t(which == 'a'   ? (column_major ? s.m : s.k)
                                        : which == 'b' ? (column_major ? s.k : s.n)
                                                       : (column_major ? s.m : s.n)),
                          32);
  d.set_address(address, op);
  op.where = d.where(i);
  op.flags |= kSplits;
  return d.keep(std::move(a));
}

// Host places of element `index` of every lane's fragment.
Mask wmma_element(Warp& w, const Op& op, const WmmaAccess& a, const std::uint64_t* base, std::size_t reg,
                  int element, int per, Access access, std::byte** host) {
  std::uint64_t address[kLanes];
  const std::uint32_t stride = w.row<std::uint32_t>(a.stride)[std::countr_zero(w.active)] >> a.stride_shift;
  for (int lane = 0; lane < kLanes; ++lane) {
    const std::size_t at = (reg * kLanes + std::size_t(lane)) * std::size_t(per) + std::size_t(element);
    const std::uint64_t row = a.row[at], column = a.column[at];
    const std::uint64_t linear = a.by_column ? column * stride + row : row * stride + column;
    address[lane] = base[std::countr_zero(w.active)] + linear * std::uint64_t(a.bits / 8);
  }
  const auto bytes = std::uint32_t(a.bits / 8);
  const Mask good = resolve(w, op, op.where, address, bytes, access, w.active, host);
  const bool load = access == Access::read;
  const Where space = op.where == Where::generic ? classify(w, address[0]) : op.where;
  if (space == Where::shared || space == Where::shared_cluster) {
    std::uint32_t offset[kLanes];
    for (int l = 0; l < kLanes; ++l) offset[l] = std::uint32_t(address[l]) & ((1u << kRankShift) - 1);
    count_shared(w, op, load ? SharedKind::load : SharedKind::store, bytes, offset, good);
  } else {
    count_global(w, op, load ? GlobalKind::load : GlobalKind::store, bytes, address, good);
  }
  race::access(w, op, op.where, address, bytes, load ? race::Use::read : race::Use::write, good);
  return good;
}

void exec_wmma_f64(Warp& w, const Op& op, const WmmaAccess& a, Access access) {
  std::uint64_t base[kLanes];
  w.addresses(op, base);
  for (std::size_t r = 0; r < a.regs.size(); ++r) {
    std::uint64_t* row = w.row<std::uint64_t>(a.regs[r]);
    std::byte* host[kLanes];
    const Mask good = wmma_element(w, op, a, base, r, 0, 1, access, host);
    for_lanes(good, [&](int lane) {
      if (access == Access::read)
        std::memcpy(&row[lane], host[lane], 8);
      else
        std::memcpy(host[lane], &row[lane], 8);
    });
  }
}

void exec_wmma_load(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  const auto& a = op.data_as<WmmaAccess>();
  if (a.bits == 64) return exec_wmma_f64(w, op, a, Access::read);
  std::uint64_t base[kLanes];
  w.addresses(op, base);
  const int per = a.packed ? 32 / a.bits : 1;
  for (std::size_t r = 0; r < a.regs.size(); ++r) {
    std::uint32_t* row = w.row<std::uint32_t>(a.regs[r]);
    std::uint32_t value[kLanes] = {};
    for (int e = 0; e < per; ++e) {
      std::byte* host[kLanes];
      const Mask good = wmma_element(w, op, a, base, r, e, per, Access::read, host);
      for_lanes(good, [&](int lane) {
        std::uint32_t u = 0;
        std::memcpy(&u, host[lane], std::size_t(a.bits / 8));
        value[lane] |= u << (e * a.bits % 32);
      });
    }
    for_lanes(w.active, [&](int lane) { row[lane] = value[lane]; });
  }
}
void exec_wmma_store(Warp& w, const Op& op) {
  if (!w.converge(op) || !need_full_warp(w, op)) return;
  const auto& a = op.data_as<WmmaAccess>();
  if (a.bits == 64) return exec_wmma_f64(w, op, a, Access::write);
  std::uint64_t base[kLanes];
  w.addresses(op, base);
  const int per = a.packed ? 32 / a.bits : 1;
  for (std::size_t r = 0; r < a.regs.size(); ++r) {
    const std::uint32_t* row = w.row<std::uint32_t>(a.regs[r]);
    for (int e = 0; e < per; ++e) {
      std::byte* host[kLanes];
      const Mask good = wmma_element(w, op, a, base, r, e, per, Access::write, host);
      for_lanes(good, [&](int lane) {
        const std::uint32_t u = row[lane] >> (e * a.bits % 32);
        std::memcpy(host[lane], &u, std::size_t(a.bits / 8));
      });
    }
  }
}

void decode_wmma_load(Decoder& d, const Inst& i, Op& op) {
  const char which = i.op == ptx::Op::wmma_load_a ? 'a' : i.op == ptx::Op::wmma_load_b ? 'b' : 'c';
  op.data = decode_wmma_access(d, i, op, which, d.operand(i, 0), d.operand(i, 1), 2, true);
  op.fn = exec_wmma_load;
}
void decode_wmma_store(Decoder& d, const Inst& i, Op& op) {
  op.data = decode_wmma_access(d, i, op, 'c', d.operand(i, 1), d.operand(i, 0), 2, false);
  op.fn = exec_wmma_store;
}

void decode_wmma_mma(Decoder& d, const Inst& i, Op& op) {
  MatrixPlan p;
  p.shape = matrix_shape(d, i);
  p.saturate = i.has(Mod::satfinite);
  // .f32.f32 or .f16.f16 (D, C) with f16 operands; otherwise D.A.B.C.
  const bool short_form = i.type(2) == ptx::kNoMod;
  const Mod a = short_form ? Mod::f16 : i.type(1), b = short_form ? Mod::f16 : i.type(2);
  const Mod dt = i.type(0), c = short_form ? i.type(1) : i.type(3);
  p.bit_operation = i.has(Mod::and_) ? BitOperation::and_popc : BitOperation::xor_popc;
  p.rounding = matrix_rounding(i);
  plan_matrix(d, p, dt, a, b, c);
  // The shape .m16n16k8 of tf32 is a chain of sums over four products (measured on Hopper).
  if (a == Mod::tf32)
    for (FusedRule& rule : p.rule) rule.step = 4;
  p.d = d.dests(d.operand(i, 0), register_type(dt, true));
  p.a = d.sources(d.operand(i, 1), register_type(a, false));
  p.b = d.sources(d.operand(i, 2), register_type(b, false));
  p.c = d.sources(d.operand(i, 3), register_type(c, true));
  const FragmentSizes need = fragment_sizes(p);
  check_registers(d, "D", p.d.size(), need.d);
  check_registers(d, "A", p.a.size(), a == Mod::f16 ? 8 : need.a);
  check_registers(d, "B", p.b.size(), a == Mod::f16 ? 8 : need.b);
  check_registers(d, "C", p.c.size(), need.c);
  p.a.resize(std::size_t(need.a));
  p.b.resize(std::size_t(need.b));
  op.data = d.keep(std::move(p));
  op.flags |= kSplits;
  op.fn = exec_mma;
}

}  // namespace

void add_matrix(Table& t) {
  t.set(ptx::Op::ldmatrix, decode_ldmatrix);
  t.set(ptx::Op::stmatrix, decode_stmatrix);
  t.set(ptx::Op::movmatrix, decode_movmatrix);
  for (ptx::Op o : {ptx::Op::mma, ptx::Op::mma_sp, ptx::Op::mma_sp_ordered_metadata}) t.set(o, decode_mma);
  t.set(ptx::Op::wmma_load_a, decode_wmma_load);
  t.set(ptx::Op::wmma_load_b, decode_wmma_load);
  t.set(ptx::Op::wmma_load_c, decode_wmma_load);
  t.set(ptx::Op::wmma_store_d, decode_wmma_store);
  t.set(ptx::Op::wmma_mma, decode_wmma_mma);
}

}  // namespace cgp::emu
