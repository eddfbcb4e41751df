// SPDX-License-Identifier: Apache-2.0
// dequantize: memory-bound, every byte of the weight read once from global memory, every result written once.
//   rows      blocks, NF4 and fp8: a thread has eight consecutive elements of a row, a block 2048. Dense results are one
//             row of rows * cols. The 16 or 32 bytes that a thread writes are whole words, reads are as wide as the
//             format's alignment lets them be.
//   GPTQ      a word holds eight inputs of an output: a warp has 8 outputs x 4 words, so that reads (along the outputs)
//             are sectors of 32 bytes and writes (along the inputs) 64 bytes
//   AWQ       a word holds eight outputs of an input: a thread has 8 x 8 weights, a warp 64 outputs x 32 inputs
#include "cgp/kernels/dequantize/dequantize.h"

#include <bit>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/dsl/core/kernel_params.h"
#include "cgp/dsl/memory/tile.h"
#include "cgp/kernels/dequantize/block_decoder.h"
#include "cgp/kernels/row/elements.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using dequantize_code::Bytes, dequantize_code::Eight, dequantize_code::Number, dequantize_code::Word;

constexpr std::uint32_t kThreads = 256, kEach = 8, kChunk = kThreads * kEach;
constexpr std::uint32_t kTileCols = 256;  // GPTQ and AWQ: inputs of a block

bool plain(QuantizedFormat f) {
  return f == QuantizedFormat::f32 || f == QuantizedFormat::f16 || f == QuantizedFormat::bf16;
}
bool fp8(QuantizedFormat f) { return f == QuantizedFormat::fp8_e4m3 || f == QuantizedFormat::fp8_e5m2; }

/// Parameters of all forms.
template <template <class> class V>
struct Numbers {
  V<u64> rows;       ///< of the result
  V<u64> first_row;  ///< of the weight; its first element is
  V<u64> first;
  V<u64> weight_rows, weight_cols;
  V<u64> first_col;
  V<u64> cols, pitch;  ///< of the result
  V<u32> chunks;       ///< blocks along a row
  V<u64> group;
  V<u32> group_log2;
  V<u32> absmax_block;
  V<f32> absmax_offset;
  V<u32> zero_base;  ///< of GPTQ's zeros
  V<u32> scale_rows, scale_cols, tiles_across;
};
struct Tensors {
  In<b8> codes, scales, zeros, g_idx, absmax_table, absmax_scales;
  Out<b8> out;
  Out<u32> error_flag;
};

class Dequantizer {
 public:
  Dequantizer(Kernel& k, const DequantizeConfig& b, const Tensors& t, const Numbers<Val>& p)
      : k_(k),
        b_(b),
        t_(t),
        p_(p),
        chunk_(k.ctaid_x() % p.chunks),
        row_(k.ctaid_x() / p.chunks),
        thread_(k.tid()),
        lane_(thread_ & 31u) {}

  void run() {
    if (b_.format == QuantizedFormat::gptq) return gptq();
    if (b_.format == QuantizedFormat::awq) return awq();
    if (b_.format == QuantizedFormat::bnb_nf4 || b_.format == QuantizedFormat::nf4)
      table_.emplace(dequantize_code::nf4_table(k_));
    const auto col = to<u64>(chunk_) * std::uint64_t(kChunk) + to<u64>(thread_ * kEach);
    k_.if_(col < p_.cols, [&] {
      const auto row = to<u64>(row_);
      store(row, col, eight(p_.first + row * p_.weight_cols + col, col));
      report();
    });
  }

 private:
  // ------------------------------------------------------------ rows
  /// Elements from `first` of the weight, which are in column `col`.
  Eight eight(const Val<u64>& first, const Val<u64>& col) {
    if (b_.format == QuantizedFormat::bnb_nf4) return nf4(first, col);
    if (fp8(b_.format)) return scaled_fp8(first, col);
    if (plain(b_.format)) return floats(first, col);
    const auto f = *block_format(b_.format);
    const auto& i = quant::info(f);
    const auto block = first >> std::uint32_t(std::countr_zero(i.elements));
    const auto e = to<u32>(first) & std::uint32_t(i.elements - 1);
    const Bytes at(t_.codes.at(block * i.bytes), b_.align);
    if (f != quant::Format::nf4) return dequantize_code::decode_eight(k_, f, at, e, scales_);
    const auto none = e & 0u;
    scales_.push_back(bits<f32>(at.words(1, none, 0, 16)[0]));
    return dequantize_code::nf4_values(*table_, at.words(1, divided(e, 2), 4, 4)[0], scales_[0]);
  }

  Eight floats(const Val<u64>& first, const Val<u64>& col) {
    const bool wide = b_.format == QuantizedFormat::f32;
    const auto value = [&](const Word& v) {
      return wide                                 ? bits<f32>(v)
             : b_.format == QuantizedFormat::bf16 ? bits<f32>(v << 16u)
                                                  : dequantize_code::from_half(v);
    };
    Eight out;
    if (b_.ragged) {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const Val<dsl::pred> inside = col + i < p_.cols;
        if (wide)
          out.push_back(value(t_.codes.as<const u32>().ld_if(inside, first + i, Val<u32>(0u))[0]));
        else
          out.push_back(
              value(to<u32>(t_.codes.as<const dsl::u16>().ld_if(inside, first + i, Val<dsl::u16>(0))[0])));
      }
      return out;
    }
    const auto none = thread_ & 0u;
    const Bytes at(t_.codes.at(first * (wide ? 4u : 2u)), b_.align);
    for (const auto& w : at.words(wide ? 8 : 4, none, 0, 16)) {
      out.push_back(value(wide ? w : w & 0xffffu));
      if (!wide) out.push_back(value(w >> 16u));
    }
    return out;
  }

  Number absmax(const Val<u64>& block) {
    if (!b_.nested) return used(t_.scales.as<const f32>().ld(block));
    const auto code = to<u32>(t_.scales.as<const dsl::u8>().ld(block));
    const auto value = t_.absmax_table.as<const f32>().ld(code);
    const auto scale = t_.absmax_scales.as<const f32>().ld(to<u32>(block) / p_.absmax_block);
    return used(dequantize_code::sum(dequantize_code::product(value, scale), p_.absmax_offset));
  }
  Eight nf4(const Val<u64>& first, const Val<u64>& col) {
    if (!b_.ragged) {
      const Bytes at(t_.codes.at(first / 2u), b_.align);
      const auto codes = at.words(1, thread_ & 0u, 0, 4)[0];
      return dequantize_code::nf4_values(*table_, codes, absmax(first >> p_.group_log2));
    }
    Eight out;
    for (std::uint64_t i = 0; i < kEach; ++i) {
      const auto at = select(col + i < p_.cols, first + i, first);
      const auto byte = to<u32>(t_.codes.as<const dsl::u8>().ld(at / 2u));
      const auto code = (byte >> select((to<u32>(at) & 1u) == 1u, Word(0u), Word(4u))) & 15u;
      out.push_back(dequantize_code::product(absmax(at / p_.group), table_->ld(code)));
    }
    return out;
  }

  Eight scaled_fp8(const Val<u64>& first, const Val<u64>& col) {
    const auto down = to<u32>(p_.first_row + to<u64>(row_)) / p_.scale_rows;
    const auto scale = [&](const Val<u64>& c) {
      const auto at =
          to<u64>(down) * to<u64>(p_.tiles_across) + to<u64>(to<u32>(p_.first_col + c) / p_.scale_cols);
      return used(t_.scales.as<const f32>().ld(at));
    };
    const auto value = [&](const Word& byte) {
      return b_.format == QuantizedFormat::fp8_e4m3 ? dequantize_code::from_e4m3(byte)
                                                    : dequantize_code::from_e5m2(byte);
    };
    Eight out;
    if (b_.ragged) {
      for (std::uint64_t i = 0; i < kEach; ++i) {
        const Val<dsl::pred> inside = col + i < p_.cols;
        const auto code = to<u32>(t_.codes.as<const dsl::u8>().ld_if(inside, first + i, Val<dsl::u8>(0))[0]);
        out.push_back(dequantize_code::product(scale(select(inside, col + i, col)), value(code)));
      }
      return out;
    }
    const auto s = scale(col);
    const auto codes = Bytes(t_.codes.at(first), b_.align).words(2, thread_ & 0u, 0, 8);
    const bool pairs = k_.sm() >= 89;  // converts two at a time
    for (std::uint32_t i = 0; i < kEach; i += 2) {
      if (pairs) {
        const auto halves = pair_of(codes[i / 4], int(i % 4 / 2));
        out.push_back(dequantize_code::product(s, to<f32>(halves[0])));
        out.push_back(dequantize_code::product(s, to<f32>(halves[1])));
      } else {
        const auto pair = codes[i / 4] >> (i % 4 * 8);
        out.push_back(dequantize_code::product(s, value(pair & 255u)));
        out.push_back(dequantize_code::product(s, value((pair >> 8u) & 255u)));
      }
    }
    return out;
  }
  RegGroup<f16, 2> pair_of(const Word& codes, int which) {
    const auto word = bits<b32>(codes);
    return unpack<f16>(b_.format == QuantizedFormat::fp8_e4m3 ? cvt<rn, f16x2>(unpack<e4m3x2>(word)[which])
                                                              : cvt<rn, f16x2>(unpack<e5m2x2>(word)[which]));
  }

  // ------------------------------------------------------------ words of eight codes
  Val<u64> octet() const {
    return to<u64>(chunk_ * (kTileCols / 8) + divided(thread_, 32) * 4u + divided(lane_, 8));
  }
  Number half_at(const In<b8>& from, const Val<u64>& i) { return used(to<f32>(from.as<const f16>().ld(i))); }
  /// 2^23 and the zero that nibble `place` of a word holds.
  Number zero_at(const Val<u64>& word, const Word& place) {
    const auto code = (t_.zeros.as<const u32>().ld(word) >> (place * 4u)) & 15u;
    return bits<f32>((code + p_.zero_base) | 0x4b000000u);
  }
  static Number weight(const Number& scale, const Word& word, const Word& place, const Number& zero) {
    const auto code = bits<f32>(((word >> (place * 4u)) & 15u) | 0x4b000000u);
    return dequantize_code::product(scale, code - zero);
  }

  void gptq() {
    const auto col = octet() * 8u, row = to<u64>(row_) * 8u + to<u64>(lane_ & 7u);
    k_.if_((col < p_.cols) & (row < p_.rows), [&] {
      const auto n = p_.first_row + row;
      const auto in = p_.first_col + col;  // of the weight
      const auto word = t_.codes.as<const u32>().ld(in / 8u * p_.weight_rows + n);
      const auto of_group = [&](const Val<u64>& g) {
        const auto at = g * p_.weight_rows + n;
        const auto zero = zero_at(at / 8u, lane_ & 7u);
        return std::pair(half_at(t_.scales, at), zero);
      };
      Eight out;
      std::vector<std::pair<Number, Number>> shared_group;
      if (!b_.g_idx) shared_group.push_back(of_group(to<u64>(to<u32>(in) / to<u32>(p_.group))));
      for (std::uint32_t i = 0; i < kEach; ++i) {
        const auto [scale, zero] = b_.g_idx
                                       ? of_group(to<u64>(t_.g_idx.as<const u32>().ld(in + std::uint64_t(i))))
                                       : shared_group[0];
        out.push_back(weight(scale, word, Word(i), zero));
      }
      store(row, col, out), report();
    });
  }

  void awq() {
    static constexpr std::uint32_t kPlace[] = {0, 4, 1, 5, 2, 6, 3, 7};  // nibble of each output in its word
    const auto col = octet() * 8u, row = (to<u64>(row_) * 8u + to<u64>(lane_ & 7u)) * 8u;
    k_.if_((col < p_.cols) & (row < p_.rows), [&] {
      const auto n = (p_.first_row + row) / 8u, across = p_.weight_rows / 8u, in = p_.first_col + col;
      std::vector<Word> words;
      for (std::uint64_t i = 0; i < kEach; ++i)
        words.push_back(t_.codes.as<const u32>().ld((in + i) * across + n));
      const auto at = to<u64>(to<u32>(in) / to<u32>(p_.group)) * across + n;
      for (std::uint32_t j = 0; j < kEach; ++j) {
        const auto zero = zero_at(at, Word(kPlace[j]));
        const auto scale = half_at(t_.scales, at * 8u + std::uint64_t(j));
        Eight out;
        for (const auto& w : words) out.push_back(weight(scale, w, Word(kPlace[j]), zero));
        store(row + std::uint64_t(j), col, out);
      }
      report();
    });
  }

  // ------------------------------------------------------------ results
  Number used(const Number& scale) {
    scales_.push_back(scale);
    return scale;
  }
  void report() {
    if (!b_.checked || scales_.empty()) return;
    std::vector<Val<dsl::pred>> fine;
    for (const auto& s : scales_) {
      const auto finite = testp<mod::finite>(s);
      fine.push_back(fine.empty() ? finite : fine.back() & finite);
    }
    k_.if_(!fine.back(), [&] { red<relaxed, gpu, op::max>(t_.error_flag, 0, Val<u32>(1u)); });
  }
  /// Of one value, or of two in 16 bits; GPUs before sm_80 do not round to bf16.
  row::Access rounded(const Eight& v) {
    const int n = int(v.size());
    if (b_.type != DType::bf16 || k_.sm() >= 80) return row::pack({b_.type, n}, v);
    const auto bf16_of = [](const Number& x) {
      const auto bits_of = bits<u32>(x);
      const auto nearest = (bits_of + 0x7fffu + ((bits_of >> 16u) & 1u)) >> 16u;
      return select(testp<mod::notanumber>(x), Word(0x7fffu), nearest);
    };
    row::Access out;
    for (std::size_t i = 0; i < v.size(); i += 2)
      out.push_back(bits<b32>(i + 1 < v.size() ? bf16_of(v[i]) | (bf16_of(v[i + 1]) << 16u) : bf16_of(v[i])));
    return out;
  }
  void store(const Val<u64>& row, const Val<u64>& col, const Eight& v) {
    const auto size = std::uint64_t(cgp::bytes(b_.type));
    const auto at = t_.out.at((row * p_.pitch + col) * size);
    if (b_.scalar) {
      for (std::size_t i = 0; i < kEach; ++i)
        row::store({b_.type, 1}, at, int(i), col + std::uint64_t(i) < p_.cols, rounded({v[i]}));
      return;
    }
    const auto words = rounded(v);
    for (std::size_t i = 0; i < words.size(); i += 4)
      at.as<b32>().st<4>(int(i / 4), RegGroup<b32, 4>(words[i], words[i + 1], words[i + 2], words[i + 3]));
  }

  Kernel& k_;
  const DequantizeConfig& b_;
  const Tensors& t_;
  const Numbers<Val>& p_;
  Word chunk_, row_, thread_, lane_;
  std::optional<Ptr<shared, f32>> table_;
  std::vector<Number> scales_;
};

void dequantize_kernel(Kernel& k, DequantizeConfig b, In<b8> codes, In<b8> scales, In<b8> zeros, In<b8> g_idx,
                       In<b8> absmax_table, In<b8> absmax_scales, Out<b8> out, Out<u32> error_flag,
                       Numbers<Val> p) {
  k.block(int(kThreads));
  const Tensors t{codes, scales, zeros, g_idx, absmax_table, absmax_scales, out, error_flag};
  Dequantizer(k, b, t, p).run();
}

/// Whole rows to a dense result are one row, where nothing depends on the row.
bool one_row(const Dequantize& d) {
  return !fp8(d.weight.format) && d.cols == d.weight.cols && d.out_layout.pitch == d.cols;
}
std::uint64_t columns(const Dequantize& d) { return one_row(d) ? d.rows * d.cols : d.cols; }

Dequantize checked(Dequantize d) {
  const row::Checker c{"dequantize"};
  const auto& w = d.weight;
  check(w, c.op);
  c.present("out", d.out, row::kFloats, true);
  if (d.out_layout.inner > 1) c.fail("out", "cannot have its rows in groups", "inner > 1");
  if (d.first_row > w.rows || d.rows > w.rows - d.first_row)
    c.fail("rows", "must be rows of the weight",
           text::cat(d.rows, " from ", d.first_row, " on, the weight has ", w.rows));
  if ((w.format == QuantizedFormat::gptq || w.format == QuantizedFormat::awq) &&
      (d.first_row % 8 || d.rows % 8))
    c.fail("rows", "must be multiples of 8", text::cat(d.rows, " from ", d.first_row, " on"));
  if (d.first_col > w.cols || d.cols > w.cols - d.first_col)
    c.fail("cols", "must be columns of the weight",
           text::cat(d.cols, " from ", d.first_col, " on, the weight has ", w.cols));
  if (!d.cols) d.cols = w.cols - d.first_col;
  if (const auto step = column_step(w.format);
      d.first_col % step || (d.cols % step && d.first_col + d.cols != w.cols))
    c.fail("cols", text::cat("must be multiples of ", step), text::cat(d.cols, " from ", d.first_col, " on"));
  d.out_layout = c.rows("out", d.out, d.rows, d.cols, d.out_layout);
  if (d.error_flag.given)
    c.present("error_flag", d.error_flag, {DType::u32}, true), c.vector("error_flag", d.error_flag, 1);
  return d;
}

DequantizeConfig config_of(const Dequantize& d) {
  const auto& w = d.weight;
  DequantizeConfig c{w.format, d.out.dtype};
  const std::uint64_t cols = columns(d);
  const auto power = [](std::uint64_t n) { return n && (n & (n - 1)) == 0; };
  const auto aligned = [&](std::uint64_t unit) {
    return int(std::gcd(std::gcd(w.codes.address, unit), std::uint64_t(16)));
  };
  c.align = 1;
  if (const auto f = block_format(w.format); f && !plain(w.format)) {
    c.align = aligned(quant::info(*f).bytes);
  } else if (plain(w.format)) {
    c.ragged = cols % kEach || (!one_row(d) && w.cols % kEach) || w.codes.address % 4;
    if (!c.ragged) c.align = aligned(16);
  } else if (w.format == QuantizedFormat::bnb_nf4) {
    c.ragged = w.cols % kEach || w.group % kEach || !power(w.group);
    if (!c.ragged) c.align = aligned(4);
    c.nested = w.scales.dtype == DType::u8;
  } else if (fp8(w.format)) {
    c.ragged = w.cols % kEach || (w.scale_cols % kEach && w.scale_cols < w.cols);
    if (!c.ragged) c.align = aligned(std::gcd(w.cols, std::uint64_t(8)));
  } else {
    c.align = 4, c.g_idx = w.g_idx.given;
  }
  const auto size = std::uint64_t(cgp::bytes(d.out.dtype));
  c.scalar = cols % kEach || d.out.address % 16 || (!one_row(d) && d.out_layout.pitch * size % 16);
  c.checked = d.error_flag.given;
  return c;
}

}  // namespace

std::uint64_t column_step(QuantizedFormat f) {
  const auto blocks = block_format(f);
  return blocks ? std::max<std::uint64_t>(kEach, quant::info(*blocks).elements) : kEach;
}

DequantizeConfig dequantize_config(const Dequantize& d) { return config_of(checked(d)); }

Variant dequantize_variant(const DequantizeConfig& c) {
  return config_variant("dequantize", c, 75, dequantize_kernel);
}

void dequantize(runtime::Stream& s, const Dequantize& given) {
  const auto d = checked(given);
  const auto& w = d.weight;
  if (d.rows == 0 || d.cols == 0) return;
  const bool words = w.format == QuantizedFormat::gptq || w.format == QuantizedFormat::awq;
  const bool flat = !words && one_row(d);
  const std::uint64_t cols = flat ? columns(d) : d.cols, each = words ? kTileCols : kChunk;
  const std::uint64_t chunks = (cols + each - 1) / each;
  const std::uint64_t tile_rows = w.format == QuantizedFormat::gptq  ? 8
                                  : w.format == QuantizedFormat::awq ? 64
                                                                     : 1;
  const std::uint64_t down = flat ? 1 : (d.rows + tile_rows - 1) / tile_rows;
  constexpr std::uint64_t kMostBlocks = (1ull << 31) - 1;
  if (w.rows >> 32 || w.cols >> 32 || chunks > kMostBlocks || down > kMostBlocks / chunks)
    throw Unsupported(
        text::cat("dequantize: less than 2^32 rows and columns, and less than 2^31 blocks of the launch "
                  "are possible; there are ",
                  d.rows, " x ", d.cols));
  const auto tile = [](std::uint64_t n) { return std::uint32_t(std::min<std::uint64_t>(n, 0xffffffffull)); };
  const std::uint64_t across = (w.cols + w.scale_cols - 1) / w.scale_cols;
  const Numbers<HostValue> p{
      .rows = d.rows,
      .first_row = d.first_row,
      .first = d.first_row * w.cols + d.first_col,
      .weight_rows = w.rows,
      .weight_cols = w.cols,
      .first_col = d.first_col,
      .cols = cols,
      .pitch = d.out_layout.pitch,
      .chunks = std::uint32_t(chunks),
      .group = w.group,
      .group_log2 = std::uint32_t(std::countr_zero(w.group)),
      .absmax_block = tile(w.absmax_block),
      .absmax_offset = w.absmax_offset,
      .zero_base = std::uint32_t(w.format == QuantizedFormat::gptq && w.zeros_minus_one),
      .scale_rows = tile(w.scale_rows),
      .scale_cols = tile(w.scale_cols),
      .tiles_across = tile(across)};
  load(s.device(), dequantize_variant(config_of(d)))(
      s, runtime::Launch{.grid = {std::uint32_t(chunks * down)}}, w.codes.arg(), w.scales.arg(),
      w.zeros.arg(), w.g_idx.arg(), w.absmax_table.arg(), w.absmax_scales.arg(), d.out.arg(),
      d.error_flag.arg(), p);
}

}  // namespace cgp::kernels
