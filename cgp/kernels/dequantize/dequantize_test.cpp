// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/dequantize/dequantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/kernels/dequantize/dequantize_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;
using ::testing::HasSubstr;

namespace {

constexpr std::size_t kFormats = std::size_t(QuantizedFormat::fp8_e5m2) + 1;

std::uint64_t block_elements(QuantizedFormat f) {
  const auto blocks = block_format(f);
  return blocks ? quant::info(*blocks).elements : 8;
}
/// Columns that every format can have about that many of.
std::uint64_t columns_of(QuantizedFormat f) { return block_elements(f) < 32 ? 48 : 2 * block_elements(f); }

/// A weight on a device, its tensors `shift` bytes behind aligned addresses.
struct OnDevice {
  runtime::Device device;
  HostWeight host;
  std::vector<runtime::Buffer<std::byte>> memory{};
  QuantizedWeight weight{};

  OnDevice(const runtime::Device& d, HostWeight h, std::uint64_t shift = 0) : device(d), host(std::move(h)) {
    weight = host.shape;
    weight.codes = give(host.codes, shift), weight.scales = give(host.scales, 0);
    weight.zeros = give(host.zeros, 0), weight.g_idx = give(host.g_idx, 0);
    weight.absmax_table = give(host.absmax_table, 0), weight.absmax_scales = give(host.absmax_scales, 0);
  }
  View give(const HostArray& a, std::uint64_t shift) {
    if (a.shape.empty()) return {};
    std::vector<std::byte> bytes(shift);
    bytes.insert(bytes.end(), a.bytes.begin(), a.bytes.end());
    memory.push_back(device.alloc<std::byte>(bytes.size()));
    memory.back().upload(bytes);
    return View(memory.back().address() + shift, a.size(), a.dtype, false, device.backend().get());
  }
};

QuantizedWeight shape(QuantizedFormat f, std::uint64_t rows, std::uint64_t cols) {
  QuantizedWeight w;
  w.format = f, w.rows = rows, w.cols = cols, w.group = 16, w.scale_rows = 3, w.scale_cols = 24;
  return w;
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

}  // namespace

TEST(dequantize, every_format_equals_the_decoder_in_every_type) {
  for (std::size_t i = 0; i < kFormats; ++i) {
    const auto f = QuantizedFormat(i);
    const auto cols = 2 * columns_of(f);
    for (const char* type : {"f32", "f16", "bf16"})
      expect_right(dequantize_entry(), {{"format", std::string(name(f))},
                                        {"dtype", type},
                                        {"rows", "8"},
                                        {"cols", std::to_string(cols)},
                                        {"group", "32"},
                                        {"scale_rows", "3"},
                                        {"scale_cols", "40"}});
  }
}

TEST(dequantize, ragged_shapes) {
  const auto run = [](const char* format, const char* type, const char* rows, const char* cols,
                      const char* group = "8", const char* flag = "0", const char* tile = "1") {
    expect_right(dequantize_entry(), {{"format", format},
                                      {"dtype", type},
                                      {"rows", rows},
                                      {"cols", cols},
                                      {"group", group},
                                      {"g_idx", flag},
                                      {"nested", flag},
                                      {"scale_rows", tile},
                                      {"scale_cols", tile}});
  };
  run("q4_k", "f16", "0", "256"), run("q5_0", "bf16", "5", "0"), run("q4_k", "f32", "3", "2304");
  run("f16", "f32", "3", "7"), run("bf16", "bf16", "5", "13"), run("f32", "f16", "1", "1"),
      run("f16", "f16", "2", "2056");
  run("gptq", "bf16", "8", "8"), run("gptq", "f16", "40", "264", "24", "1"),
      run("gptq", "f32", "24", "48", "16", "1");
  run("awq", "f16", "8", "8"), run("awq", "f32", "136", "272", "16"), run("awq", "bf16", "64", "64", "64");
  run("bnb_nf4", "bf16", "3", "10", "6", "1"), run("bnb_nf4", "f16", "2", "7", "64");
  run("bnb_nf4", "f32", "5", "48", "64", "1"), run("bnb_nf4", "f32", "33", "64", "8", "1");
  run("fp8_e4m3", "f32", "5", "7", "8", "0", "3"), run("fp8_e5m2", "bf16", "3", "2064", "8", "0", "4000");
  run("fp8_e4m3", "f16", "4", "16", "8", "0", "5"), run("fp8_e5m2", "f32", "7", "40", "8", "0", "8");
}

TEST(dequantize, runs_on_every_architecture) {
  for (auto arch : kTargets)
    for (const char* f : {"q6_k", "iq3_s", "mxfp4", "fp8_e4m3", "gptq", "awq", "bnb_nf4"})
      expect_right(dequantize_entry(), {{"format", f}, {"rows", "8"}, {"cols", "256"}}, arch);
}

// Rows in the middle of the weight, results with a pitch, at any address: nothing else is written.
TEST(dequantize, slabs_at_any_alignment) {
  const auto device = runtime::Device::open("emu:sm_80");
  for (std::size_t i = 0; i < kFormats; ++i) {
    const auto f = QuantizedFormat(i);
    const std::uint64_t rows = 24, cols = columns_of(f), first = 8, count = 8;
    for (std::uint64_t shift : {0, 1, 2}) {
      for (std::uint64_t pitch : {cols, cols + 3, cols + 8}) {
        const bool bytes = block_format(f) ? block_elements(f) > 1 : f >= QuantizedFormat::bnb_nf4;
        if (shift && !bytes) continue;
        OnDevice w(device, random_weight(shape(f, rows, cols), shift, shift, 7), shift);
        const auto want = decoded(w.host);
        std::vector<float> start(count * pitch + 1, -77.f);
        auto out = device.upload<float>(start);
        Dequantize d;
        d.weight = w.weight, d.first_row = first, d.rows = count, d.out_layout.pitch = pitch;
        d.out =
            View(out.address() + 4 * (shift == 2), count * pitch, DType::f32, true, device.backend().get());
        dequantize(device.stream(), d);
        device.sync();
        const auto got = out.to_vector();
        for (std::uint64_t at = 0; at < got.size(); ++at) {
          const std::uint64_t e = at - (shift == 2), r = e / pitch, c = e % pitch;
          const bool inside = at >= (shift == 2) && r < count && c < cols;
          ASSERT_EQ(got[at], inside ? want[(first + r) * cols + c] : -77.f)
              << name(f) << " shift " << shift << " pitch " << pitch << " at " << at;
        }
      }
    }
  }
}

TEST(dequantize, columns_from_the_middle) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::size_t i = 0; i < kFormats; ++i) {
    const auto f = QuantizedFormat(i);
    const std::uint64_t step = column_step(f), cols = 6 * std::max<std::uint64_t>(step, 16);
    OnDevice w(device, random_weight(shape(f, 16, cols), true, true, 7));
    const auto want = decoded(w.host);
    auto out = device.zeros<float>(8 * 2 * step);
    Dequantize d;
    d.weight = w.weight, d.first_row = 8, d.rows = 8, d.first_col = 3 * step, d.cols = 2 * step, d.out = out;
    dequantize(device.stream(), d);
    device.sync();
    const auto got = out.to_vector();
    for (std::uint64_t at = 0; at < got.size(); ++at)
      ASSERT_EQ(got[at], want[(8 + at / d.cols) * cols + d.first_col + at % d.cols]) << name(f) << " " << at;
    d.first_col += 1;
    EXPECT_THAT(message([&] { dequantize(device.stream(), d); }), HasSubstr("cols must be multiples of"));
    d.first_col = cols - step;
    EXPECT_THAT(message([&] { dequantize(device.stream(), d); }), HasSubstr("columns of the weight"));
  }
}

TEST(dequantize, scales_that_are_no_numbers_are_flagged) {
  const auto device = runtime::Device::open("emu:sm_90a");
  for (std::size_t i = 0; i < kFormats; ++i) {
    const auto f = QuantizedFormat(i);
    if (block_elements(f) == 1) continue;  // values, no scales
    for (bool bad : {false, true}) {
      auto host = random_weight(shape(f, 8, columns_of(f)), false, false, 3);
      if (const auto blocks = block_format(f); bad && blocks) {
        std::fill(host.codes.bytes.begin(), host.codes.bytes.end(), std::byte(255));  // NaN in every format
        EXPECT_NE(message([&] { (void)decoded(host); }), "") << name(f);
      } else if (bad) {
        host.scales.set(1, NAN);
      }
      OnDevice w(device, host);
      auto out = device.zeros<float>(w.weight.rows * w.weight.cols);
      auto error_flag = device.zeros<std::uint32_t>(1);
      Dequantize d;
      d.weight = w.weight, d.rows = 8, d.out = out, d.error_flag = error_flag;
      dequantize(device.stream(), d);
      device.sync();
      EXPECT_EQ(error_flag.to_vector()[0], bad) << name(f);
    }
  }
}

TEST(dequantize, what_does_not_fit_is_named_and_nothing_runs) {
  const auto device = runtime::Device::open("emu:sm_90a");
  auto out = device.zeros<float>(8 * 256);
  const auto why = [&](QuantizedWeight w, std::uint64_t rows = 8) {
    Dequantize d;
    d.weight = w, d.rows = rows, d.out = out;
    return message([&] { dequantize(device.stream(), d); });
  };
  OnDevice k(device, random_weight(shape(QuantizedFormat::q4_k, 8, 256), false, false, 1));
  OnDevice g(device, random_weight(shape(QuantizedFormat::gptq, 8, 256), false, false, 1));
  OnDevice n(device, random_weight(shape(QuantizedFormat::bnb_nf4, 8, 256), false, true, 1));
  for (const auto& w : {k.weight, g.weight, n.weight}) EXPECT_EQ(why(w), "");
  auto w = k.weight;
  w.cols = 250;
  EXPECT_THAT(why(w), HasSubstr("cols must be a multiple of 256, the elements of a block of q4_k"));
  w = k.weight, w.codes.elements -= 1;
  EXPECT_THAT(why(w), HasSubstr("codes of q4_k [8, 256] must have 1152 bytes"));
  EXPECT_THAT(why(w), HasSubstr("there are 1151"));
  EXPECT_THAT(why(k.weight, 9), HasSubstr("rows must be rows of the weight"));
  w = k.weight, w.scales = g.weight.scales;
  EXPECT_THAT(why(w), HasSubstr("scales is no tensor of q4_k"));
  w = g.weight, w.group = 12;
  EXPECT_THAT(why(w), HasSubstr("group must be a multiple of 8"));
  w = g.weight, w.group = 48;
  EXPECT_THAT(why(w), HasSubstr("cols must be a multiple of 48"));
  w = g.weight, w.zeros = {};
  EXPECT_THAT(why(w), HasSubstr("zeros must be given"));
  EXPECT_THAT(why(g.weight, 4), HasSubstr("rows must be multiples of 8"));
  w = n.weight, w.absmax_table.elements = 16;
  EXPECT_THAT(why(w), HasSubstr("absmax_table"));
  EXPECT_THAT(message([] { (void)quantized_format_named("q4k"); }), HasSubstr("q4_k"));
}

TEST(dequantize, names_round_trip_and_variants_assemble) {
  DequantizeConfig c{QuantizedFormat::bnb_nf4, DType::f16};
  c.ragged = c.scalar = c.nested = c.checked = true;
  const auto v = dequantize_variant(c);
  EXPECT_EQ(v.config->round_trip("dequantize", v.name), v.name);
  expect_assembles(dequantize_entry());
}

TEST(dequantize, right_on_a_gpu) {
  expect_right_on_gpu(dequantize_entry(),
                      {{{"format", "q4_0"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "q4_k"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "q6_k"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "iq2_s"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "iq1_m"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "mxfp4"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "gptq"}, {"rows", "1000"}, {"cols", "4096"}, {"g_idx", "1"}},
                       {{"format", "awq"}, {"rows", "1000"}, {"cols", "4096"}},
                       {{"format", "bnb_nf4"}, {"rows", "1000"}, {"cols", "4096"}, {"nested", "1"}},
                       {{"format", "fp8_e4m3"}, {"rows", "1000"}, {"cols", "4100"}}});
}
