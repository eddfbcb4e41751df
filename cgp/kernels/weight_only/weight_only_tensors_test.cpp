// SPDX-License-Identifier: Apache-2.0
// int4 of GPTQ and AWQ, NF4, MXFP4 and IQ4_NL through both kernels, against quant::decode() and sums in double.
#include "cgp/kernels/weight_only/weight_only_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/float16.h"
#include "cgp/kernels/common/array.h"
#include "cgp/kernels/weight_only/weight_only_pack.h"
#include "cgp/kernels/weight_only/weight_only_wgmma.h"
#include "cgp/quant/decode.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using ::testing::HasSubstr;

namespace {

// v1: zeros are stored less 1; nested: absmax is quantised; the last three are blocks, as in GGUF files.
enum class Kind { gptq, gptq_v1, awq, nf4, nf4_nested, nf4_blocks, mxfp4, iq4_nl };

struct Weight {
  Kind kind;
  std::uint64_t rows, cols, group;
  std::vector<std::uint32_t> qweight, qzeros;
  std::vector<std::uint16_t> scales;
  std::vector<std::uint8_t> codes, absmax_codes;
  std::vector<float> absmax, absmax_table, absmax_scales;

  Weight(Kind kind, std::uint64_t rows, std::uint64_t cols, std::uint64_t group = 64)
      : kind(kind), rows(rows), cols(cols), group(group) {
    std::mt19937 r(unsigned(rows + cols + group));
    const auto scale = [&] { return 0.001 + 0.01 * double(r() % 1000) / 1000; };
    const std::uint64_t groups = rows * cols / group;
    if (is_blocks()) {
      const auto& l = layout(format());
      codes.resize(rows * cols / std::uint64_t(l.file_block) * std::uint64_t(l.file_bytes));
      for (auto& c : codes) c = std::uint8_t(r());
      for (std::size_t at = 0; at < codes.size(); at += std::size_t(l.file_bytes)) {
        const float wide = float(scale());
        const auto narrow = half(scale()).bits;
        if (kind == Kind::nf4_blocks) std::memcpy(&codes[at], &wide, 4);
        if (kind == Kind::iq4_nl) std::memcpy(&codes[at], &narrow, 2);
        if (kind == Kind::mxfp4) codes[at] = std::uint8_t(at ? 118 + r() % 4 : 1);  // and a subnormal scale
      }
      return;
    }
    if (!is_nf4()) {
      for (std::uint64_t i = 0; i < rows * cols / 8; ++i) qweight.push_back(std::uint32_t(r()));
      for (std::uint64_t i = 0; i < groups / 8; ++i) qzeros.push_back(std::uint32_t(r()));
      for (std::uint64_t i = 0; i < groups; ++i) scales.push_back(half(scale()).bits);
      return;
    }
    for (std::uint64_t i = 0; i < rows * cols / 2; ++i) codes.push_back(std::uint8_t(r()));
    if (kind == Kind::nf4) {
      for (std::uint64_t i = 0; i < groups; ++i) absmax.push_back(float(scale()));
      return;
    }
    for (std::uint64_t i = 0; i < groups; ++i) absmax_codes.push_back(std::uint8_t(r()));
    for (int i = 0; i < 256; ++i) absmax_table.push_back(float(i) / 128 - 1);
    for (std::uint64_t i = 0; i < (groups + 255) / 256; ++i) absmax_scales.push_back(float(scale()));
  }
  bool is_blocks() const { return kind >= Kind::nf4_blocks; }
  bool is_nf4() const { return kind >= Kind::nf4 && kind <= Kind::nf4_blocks; }
  WeightFormat format() const {
    if (kind == Kind::mxfp4 || kind == Kind::iq4_nl)
      return kind == Kind::mxfp4 ? WeightFormat::mxfp4 : WeightFormat::iq4_nl;
    return is_nf4() ? WeightFormat::nf4 : *int4_format(group);
  }
  quant::Gptq gptq() const { return {rows, cols, group, qweight, qzeros, scales, {}, kind == Kind::gptq_v1}; }
  quant::Awq awq() const { return {rows, cols, group, qweight, qzeros, scales}; }
  quant::BnbNf4 nf4() const {
    return {rows, cols, group, codes, absmax, absmax_codes, absmax_table, absmax_scales, 256, 0.02f};
  }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> out(packed_bytes(format(), rows, cols));
    if (is_blocks())
      pack_weights(format(), rows, cols, std::as_bytes(std::span(codes)), out);
    else if (is_nf4())
      pack_weights(nf4(), out);
    else if (kind == Kind::awq)
      pack_weights(awq(), out);
    else
      pack_weights(gptq(), out);
    return out;
  }
  std::vector<float> values() const {
    std::vector<float> out(rows * cols);
    if (is_blocks())
      decode(quant::format_named(layout(format()).name), std::as_bytes(std::span(codes)), out);
    else if (is_nf4())
      decode(nf4(), out);
    else if (kind == Kind::awq)
      decode(awq(), out);
    else
      decode(gptq(), out);
    return out;
  }
};

// wgmma: `terms` of a scale in bf16, 0: the kernel on mma.
void check(const runtime::Device& device, const Weight& w, DType type, std::uint64_t m, int terms = 0,
           bool gate = false) {
  const auto packed = w.packed();
  const auto values = w.values();
  const auto x = random_array(type, {m * w.cols}, 1);
  WeightOnlyProblem p{w.format(), type, m, w.rows, w.cols};
  if (gate) p.end = WeightOnlyEnd::gate, p.activation = Activation::relu, p.pdl = true;
  const std::uint64_t columns = p.columns(), ldy = columns + 3;
  HostArray y = random_array(type, {m * ldy}, 2);
  const HostArray before = y;
  auto w_at = device.alloc<std::byte>(packed.size()), x_at = device.alloc<std::byte>(x.bytes.size()),
       y_at = device.alloc<std::byte>(y.bytes.size());
  w_at.upload(packed), x_at.upload(x.bytes), y_at.upload(y.bytes);
  p.x = x_at.address(), p.w = w_at.address(), p.y = y_at.address(), p.ldy = ldy;
  runtime::Stream s(device);
  if (terms) {
    auto c = weight_wgmma_config(p, device.info().sm_count);
    c.scale_terms = terms;
    weight_wgmma_gemm(s, p, c);
  } else {
    weight_only_gemm(s, p);
  }
  s.wait();
  y_at.download(y.bytes);
  const double u = unit_roundoff(type), u32 = unit_roundoff(DType::f32);
  // wgmma rounds a weight to the type and, with one term, its scale before; numbers of NF4 are rounded to the type.
  const int roundings = (w.is_nf4() ? 1 : 0) + (!terms ? 0 : terms == 1 || type == DType::f16 ? 2 : 1);
  const double rounding = 1.02 * u * roundings;
  std::vector<double> xs;
  for (std::uint64_t i = 0; i < m * w.cols; ++i) xs.push_back(x.at(i));
  const auto sum_of = [&](std::uint64_t i, std::uint64_t j, double& bound) {
    double sum = 0, size = 0;
    for (std::uint64_t e = 0; e < w.cols; ++e) {
      const double v = xs[i * w.cols + e] * double(values[j * w.cols + e]);
      sum += v, size += std::fabs(v);
    }
    bound = size * (rounding + (double(w.cols) + 200) * u32);
    return sum;
  };
  double worst = 0;
  for (std::uint64_t i = 0; i < m; ++i) {
    for (std::uint64_t j = 0; j < columns; ++j) {
      double bound = 0, want = sum_of(i, gate ? j / 8 * 16 + j % 8 : j, bound);
      if (gate) {
        double of_up = 0;
        const double up = sum_of(i, j / 8 * 16 + j % 8 + 8, of_up), active = std::max(want, 0.0);
        bound = bound * (std::fabs(up) + of_up) + active * of_up, want = active * up;
      }
      if (type == DType::f16 && std::fabs(want) > 65000) continue;  // infinity
      const double got = y.at(i * ldy + j), off = std::fabs(got - want);
      bound += 1.01 * u * std::fabs(want) + 1e-7;
      worst = std::max(worst, std::isfinite(got) ? off / bound : INFINITY);
    }
    for (std::uint64_t j = columns; j < ldy; ++j) EXPECT_EQ(y.at(i * ldy + j), before.at(i * ldy + j));
  }
  EXPECT_LE(worst, 1) << "group " << w.group << " " << name(type) << " " << m << "x" << w.rows << "x"
                      << w.cols << " terms " << terms;
}

TEST(weight_tensors, few_rows_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::uint64_t group : {32, 64, 128})
    for (auto type : {DType::bf16, DType::f16}) {
      check(device, Weight(Kind::gptq_v1, 40, 640, group), type, 1);
      check(device, Weight(Kind::awq, 72, 384, group), type, 5);
      check(device, Weight(Kind::gptq, 24, 256, group), type, 18);
    }
  check(device, Weight(Kind::awq, 48, 512, 128), DType::bf16, 1, 0, true);
  for (auto type : {DType::bf16, DType::f16}) {
    check(device, Weight(Kind::nf4, 37, 640), type, 1),
        check(device, Weight(Kind::nf4_nested, 70, 320), type, 5);
    check(device, Weight(Kind::nf4, 24, 256), type, 18);
    for (auto kind : {Kind::nf4_blocks, Kind::mxfp4, Kind::iq4_nl})
      check(device, Weight(kind, 37, 320), type, 1), check(device, Weight(kind, 21, 576), type, 9);
  }
}
TEST(weight_tensors, few_rows_on_sm_80) {
  const auto device = runtime::Device::open("emu:sm_80");
  check(device, Weight(Kind::gptq_v1, 40, 640, 64), DType::bf16, 3);
  for (auto kind : {Kind::nf4_blocks, Kind::mxfp4, Kind::iq4_nl})
    for (auto type : {DType::bf16, DType::f16}) check(device, Weight(kind, 37, 320), type, 1);
}
TEST(weight_tensors, wgmma_on_the_emulator) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::uint64_t group : {32, 64, 128})
    for (auto type : {DType::bf16, DType::f16})
      check(device, Weight(group == 64 ? Kind::awq : Kind::gptq_v1, 72, 384, group), type, 19, 1);
  check(device, Weight(Kind::gptq, 72, 256, 128), DType::bf16, 70, 2);
  check(device, Weight(Kind::nf4_nested, 70, 320), DType::f16, 19, 1);
  for (auto kind : {Kind::mxfp4, Kind::iq4_nl})
    for (auto type : {DType::bf16, DType::f16}) check(device, Weight(kind, 70, 320), type, 19, 1);
  for (int terms : {1, 2}) check(device, Weight(Kind::nf4, 72, 256), DType::bf16, 20, terms);
}

TEST(weight_tensors, right_on_a_gpu) {
  runtime::Device device;
  try {
    device = runtime::Device::open("cuda:0");
  } catch (const Unsupported& e) {
    GTEST_SKIP() << e.what();
  }
  for (std::uint64_t group : {32, 64, 128})
    for (auto type : {DType::bf16, DType::f16})
      for (auto kind : {Kind::gptq_v1, Kind::awq, Kind::nf4, Kind::nf4_nested, Kind::mxfp4, Kind::iq4_nl}) {
        if (group != 64 && kind >= Kind::nf4) continue;
        const Weight w(kind, 328, 1408, group), wide(kind, 72, 7168, group);
        for (std::uint64_t m : {1, 2, 5, 8, 16, 32}) check(device, w, type, m), check(device, wide, type, m);
        for (std::uint64_t m : {17, 100}) check(device, w, type, m, 1);
        check(device, wide, type, 40, 2);
        check(device, Weight(kind, 256, 1024, group), type, 1, 0, true);
        check(device, Weight(kind, 256, 1024, group), type, 40, 1, true);
      }
}

TEST(weight_tensors, packed_weights_are_the_size_that_is_stated) {
  EXPECT_EQ(packed_bytes(WeightFormat::int4_g128, 4096, 4096) * 8.0 / 4096 / 4096, 4.1875);
  EXPECT_EQ(packed_bytes(WeightFormat::int4_g64, 4096, 4096) * 8.0 / 4096 / 4096, 4.375);
  EXPECT_EQ(packed_bytes(WeightFormat::int4_g32, 4096, 4096) * 8.0 / 4096 / 4096, 4.75);
  EXPECT_EQ(packed_bytes(WeightFormat::nf4, 4096, 4096) * 8.0 / 4096 / 4096, 4.5);
}

template <class E, class F>
std::string message(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}
// The same bytes as on the host; shapes with rows and columns of a tile that are not there.
void check_packing(const runtime::Device& device, const Weight& w) {
  const auto want = w.packed();
  runtime::Stream s(device);
  auto packed = device.alloc<std::byte>(want.size());
  packed.upload(std::vector<std::byte>(want.size(), std::byte(0xa5)));
  const auto codes =
      w.qweight.empty() ? std::as_bytes(std::span(w.codes)) : std::as_bytes(std::span(w.qweight));
  const auto scales =
      w.scales.empty() ? std::as_bytes(std::span(w.absmax)) : std::as_bytes(std::span(w.scales));
  const auto put = [&](std::span<const std::byte> host) {
    auto at = device.alloc<std::byte>(host.size() + 16);
    std::vector<std::byte> copy(host.begin(), host.end());
    copy.resize(host.size() + 16);
    at.upload(copy);
    return at;
  };
  auto codes_at = put(codes), scales_at = put(scales), zeros_at = put(std::as_bytes(std::span(w.qzeros)));
  WeightPack p{w.format(), w.rows, w.cols, codes_at.address(), 0, packed.address()};
  p.source = w.is_blocks()         ? WeightSource::blocks
             : w.is_nf4()          ? WeightSource::bnb
             : w.kind == Kind::awq ? WeightSource::awq
                                   : WeightSource::gptq;
  p.scales = scales_at.address(), p.zeros = zeros_at.address(), p.zeros_minus_one = w.kind == Kind::gptq_v1;
  if (w.is_blocks()) p.scales = p.zeros = 0;
  ASSERT_EQ(reject(p), "");
  pack_weights(s, p);
  s.wait();
  std::vector<std::byte> got(want.size());
  packed.download(got);
  EXPECT_TRUE(got == want) << layout(p.format).name << " " << int(w.kind) << " " << w.rows << "x" << w.cols;
}
void check_packing(const runtime::Device& device) {
  for (std::uint64_t group : {32, 64, 128})
    for (auto kind : {Kind::gptq, Kind::gptq_v1, Kind::awq})
      check_packing(device, Weight(kind, 40, 384, group));
  check_packing(device, Weight(Kind::nf4, 37, 320)), check_packing(device, Weight(Kind::nf4_blocks, 37, 320));
  check_packing(device, Weight(Kind::mxfp4, 37, 288)), check_packing(device, Weight(Kind::iq4_nl, 37, 288));
}
TEST(weight_tensors, packed_on_the_emulator) {
  for (auto arch : {"emu:sm_75", "emu:sm_90a"}) check_packing(runtime::Device::open(arch));
}

TEST(weight_tensors, what_cannot_be_packed_is_named) {
  const Weight w(Kind::gptq, 16, 128, 64), odd(Kind::awq, 16, 128, 16);
  std::vector<std::byte> to(packed_bytes(WeightFormat::int4_g64, 16, 128));
  EXPECT_FALSE(int4_format(16));
  EXPECT_THAT(message<Unsupported>([&] { pack_weights(odd.awq(), to); }), HasSubstr("group = 16"));
  std::vector<std::int32_t> order(128);
  for (int i = 0; i < 128; ++i) order[std::size_t(i)] = i / 64;
  auto g = w.gptq();
  g.g_idx = order;
  pack_weights(g, to);
  EXPECT_EQ(to, w.packed());
  std::swap(order[0], order[127]);
  EXPECT_THAT(message<ArgumentError>([&] { pack_weights(g, to); }), HasSubstr("packed weights have"));
  std::vector<std::byte> with_inputs(to.size() + 4 * 128);
  pack_weights(g, with_inputs);
  EXPECT_EQ(packed_inputs(g)[63], 127u);
  EXPECT_EQ(packed_inputs(g)[64], 0u);
  order[0] = 0;  // 65 inputs of group 0
  EXPECT_THAT(message<Unsupported>([&] { pack_weights(g, with_inputs); }),
              HasSubstr("g_idx[127] is 0, of 2 groups"));
  g.g_idx = {}, to.pop_back();
  EXPECT_THAT(message<ArgumentError>([&] { pack_weights(g, to); }), HasSubstr("packed weights have"));
  g.scales = g.scales.first(3);
  EXPECT_THAT(message<ArgumentError>([&] { pack_weights(g, to); }), HasSubstr("scales must have"));
  const Weight nf4(Kind::nf4, 16, 160, 32), cut(Kind::nf4, 16, 96);
  EXPECT_THAT(message<Unsupported>([&] { pack_weights(nf4.nf4(), to); }),
              HasSubstr("block = 32, cols = 160"));
  EXPECT_THAT(message<Unsupported>([&] { pack_weights(cut.nf4(), to); }), HasSubstr("block = 64, cols = 96"));
  WeightOnlyProblem p{WeightFormat::int4_g128, DType::bf16, 1, 64, 4160, 256, 0, 256, 256, 0};
  EXPECT_THAT(reject(p), HasSubstr("k = 4160 is no multiple of a group of 128"));
  EXPECT_THAT(reject_wgmma(p), HasSubstr("k = 4160 is no multiple of a group of 128"));
  EXPECT_THAT(reject(WeightPack{WeightFormat::int4_g64, 16, 256, 16, 0, 16}),
              HasSubstr("its codes and scales are tensors"));
  WeightPack other{WeightFormat::nf4, 16, 256, 16, 0, 16, WeightSource::awq, 16, 16};
  EXPECT_THAT(reject(other), HasSubstr("source has other codes"));
  other.format = WeightFormat::int4_g64, other.zeros = 0;
  EXPECT_THAT(reject(other), HasSubstr("scales and zeros must be given"));
  other.zeros = 16, other.n = 12;
  EXPECT_THAT(reject(other), HasSubstr("n = 12 is no multiple of 8"));
  EXPECT_THROW(pack_weights(WeightFormat::int4_g64, 16, 128, {}, to), ArgumentError);
}

TEST(weight_tensors, names_round_trip_and_variants_assemble) {
  std::vector<Variant> all;
  for (auto [f, type] : {std::pair{WeightFormat::int4_g32, DType::f16},
                         {WeightFormat::int4_g64, DType::bf16},
                         {WeightFormat::int4_g128, DType::bf16},
                         {WeightFormat::nf4, DType::bf16},
                         {WeightFormat::nf4, DType::f16},
                         {WeightFormat::mxfp4, DType::bf16},
                         {WeightFormat::iq4_nl, DType::bf16}}) {
    for (std::uint64_t m : {1, 16})
      all.push_back(weight_only_variant(weight_only_config({f, type, m, 4096, 4096}, 132)));
    all.push_back(weight_wgmma_variant(weight_wgmma_config({f, type, 64, 4096, 4096}, 132)));
  }
  for (const auto& v : all)
    EXPECT_EQ(
        v.config->round_trip(v.name.starts_with("weight_wgmma") ? "weight_wgmma" : "weight_only", v.name),
        v.name);
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_90a"}, all));
  all.clear();
  for (auto source : {WeightSource::gptq, WeightSource::awq})
    for (auto f : {WeightFormat::int4_g32, WeightFormat::int4_g128})
      all.push_back(weight_pack_variant({f, source}));
  all.push_back(weight_pack_variant({WeightFormat::nf4, WeightSource::bnb}));
  for (auto f : {WeightFormat::nf4, WeightFormat::mxfp4, WeightFormat::iq4_nl})
    all.push_back(weight_pack_variant({f}));
  cgp::testing::expect_assemble(cgp::testing::images_for({"sm_75", "sm_90a"}, all));
}

}  // namespace
