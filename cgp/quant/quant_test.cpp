// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/quant/blocks.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"
#include "cgp/quant/encode_layouts.h"
#include "cgp/quant/layouts.h"

using namespace cgp;
using namespace cgp::quant;

namespace {

// Lines of vectors.txt: kind, format, then fields (make_vectors.py says which).
std::vector<std::vector<std::string>> vectors(const std::string& kind) {
  std::ifstream in(CGP_SOURCE_DIR "/cgp/quant/vectors.txt");
  std::vector<std::vector<std::string>> all;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string w; words >> w;) fields.push_back(w);
    if (fields.at(0) == kind) all.push_back(fields);
  }
  return all;
}
std::vector<std::byte> bytes(const std::string& hex) {
  std::vector<std::byte> out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(std::byte(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}
std::vector<float> floats(const std::string& hex) {
  const auto b = bytes(hex);
  std::vector<float> out(b.size() / 4);
  std::memcpy(out.data(), b.data(), b.size());
  return out;
}
std::uint32_t crc32(const void* data, std::size_t n) {
  std::uint32_t crc = ~0u;
  for (std::size_t i = 0; i < n; ++i) {
    crc ^= static_cast<const std::uint8_t*>(data)[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}
template <class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const ArgumentError& e) {
    return e.what();
  }
  return "";
}
// Values that no decoder writes: where they are still there nothing was written.
std::vector<float> unwritten(std::size_t n) { return std::vector<float>(n, -12345.f); }
bool untouched(const std::vector<float>& v) { return v == unwritten(v.size()); }

}  // namespace

TEST(quant, decoding_equals_the_reference_bit_by_bit) {
  std::map<std::string, std::string> crc;
  for (const auto& v : vectors("crc")) crc[v[1]] = v[2];
  int seen = 0;
  for (const auto& v : vectors("decode")) {
    const auto& i = info(format_named(v[1]));
    const auto blocks = bytes(v[2]);
    const auto want = floats(v[3]);
    std::vector<float> got(i.elements * 4);
    decode(i.format, blocks, got);
    for (std::size_t e = 0; e < want.size(); ++e)
      ASSERT_EQ(std::memcmp(&got[e], &want[e], 4), 0) << v[1] << " " << e << ": " << got[e] << " " << want[e];
    EXPECT_EQ(crc32(got.data(), got.size() * 4), std::stoul(crc[v[1]], nullptr, 16)) << v[1];
    ++seen;
  }
  EXPECT_EQ(seen, 23);
}

TEST(quant, encoding_equals_the_reference_bit_by_bit) {
  for (const auto& v : vectors("encode")) {
    const auto f = format_named(v[1]);
    const auto values = floats(v[2]);
    const auto want = bytes(v[3]);
    std::vector<std::byte> got(want.size());
    encode(f, values, got);
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(int(got[i]), int(want[i])) << v[1] << ", byte " << i << " of " << want.size();
  }
}

TEST(quant, k_formats_are_never_worse_than_ggml) {
  int seen = 0;
  for (const auto& v : vectors("rmse")) {
    const auto f = format_named(v[1]);
    const auto values = floats(v[2]);
    std::vector<std::byte> blocks(bytes_of(f, values.size()));
    std::vector<float> back(values.size());
    encode(f, values, blocks), decode(f, blocks, back);
    double error = 0;
    for (std::size_t i = 0; i < values.size(); ++i)
      error += double(back[i] - values[i]) * double(back[i] - values[i]);
    EXPECT_LE(std::sqrt(error / double(values.size())), std::stod(v[3])) << v[1] << ", vector " << seen;
    ++seen;
  }
  EXPECT_EQ(seen, 25);
}

TEST(quant, k_formats_at_the_edges) {
  for (const auto f : {Format::q2_k, Format::q3_k, Format::q4_k, Format::q5_k, Format::q6_k}) {
    std::vector<std::byte> blocks(bytes_of(f, 256));
    std::vector<float> back(256);
    for (const float v : {0.f, 1.f, -1.f, 1e-6f, -3e-8f, 6e4f}) {  // constant blocks
      const std::vector<float> x(256, v);
      encode(f, x, blocks), decode(f, blocks, back);
      for (const float y : back) EXPECT_NEAR(y, v, 1e-3 * std::fabs(v) + 1.2e-7) << info(f).name;
    }
    std::vector<float> x(256, 0.f);
    x[5] = 3e38f, x[6] = -3e38f;
    const auto before = blocks;
    EXPECT_NE(message([&] { encode(f, x, blocks); }).find("binary16"), std::string::npos) << info(f).name;
    EXPECT_EQ(blocks, before);
  }
}

// Formats with a fixed number of bits a weight stay within this part of a normal distribution's deviation.
TEST(quant, what_is_encoded_comes_back_within_the_formats_error) {
  std::vector<float> x(64 * 256);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = float(std::sin(double(i) * 1.7) + std::sin(double(i * i % 977)));
  double power = 0;
  for (float v : x) power += double(v) * double(v);
  const std::map<std::string_view, double> most = {
      {"f32", 0},      {"f16", 3e-4},   {"bf16", 3e-3}, {"q4_0", 0.09},  {"q4_1", 0.08}, {"q2_k", 0.35},
      {"q3_k", 0.18},  {"q5_0", 0.045}, {"q5_1", 0.04}, {"q8_0", 0.006}, {"q4_k", 0.08}, {"q5_k", 0.04},
      {"q6_k", 0.025}, {"mxfp4", 0.15}, {"nf4", 0.11},  {"tq1_0", 0.8},  {"tq2_0", 0.8}};
  for (const auto& i : all_formats()) {
    if (!i.encodes) continue;
    std::vector<std::byte> blocks(bytes_of(i.format, x.size()));
    std::vector<float> y(x.size());
    encode(i.format, x, blocks);
    decode(i.format, blocks, y);
    double error = 0;
    for (std::size_t e = 0; e < x.size(); ++e) error += double(x[e] - y[e]) * double(x[e] - y[e]);
    ASSERT_TRUE(most.contains(i.name)) << i.name;
    EXPECT_LE(std::sqrt(error / power), most.at(i.name)) << i.name;
  }
}

TEST(quant, bad_blocks_are_named_and_nothing_is_written) {
  auto out = unwritten(256);
  std::vector<std::byte> blocks(144);
  EXPECT_NE(message([&] {
              decode(Format::q4_k, std::span(blocks).first(143), out);
            }).find("256 values of q4_k take 144 bytes"),
            std::string::npos);
  EXPECT_NE(
      message([&] { decode(Format::q4_k, blocks, std::span(out).first(255)); }).find("whole blocks of 256"),
      std::string::npos);
  blocks[1] = std::byte(0x7e);  // d is NaN
  EXPECT_NE(message([&] { decode(Format::q4_k, blocks, out); }).find("scales of q4_k blocks must be finite"),
            std::string::npos);
  std::vector<std::byte> micro(17);
  micro[0] = std::byte(255);
  EXPECT_NE(message([&] { decode(Format::mxfp4, micro, std::span(out).first(32)); }), "");
  EXPECT_TRUE(untouched(out));

  std::vector<float> x(32, 1.f);
  std::vector<std::byte> made(18, std::byte(9));
  x[31] = NAN;
  EXPECT_NE(message([&] { encode(Format::q4_0, x, made); }).find("element 31"), std::string::npos);
  x[31] = 3e38f;
  EXPECT_NE(message([&] { encode(Format::q4_0, x, made); }).find("binary16"), std::string::npos);
  EXPECT_NE(message([&] { encode(Format::iq4_nl, x, made); }).find("iq4_nl is decoded only"),
            std::string::npos);
  EXPECT_EQ(made, std::vector<std::byte>(18, std::byte(9)));
}

TEST(quant, unknown_formats_are_named) {
  EXPECT_EQ(format_of_ggml_type(12), Format::q4_k);
  EXPECT_EQ(format_named("q6_k"), Format::q6_k);
  EXPECT_NE(message([] { (void)format_of_ggml_type(4, "blk.0.attn_q.weight"); }).find("blk.0.attn_q.weight"),
            std::string::npos);
  EXPECT_NE(message([] { (void)format_of_ggml_type(1000); }).find("GGML type 1000"), std::string::npos);
  EXPECT_NE(message([] { (void)format_named("q4k"); }).find("q4_k"), std::string::npos);
  EXPECT_NE(message([] { (void)bytes_of(Format::q4_k, 100); }).find("whole blocks of 256"),
            std::string::npos);
  EXPECT_NE(message([] { (void)bytes_of(Format::f32, ~0ull); }), "");
}

namespace {

std::uint16_t f16(float v) { return half{double(v)}.bits; }
// A weight [16, 16] in groups of 8 inputs whose code at (row, col) is known.
int code_at(std::uint64_t row, std::uint64_t col) { return int((row * 5 + col * 3 + row * col) % 16); }
int zero_at(std::uint64_t row, std::uint64_t group) { return int((row + 7 * group) % 15) + 1; }
float scale_at(std::uint64_t row, std::uint64_t group) { return 0.125f * float(row + 1) + float(group); }

}  // namespace

TEST(quant, gptq_packs_inputs_and_awq_interleaves_outputs) {
  constexpr std::uint64_t n = 16, group = 8, groups = 2;
  std::vector<std::uint32_t> gptq(n * n / 8), awq(n * n / 8), gptq_zeros(groups * n / 8),
      awq_zeros(groups * n / 8);
  std::vector<std::uint16_t> scales(groups * n);
  const int order[] = {0, 2, 4, 6, 1, 3, 5, 7};  // the outputs of a word, from its lowest nibble
  for (std::uint64_t row = 0; row < n; ++row)
    for (std::uint64_t col = 0; col < n; ++col) {
      gptq[col / 8 * n + row] |= std::uint32_t(code_at(row, col)) << (4 * (col % 8));
      const auto place = std::find(order, order + 8, int(row % 8)) - order;
      awq[(col * n + row) / 8] |= std::uint32_t(code_at(row, col)) << (4 * place);
      if (col % group) continue;
      const auto g = col / group;
      gptq_zeros[(g * n + row) / 8] |= std::uint32_t(zero_at(row, g) - 1) << (4 * (row % 8));
      awq_zeros[(g * n + row) / 8] |= std::uint32_t(zero_at(row, g)) << (4 * place);
      scales[g * n + row] = f16(scale_at(row, g));
    }
  auto got = unwritten(n * n);
  std::vector<std::int32_t> order_of_groups(n);
  for (std::size_t i = 0; i < n; ++i) order_of_groups[i] = i % 2;
  const auto check = [&](const char* what, bool act_order) {
    for (std::uint64_t row = 0; row < n; ++row)
      for (std::uint64_t col = 0; col < n; ++col) {
        const auto g = act_order ? col % 2 : col / group;
        EXPECT_EQ(got[row * n + col], scale_at(row, g) * float(code_at(row, col) - zero_at(row, g)))
            << what << " " << row << " " << col;
      }
  };
  Gptq w{n, n, group, gptq, gptq_zeros, scales};
  decode(w, got), check("GPTQ", false);
  w.g_idx = order_of_groups;
  decode(w, got), check("GPTQ in order of activations", true);
  decode(Awq{n, n, group, awq, awq_zeros, scales}, got), check("AWQ", false);

  got = unwritten(n * n);
  order_of_groups[3] = 2;
  EXPECT_NE(message([&] { decode(w, got); }).find("g_idx[3] is 2"), std::string::npos);
  w.g_idx = {}, w.group = 12;
  EXPECT_NE(message([&] { decode(w, got); }).find("group must be a multiple of 8"), std::string::npos);
  w.group = 32;
  EXPECT_NE(message([&] { decode(w, got); }).find("cols must be a multiple of 32"), std::string::npos);
  w.group = group, w.qweight = w.qweight.first(31);
  EXPECT_NE(message([&] { decode(w, got); }).find("qweight must have 32 elements"), std::string::npos);
  scales[5] = 0x7e00;
  EXPECT_NE(message([&] {
              decode(Awq{n, n, group, awq, awq_zeros, scales}, got);
            }).find("scales[5]"),
            std::string::npos);
  EXPECT_TRUE(untouched(got));
}

TEST(quant, nf4_with_double_quantised_absmax) {
  std::vector<std::uint8_t> codes(64), absmax_codes{3, 200};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = std::uint8_t(i * 37);
  std::vector<float> table(256), scales{2.5f};
  for (std::size_t i = 0; i < 256; ++i) table[i] = float(i) / 256.f;
  BnbNf4 w{.rows = 2,
           .cols = 64,
           .codes = codes,
           .absmax_codes = absmax_codes,
           .absmax_table = table,
           .absmax_scales = scales,
           .absmax_offset = 0.0625f};
  auto got = unwritten(128);
  decode(w, got);
  for (std::size_t i = 0; i < 128; ++i) {
    const float absmax = table[absmax_codes[i / 64]] * 2.5f + 0.0625f;
    EXPECT_EQ(got[i], absmax * kNf4[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4]) << i;
  }
  got = unwritten(128), scales[0] = INFINITY;
  EXPECT_NE(message([&] { decode(w, got); }).find("absmax must be finite"), std::string::npos);
  w.absmax_codes = w.absmax_codes.first(1);
  EXPECT_NE(message([&] { decode(w, got); }).find("absmax_codes must have 2 elements"), std::string::npos);
  EXPECT_TRUE(untouched(got));
}

TEST(quant, fp8_with_scales_of_blocks_rows_and_all) {
  constexpr std::uint64_t rows = 5, cols = 7;
  std::vector<std::uint8_t> codes(rows * cols);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = std::uint8_t(i * 7 % 126);
  for (const auto& [tile_rows, tile_cols] :
       {std::pair<std::uint64_t, std::uint64_t>{2, 4}, {1, cols}, {rows, cols}}) {
    const std::uint64_t down = (rows + tile_rows - 1) / tile_rows,
                        across = (cols + tile_cols - 1) / tile_cols;
    std::vector<float> scales(down * across);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = 0.3f + float(i);
    auto got = unwritten(rows * cols);
    Fp8 w{rows, cols, DType::e4m3, tile_rows, tile_cols, codes, scales};
    decode(w, got);
    for (std::uint64_t i = 0; i < rows * cols; ++i)
      EXPECT_EQ(got[i], scales[i / cols / tile_rows * across + i % cols / tile_cols] *
                            float(float8_e4m3::from_bits(codes[i])));
    got = unwritten(rows * cols), w.scales = w.scales.first(scales.size() - 1);
    EXPECT_NE(message([&] { decode(w, got); }).find("fp8: scales must have"), std::string::npos);
    EXPECT_TRUE(untouched(got));
  }
}

TEST(quant, int4_and_fp8_come_back_within_their_error) {
  constexpr std::uint64_t rows = 16, cols = 256;
  std::vector<float> x(rows * cols), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = float(std::sin(double(i) * 1.7) + std::sin(double(i * i % 977))) * float(1 + i / cols);
  const auto relative = [&] {
    double error = 0, power = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      error += double(x[i] - y[i]) * double(x[i] - y[i]), power += double(x[i]) * double(x[i]);
    return std::sqrt(error / power);
  };
  const auto int4 = encode_int4(x, rows, cols, 64);
  decode(Gptq{rows, cols, 64, int4.qweight, int4.qzeros, int4.scales, {}, false}, y);
  EXPECT_LE(relative(), 0.09);
  const auto fp8 = encode_fp8(x, rows, cols, 8, 100);
  EXPECT_EQ(fp8.scales.size(), 6u);
  decode(Fp8{rows, cols, DType::e4m3, 8, 100, fp8.codes, fp8.scales}, y);
  EXPECT_LE(relative(), 0.03);
  EXPECT_NE(message([&] { encode_int4(x, rows, cols, 60); }).find("group = 60"), std::string::npos);
  x[7] = NAN;
  EXPECT_NE(message([&] { encode_int4(x, rows, cols, 64); }).find("element 7"), std::string::npos);
  EXPECT_NE(message([&] { encode_fp8(x, rows, cols, 8, 8); }).find("element 7"), std::string::npos);
  x.assign(x.size(), 0.f);
  const auto none = encode_int4(x, rows, cols, 64);
  decode(Gptq{rows, cols, 64, none.qweight, none.qzeros, none.scales, {}, false}, y);
  EXPECT_EQ(y, x);
}
