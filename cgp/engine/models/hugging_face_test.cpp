// SPDX-License-Identifier: Apache-2.0
// A Hugging Face folder runs like the GGUF file of the same weights; what it has that is not here is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/engine/cpu/cpu_backend.h"
#include "cgp/engine/llm.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/row_major.h"
#include "cgp/engine/models/tiny_folder_test_kit.h"
#include "cgp/model/source/hugging_face_config.h"
#include "cgp/model/summary/summary.h"

namespace cgp::engine {
namespace {

using model::Source;
using testing::HasSubstr;
using text::cat;

std::vector<float> logits_of(std::shared_ptr<const Source> file) {
  const auto tokens = tiny_prompt(12, 4);
  const BackendOptions o{
      .pages = 2, .page_tokens = 8, .cache = CacheType::f32, .activations = ActivationType::f32};
  const auto backend = make_cpu_backend(build(*file), file, o);
  const std::vector<std::int32_t> pages{1, 0};
  std::vector<std::int32_t> outputs(tokens.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) outputs[i] = std::int32_t(i);
  std::vector<float> logits(tokens.size() * kTinyVocabulary);
  const BatchSequence s{0, std::int32_t(tokens.size()), 0, pages};
  backend->run({tokens, {&s, 1}, outputs}, {logits, {}});
  return logits;
}

class Folder : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::shared_ptr<const Source> write(const TinyFolderOptions& o) {
    std::filesystem::remove_all(path_);
    write_tiny_folder(o, path_);
    return row_major(Source::open(path_));
  }
  /// The error of a folder whose config has `key` set to `value`.
  std::string error_with(std::string_view type, std::string_view key, std::string_view value) {
    std::filesystem::remove_all(path_);
    write_tiny_folder({.model_type = std::string(type)}, path_);
    std::string config = read_file(path_ + "/config.json");
    const std::size_t at = config.find(cat("\"", key, "\":"));
    if (at == config.npos)
      config.insert(1, cat("\"", key, "\":", value, ","));
    else
      config.replace(at, config.find_first_of(",}", at) - at, cat("\"", key, "\":", value));
    write_file(path_ + "/config.json", config);
    return error();
  }
  std::string error() {
    try {
      build(*row_major(Source::open(path_)));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  const std::string path_ = temporary_folder("folder");
};

TEST_F(Folder, ItsSummaryHasTheNamesOfGguf) {
  write_tiny_folder({.model_type = "qwen2", .format = "BF16"}, path_);
  ASSERT_TRUE(model::is_model_file(path_));
  EXPECT_FALSE(model::is_model_file(path_ + "/nothing"));
  const model::ModelSummary s = model::summary(path_);
  EXPECT_EQ(s.format, "Hugging Face folder");
  const auto tensor = std::find_if(s.tensors.begin(), s.tensors.end(),
                                   [](const auto& t) { return t.name == "blk.0.attn_q.weight"; });
  ASSERT_NE(tensor, s.tensors.end());
  EXPECT_EQ(tensor->type, "BF16");
  EXPECT_EQ(tensor->bytes, 2 * tensor->elements);
  EXPECT_TRUE(std::any_of(s.metadata.begin(), s.metadata.end(),
                          [](const auto& m) { return m.first == "qwen2.block_count"; }));
}

TEST_F(Folder, LogitsAreThoseOfTheGgufFile) {
  std::vector<TinyFolderOptions> all;
  for (const char* type :
       {"llama", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3_text", "phi3", "gpt2"})
    all.push_back({.model_type = type});
  all.push_back({.model_type = "llama", .format = "F16"});
  all.push_back({.model_type = "gpt2", .format = "BF16"});
  all.push_back({.model_type = "mixtral", .format = "BF16", .sharded = true});
  all.push_back({.model_type = "phi3", .rope_scaling = "longrope"});
  for (const char* scaling : {"linear", "yarn"}) all.push_back({.rope_scaling = scaling});
  for (const TinyFolderOptions& o : all) {
    const std::vector<float> want = logits_of(tiny_counterpart(o).file), is = logits_of(write(o));
    double worst = 0, most = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, double(std::abs(is[i] - want[i]))),
      most = std::max(most, double(std::abs(want[i])));
    }
    EXPECT_GT(most, 0.1);
    // Norms of gemma are rounded once more, sums of a head are in another order.
    EXPECT_LE(worst / most, 1e-5) << o.model_type << o.format << o.rope_scaling;
  }
}

TEST_F(Folder, NothingIsCopiedThatLiesRowByRow) {
  const auto folder = write({.model_type = "qwen2"});
  write_tiny_folder({.model_type = "qwen2"}, path_);
  const auto source = Source::open(path_);
  EXPECT_EQ(row_major(source), source);
  EXPECT_EQ(source->string("general.architecture"), "qwen2");
  EXPECT_EQ(source->integer("qwen2.block_count"), 3u);
  const auto gpt2 = [&] {
    write_tiny_folder({.model_type = "gpt2"}, path_);
    return Source::open(path_);
  }();
  EXPECT_EQ(gpt2->tensor("blk.0.ffn_up.weight").layout, model::TensorLayout::transposed);
  EXPECT_EQ(gpt2->tensor("token_embd.weight").layout, model::TensorLayout::rows);
  EXPECT_NE(row_major(gpt2), gpt2);
}

TEST_F(Folder, TextIsThatOfTheGgufFileOnEveryDevice) {
  const auto generated = [](const std::string& path, const char* device) {
    LLM llm = LLM::load(path, {.device = device, .context = 32, .chunk = 8});
    Request r;
    r.prompt = llm.encode("ab c");
    EXPECT_EQ(r.prompt, (std::vector<Token>{64, 65, 94, 66}));
    EXPECT_TRUE(llm.tokenizer().ends_generation(96));
    r.max_tokens = 4, r.sampling.temperature = 0, r.ignore_end = true;
    return llm.generate(r).text;
  };
  for (const char* format : {"F16", "BF16", "F32"}) {
    const TinyFolderOptions o{.model_type = "gpt2", .format = format};
    write(o);
    const std::string gguf = path_ + "/tiny.gguf";
    write_file(gguf, tiny_counterpart(o).bytes);
    for (const char* device : {"cpu", "emu:sm_90a"}) {
      const std::string text = generated(path_, device);
      EXPECT_EQ(text, generated(gguf, device)) << format << " " << device;
      EXPECT_FALSE(text.empty());
    }
  }
}

TEST_F(Folder, WhatIsNotHereIsNamed) {
  EXPECT_THAT(error_with("llama", "model_type", "\"mamba\""), HasSubstr("mamba is not"));
  EXPECT_THAT(error_with("llama", "rope_scaling", "{\"rope_type\":\"dynamic\",\"factor\":2}"),
              HasSubstr("it is dynamic"));
  EXPECT_THAT(error_with("llama", "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":2,\"mscale\":1}"),
              HasSubstr("'mscale'"));
  EXPECT_THAT(error_with("llama", "quantization_config", "{\"quant_method\":\"awq\"}"),
              HasSubstr("quantised by awq"));
  EXPECT_THAT(error_with("llama", "hidden_act", "\"relu\""), HasSubstr("it is relu"));
  EXPECT_THAT(error_with("llama", "num_hidden_layers", "4"), HasSubstr("blk.3.attn_norm.weight"));
  EXPECT_THAT(error_with("llama", "num_hidden_layers", "2"), HasSubstr("model.layers.2."));
  EXPECT_THAT(error_with("llama", "hidden_size", "\"64\""),
              testing::AllOf(HasSubstr("config.json, key 'hidden_size'"), HasSubstr("it is \"64\"")));
  EXPECT_THAT(error_with("llama", "vocab_size", "0"), HasSubstr("from 1 to 2^30"));
  EXPECT_THAT(error_with("llama", "rms_norm_eps", "null"), HasSubstr("'rms_norm_eps'"));
  EXPECT_THAT(error_with("llama", "tie_word_embeddings", "false"), HasSubstr("lm_head.weight"));
  EXPECT_THAT(error_with("mixtral", "num_local_experts", "6"), HasSubstr("that of expert 5 is not there"));
  EXPECT_THAT(error_with("qwen3_moe", "mlp_only_layers", "[1]"), HasSubstr("'mlp_only_layers'"));
  EXPECT_THAT(error_with("llama", "sliding_window", "null"), "no error");
  std::filesystem::remove(path_ + "/model.safetensors");
  EXPECT_THAT(error(), HasSubstr("model.safetensors"));
  std::filesystem::remove(path_ + "/config.json");
  EXPECT_THAT(error(), HasSubstr("config.json"));
}

model::ModelConfig config_of(std::string_view text) {
  return model::read_config(model::JsonObject(model::Value::from_json(text, "config.json"), "config.json"));
}

constexpr std::string_view kLlama =
    R"("vocab_size":9,"hidden_size":8,"num_hidden_layers":3,"num_attention_heads":1,"intermediate_size":8,)"
    R"("max_position_embeddings":131072,"rms_norm_eps":1e-5,)";

/// Of Llama 3.1's paper and code: theta 500000, heads of 128.
TEST(HuggingFaceConfig, Llama3FactorsAreThoseOfItsCode) {
  const auto c = config_of(
      cat("{\"model_type\":\"llama\",", kLlama,
          R"("head_dim":128,"rope_theta":500000.0,"rope_scaling":{"factor":8.0,"low_freq_factor":1.0,)",
          R"("high_freq_factor":4.0,"original_max_position_embeddings":8192,"rope_type":"llama3"}})"));
  ASSERT_EQ(c.factors.size(), 1u);
  const std::vector<float>& f = c.factors[0].values;
  ASSERT_EQ(f.size(), 64u);
  EXPECT_EQ(f[28], 1);
  EXPECT_NEAR(f[29], 1.2075, 1e-4);
  EXPECT_NEAR(f[33], 3.6843, 1e-4);
  EXPECT_EQ(f[36], 8);
}

TEST(HuggingFaceConfig, LayersWithAWindow) {
  const auto value = [](const model::ModelConfig& c,
                        std::string_view key) -> const model::ModelConfig::Held* {
    for (const auto& [name, held] : c.keys)
      if (name == key) return &held;
    return nullptr;
  };
  const auto mistral = config_of(cat("{\"model_type\":\"mistral\",", kLlama, "\"sliding_window\":4096}"));
  EXPECT_EQ(std::get<std::uint64_t>(*value(mistral, "llama.attention.sliding_window")), 4096u);
  const std::string qwen =
      cat("{\"model_type\":\"qwen2\",", kLlama, "\"sliding_window\":512,\"max_window_layers\":2,");
  EXPECT_EQ(value(config_of(qwen + "\"use_sliding_window\":false}"), "qwen2.attention.sliding_window"),
            nullptr);
  const auto windowed = config_of(qwen + "\"use_sliding_window\":true}");
  EXPECT_EQ(std::get<std::vector<bool>>(*value(windowed, "qwen2.attention.sliding_window_pattern")),
            (std::vector<bool>{false, false, true}));
}

TEST(HuggingFaceConfigMutation, DamagedConfigsAreReadOrRefused) {
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int cases = wanted ? std::atoi(wanted) / 8 : 300;
  const std::string path = temporary_folder("mutated");
  SplitMix64 random(11);
  int read = 0, refused = 0;
  for (const char* type : {"llama", "mixtral", "gemma3_text", "gpt2"}) {
    const TinyFolderOptions o{
        .model_type = type, .rope_scaling = type[0] == 'l' ? "yarn" : "", .sharded = true};
    std::filesystem::remove_all(path);
    write_tiny_folder(o, path);
    for (const char* name : {"/config.json", "/model.safetensors.index.json"}) {
      const std::string whole = read_file(path + name);
      for (int i = 0; i < cases; ++i) {
        std::string damaged = whole;
        for (std::uint64_t n = 1 + random.next() % 3; n > 0; --n) {
          const std::size_t at = random.next() % damaged.size();
          if (random.next() % 4 == 0)
            damaged.erase(at, 1 + random.next() % 3);
          else
            damaged[at] = random.next() % 2 ? "0123456789{}[]\",:-e."[random.next() % 20]
                                            : char(damaged[at] ^ 1 << random.next() % 8);
        }
        std::ofstream(path + name, std::ios::binary) << damaged;
        try {
          const auto source = row_major(Source::open(path));
          if (source->integer(cat(source->string("general.architecture"), ".context_length")) < (1 << 20))
            build(*source);
          ++read;
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), testing::AnyOf(HasSubstr(path), HasSubstr("rope"), HasSubstr("blk."),
                                               HasSubstr("architecture")));
          ++refused;
        }
      }
      write_file(path + name, whole);
    }
  }
  std::filesystem::remove_all(path);
  EXPECT_GT(read, cases / 10);
  EXPECT_GT(refused, cases);
}

}  // namespace
}  // namespace cgp::engine
