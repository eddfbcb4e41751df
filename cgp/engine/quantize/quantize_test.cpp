// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/quantize/quantize.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/gguf/gguf_writer.h"
#include "cgp/quant/decode.h"
#include "cgp/quant/encode.h"

namespace cgp::engine {
namespace {

using text::cat;

/// A file with the names of a llama of `layers` layers, rows of `row` values.
std::string file_of(int layers, std::uint64_t row, bool has_output, int experts = 0,
                    const char* type = "F32") {
  static std::vector<float> values(4096);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = float(std::sin(double(i * i % 971)) / 3);
  const model::GgmlType& ggml = *model::find_ggml_type(type);
  const auto data = std::as_bytes(std::span(values)).first(2 * row / ggml.block_elements * ggml.block_bytes);
  const auto plain = std::as_bytes(std::span(values)).first(4 * row);
  model::GgufWriter w;
  w.add("general.architecture", "llama");
  w.add("general.file_type", 0u);
  w.add("llama.block_count", unsigned(layers));
  w.add("llama.attention.head_count", 32u), w.add("llama.attention.head_count_kv", 8u);
  if (experts) w.add("llama.expert_count", unsigned(experts));
  const std::vector<std::string_view> words{"a", "b"};
  w.add_array("tokenizer.ggml.tokens", words);
  w.add_tensor("token_embd.weight", ggml, {row, 2}, data);
  // Not in the order of layers, as some files are.
  for (int l = layers - 1; l >= 0; --l) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_down"})
      w.add_tensor(cat("blk.", l, ".", name, ".weight"), ggml, {row, 2}, data);
    w.add_tensor(cat("blk.", l, ".attn_norm.weight"), *model::find_ggml_type("F32"), {row}, plain);
  }
  if (has_output) w.add_tensor("output.weight", ggml, {row, 2}, data);
  return w.bytes();
}

struct Types {
  explicit Types(std::string bytes)
      : text(std::move(bytes)), file(model::Gguf::parse(std::as_bytes(std::span(text)), "test")) {}
  std::string of(const char* mix, const std::string& tensor) const {
    const auto types = quantized_types(file, quantize_mix(mix));
    for (std::size_t i = 0; i < types.size(); ++i)
      if (file.tensors()[i].name == tensor) return std::string(types[i]);
    return "absent";
  }
  std::string text;
  model::Gguf file;
};

TEST(engine_quantize, MixesGiveWhatLlamaCppGives) {
  const Types t(file_of(32, 256, true));
  // Llama 7B: half of the layers have more bits.
  for (const char* name : {"attn_v", "ffn_down"}) {
    std::string more;
    for (int l = 0; l < 32; ++l)
      if (t.of("Q4_K_M", cat("blk.", l, ".", name, ".weight")) == "Q6_K") more += cat(l, " ");
    EXPECT_EQ(more, "0 1 2 3 6 9 12 15 18 21 24 27 28 29 30 31 ");
  }
  EXPECT_EQ(t.of("q4_k_m", "blk.4.attn_v.weight"), "Q4_K");
  EXPECT_EQ(t.of("Q4_K_M", "output.weight"), "Q6_K");
  EXPECT_EQ(t.of("Q4_K_M", "token_embd.weight"), "Q4_K");
  EXPECT_EQ(t.of("Q4_K_M", "blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(t.of("Q5_K_M", "blk.0.attn_v.weight"), "Q6_K");
  EXPECT_EQ(t.of("Q4_K_S", "blk.3.ffn_down.weight"), "Q5_K");
  EXPECT_EQ(t.of("Q4_K_S", "blk.4.ffn_down.weight"), "Q4_K");
  EXPECT_EQ(t.of("Q2_K", "blk.9.attn_v.weight"), "Q4_K");
  EXPECT_EQ(t.of("Q3_K_M", "blk.9.attn_output.weight"), "Q4_K");
  EXPECT_EQ(t.of("Q8_0", "output.weight"), "Q8_0");
  EXPECT_EQ(t.of("Q4_0", "output.weight"), "Q6_K");
  EXPECT_EQ(t.of("F16", "output.weight"), "F16");
  // One table for both: the output's type.
  EXPECT_EQ(Types(file_of(2, 256, false)).of("Q4_K_M", "token_embd.weight"), "Q6_K");
  const Types mixtral(file_of(2, 256, true, 8));
  EXPECT_EQ(mixtral.of("Q4_K_M", "blk.1.attn_v.weight"), "Q8_0");
  EXPECT_EQ(mixtral.of("Q4_K_M", "blk.1.attn_output.weight"), "Q5_K");
  // Rows that blocks of 256 do not fill.
  const Types odd(file_of(2, 96, true));
  EXPECT_EQ(odd.of("Q4_K_M", "blk.0.attn_q.weight"), "Q5_0");
  EXPECT_EQ(odd.of("Q6_K", "blk.0.attn_q.weight"), "Q8_0");
  EXPECT_EQ(odd.of("Q4_K_M", "output.weight"), "Q8_0");
  EXPECT_EQ(Types(file_of(2, 40, true)).of("Q4_K_M", "blk.0.attn_q.weight"), "F16");
  EXPECT_THROW(quantize_mix("Q4_K_X"), ArgumentError);
}

TEST(engine_quantize, AFileKeepsItsMetadataAndGetsTheEncodersBytes) {
  const Types t(file_of(3, 256, true));
  const std::string path = testing::TempDir() + "cgp_quantize_" + std::to_string(getpid()) + ".gguf";
  double last = 0;
  const QuantizeResult r =
      quantize(t.file, path, quantize_mix("Q4_K_M"), {2, false, [&](double f) { last = f; }});
  EXPECT_EQ(last, 1);
  EXPECT_EQ(r.tensors.at("F32"), 3);
  EXPECT_LT(r.bytes_after, r.bytes_before / 4);
  const model::Gguf out = model::Gguf::open(path);
  EXPECT_EQ(out.integer("general.file_type"), 15u);
  EXPECT_EQ(out.integer("general.quantization_version"), 2u);
  EXPECT_EQ(out.metadata().size(), t.file.metadata().size() + 1);
  EXPECT_EQ(out.find_array("tokenizer.ggml.tokens", model::GgufType::string)->strings[1], "b");
  std::uint64_t bytes = 0;
  for (const auto& tensor : out.tensors()) {
    bytes += tensor.data.size();
    const auto& from = t.file.tensor(tensor.name);
    std::vector<float> values(from.elements);
    quant::decode(quant::Format::f32, from.data, values);
    std::vector<std::byte> want(tensor.data.size());
    quant::encode(quant::format_of_ggml_type(tensor.type->id), values, want);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), tensor.data.begin())) << tensor.name;
  }
  EXPECT_EQ(bytes, r.bytes_after);

  EXPECT_THROW(quantize(out, path, quantize_mix("Q8_0")), ArgumentError);
  quantize(out, path, quantize_mix("Q8_0"), {.requantize = true});  // over the file that is read
  EXPECT_EQ(model::Gguf::open(path).tensor("output.weight").type->name, "Q8_0");
  unlink(path.c_str());
  // A row of 96 for Q2_K would be IQ4_NL, which is decoded only.
  const Types odd(file_of(2, 96, true));
  EXPECT_THROW(quantize(odd.file, path, quantize_mix("Q2_K")), Unsupported);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace cgp::engine
