// SPDX-License-Identifier: Apache-2.0
// cgp inspect, tokenize, generate, chat and perplexity, run as a user does.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/model/gguf/gguf_writer.h"
#include "cgp/model/safetensors/safetensors.h"

namespace cgp::model {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

struct Outcome {
  int code = -1;
  std::string out, err;
  json parsed() const { return json::parse(out); }
};

class ModelCli : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "cgp_model_cli_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  Outcome cgp(const std::string& arguments, const std::string& input = "/dev/null") const {
    const std::string command =
        "cd '" + folder_ + "' && '" + CGP_BINARY + "' " + arguments + " >stdout.txt 2>stderr.txt <" + input;
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout.txt")),
            read_file(path("stderr.txt"))};
  }
  static std::string vocabulary(const std::string& name) {
    return std::string("'" CGP_TESTDATA "/tokenizers/") + name + ".gguf'";
  }
  std::string folder_;
};

TEST_F(ModelCli, AModelGeneratesTalksAndIsMeasured) {
  write_file(path("tiny.gguf"), engine::tiny_model({.tokenizer = true, .chat_template = true}).bytes);
  const std::string command =
      "generate tiny.gguf -p 'Hello world' -n 30 --temperature 0 --ignore-end --json ";
  const Outcome o = cgp(command + "--profile --logprobs --lookup 3");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = o.parsed();
  EXPECT_EQ(j["schema"], "cgp.generate/1");
  EXPECT_EQ(j["prompt_ids"].size(), 11u);
  EXPECT_EQ(j["ids"].size(), 30u);
  EXPECT_EQ(j["finish_reason"], "length");
  EXPECT_EQ(j["prefill"]["tokens"], 11);
  EXPECT_EQ(j["decode"]["tokens"], 29);
  EXPECT_EQ(j["logprobs"].size(), 30u);
  EXPECT_EQ(cgp(command).parsed()["ids"], j["ids"]);
  EXPECT_NE(cgp("generate tiny.gguf -p 'Hello world' -n 30 --temperature 0 --ignore-end").out.find(j["text"]),
            std::string::npos);
  const std::string doc = read_file(CGP_CLI_DOC);
  for (const auto& [key, value] : j.items()) EXPECT_NE(doc.find("`" + key), std::string::npos) << key;

  write_file(path("g.gbnf"), "root ::= \"yes\" [0-9]{3}\n");
  const json held = cgp("generate tiny.gguf -p 'Hello world' -n 30 --grammar g.gbnf --json").parsed();
  EXPECT_EQ(held["text"].get<std::string>().substr(0, 3), "yes");
  EXPECT_EQ(held["text"].get<std::string>().size(), 6u);
  EXPECT_EQ(held["finish_reason"], "stop");
  write_file(path("s.json"), R"({"properties": {"n": {"enum": [7]}}, "required": ["n"], "not": {}})");
  const Outcome refused = cgp("generate tiny.gguf -p 'Hello world' --json-schema s.json");
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("s.json, #"), std::string::npos) << refused.err;

  write_file(path("lines.txt"), "Hi\nAnd?\n\nnever read\n");
  const json talk =
      cgp("chat tiny.gguf --system 'Be brief and answer in one sentence' --temperature 0 -n 40 --json",
          "lines.txt")
          .parsed();
  ASSERT_EQ(talk["turns"].size(), 2u);
  EXPECT_EQ(talk["turns"][1]["user"], "And?");
  EXPECT_GT(talk["turns"][1]["reused_tokens"], 0);

  std::string text;
  while (text.size() < 200) text += "The quick brown fox. ";
  write_file(path("text.txt"), text);
  const json p = cgp("perplexity tiny.gguf text.txt --context 64 --json").parsed();
  EXPECT_EQ(p["predicted"], 93);
  EXPECT_GT(p["perplexity"], 1);

  const json small = cgp("quantize tiny.gguf small.gguf q8_0 --json").parsed();
  EXPECT_LT(small["bytes_after"], small["bytes_before"]);
  for (const auto& [key, value] : small.items()) EXPECT_NE(doc.find("`" + key), std::string::npos) << key;
  EXPECT_EQ(cgp("generate small.gguf -p 'Hello world' -n 3 --ignore-end --json").parsed()["ids"].size(), 3u);
  EXPECT_EQ(cgp("quantize small.gguf smaller.gguf Q4_0").code, 2);

  EXPECT_EQ(cgp("generate tiny.gguf -p x --temperature -1").code, 2);
  EXPECT_EQ(cgp("generate absent.gguf -p x").code, 2);
  EXPECT_EQ(cgp("chat " + vocabulary("llama-bpe")).code, 2);  // no weights
}

// tests/web_in_browser.py runs such a page.
TEST_F(ModelCli, AModelBecomesAPageForBrowsers) {
  write_file(path("tiny.gguf"), engine::tiny_model({.tokenizer = true, .chat_template = true}).bytes);
  const Outcome o = cgp("web site --model tiny.gguf --prompt 'Hello world' --context 64 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json written = o.parsed();
  EXPECT_EQ(written["schema"], "cgp.web_model/1");
  EXPECT_EQ(written["context"], 64);
  EXPECT_EQ(written["files"], 1);
  const std::string doc = read_file(CGP_CLI_DOC);
  for (const auto& [key, value] : written.items()) EXPECT_NE(doc.find("`" + key), std::string::npos) << key;
  const std::string page = read_file(path("site/index.html")), mark = "id=\"model\">";
  EXPECT_EQ(page.size(), written["bytes"]);
  const auto begin = page.find(mark) + mark.size();
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(
      data["check"]["ids"],
      cgp("generate tiny.gguf -p 'Hello world' -n 16 --context 64 --temperature 0 --json").parsed()["ids"]);
  EXPECT_EQ(data["write"].size(), written["launches"]);
  EXPECT_LE(data["needs"]["threads"], 256) << "what every WebGPU device has";
  EXPECT_EQ(data["tokenizer"]["chat"]["first"], "user: ");
  EXPECT_EQ(cgp("web site --model absent.gguf").code, 2);
  EXPECT_EQ(cgp("web site --model " + vocabulary("llama-bpe")).code, 2);  // no weights
  EXPECT_EQ(cgp("web site --model tiny.gguf --kernel 'vecadd n=7'").code, 2);
}

TEST_F(ModelCli, TextToIdsAndBack) {
  const std::string model = vocabulary("llama-bpe");
  const Outcome o = cgp("tokenize " + model + " --text 'Hello world' --json");
  ASSERT_EQ(o.code, 0) << o.err;
  const json j = o.parsed();
  EXPECT_EQ(j["schema"], "cgp.tokenize/1");
  EXPECT_EQ(j["kind"], "bpe");
  EXPECT_EQ(j["pre_tokenizer"], "llama-bpe");
  EXPECT_EQ(j["pieces"], json({"<|begin_of_text|>", "Hello", " world"}));
  std::string ids;
  for (const auto& id : j["ids"]) ids += (ids.empty() ? "" : ",") + std::to_string(id.get<int>());
  EXPECT_EQ(cgp("tokenize " + model + " --ids " + ids).out, "<|begin_of_text|>Hello world\n");

  const json plain = cgp("tokenize " + model + " --text 'Hello world' --no-special --json").parsed();
  EXPECT_EQ(plain["ids"].size(), 2u);
  const Outcome text = cgp("tokenize " + model + " --text 'Hello world' --no-special");
  EXPECT_NE(text.out.find(" world\"\n2 tokens\n"), std::string::npos) << text.out;
  for (const auto& id : plain["ids"]) EXPECT_NE(text.out.find(id.dump() + "  "), std::string::npos);
}

TEST_F(ModelCli, TextFromAFileAndFromStandardInput) {
  write_file(path("t.txt"), "Hello\xFF world\n");
  const std::string model = vocabulary("gpt-2");
  const json j = cgp("tokenize " + model + " --file t.txt --json").parsed();
  EXPECT_EQ(j["text"], "Hello\uFFFD world\n");
  EXPECT_EQ(cgp("tokenize " + model + " --file - --json", "t.txt").parsed()["ids"], j["ids"]);
}

TEST_F(ModelCli, SpecialTokensAreParsedWhenAsked) {
  const std::string model = vocabulary("phi-3");
  EXPECT_GT(cgp("tokenize " + model + " --text '<s>' --no-special --json").parsed()["ids"].size(), 1u);
  EXPECT_EQ(
      cgp("tokenize " + model + " --text '<s>' --no-special --parse-special --json").parsed()["ids"].size(),
      1u);
}

TEST_F(ModelCli, WhatIsWrongIsNamed) {
  Outcome o = cgp("tokenize " + vocabulary("gpt-2"));
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("one of --text, --file and --ids"), std::string::npos) << o.err;
  o = cgp("tokenize " + vocabulary("gpt-2") + " --ids 99999999");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("99999999"), std::string::npos) << o.err;
  o = cgp("tokenize nothing.gguf --text a");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("nothing.gguf"), std::string::npos) << o.err;
  write_file(path("bad.gguf"), "GGUF\3\0\0");
  o = cgp("inspect bad.gguf");
  EXPECT_EQ(o.code, 2);
  EXPECT_NE(o.err.find("bad.gguf"), std::string::npos) << o.err;
}

TEST_F(ModelCli, AModelFilesContents) {
  GgufWriter out;
  out.add("general.architecture", "llama");
  out.add("evil", "\x1b[31m");
  std::vector<float> scores(20);
  out.add_array("scores", std::span<const float>(scores));
  std::string data(144 * 2, 'd');
  auto bytes = std::as_bytes(std::span(data.data(), data.size()));
  out.add_tensor("a.weight", *find_ggml_type("Q4_K"), {256, 2}, bytes);
  out.add_tensor("b.weight", *find_ggml_type("F32"), {8, 9}, bytes);
  out.write(path("m.gguf"));
  const json j = cgp("inspect m.gguf --json").parsed();
  EXPECT_EQ(j["schema"], "cgp.inspect/1");
  EXPECT_EQ(j["format"], "GGUF");
  EXPECT_EQ(j["parameters"], 584);
  EXPECT_EQ(j["tensor_bytes"], 576);
  EXPECT_EQ(j["metadata"]["general.architecture"], "llama");
  EXPECT_EQ(j["metadata"]["scores"]["count"], 20);
  EXPECT_EQ(j["tensors"][0]["shape"], json({256, 2}));
  EXPECT_EQ(j["formats"][1]["name"], "Q4_K");
  const Outcome text = cgp("inspect m.gguf");
  EXPECT_EQ(text.code, 0);
  for (const char* part : {"584 parameters", "576 B", "Q4_K", "a.weight", "256 x 2", "20 of f32", "llama"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos) << "a file cannot speak to the terminal";

  std::vector<SafetensorsTensor> tensors = {{"w", find_safetensors_type("F32"), {8, 9}, bytes}};
  write_safetensors(path("m.safetensors"), tensors, {{"format", "pt"}});
  const json st = cgp("inspect m.safetensors --json").parsed();
  EXPECT_EQ(st["parameters"], 72);
  EXPECT_EQ(st["metadata"]["format"], "pt");
  EXPECT_EQ(st["tensors"][0]["format"], "F32");
}

TEST_F(ModelCli, HelpHasExamples) {
  for (const std::string command : {"inspect", "tokenize", "generate", "chat", "serve", "quantize"}) {
    const Outcome o = cgp(command + " --help");
    EXPECT_EQ(o.code, 0);
    EXPECT_NE(o.out.find("Examples:\n  cgp " + command), std::string::npos) << o.out;
  }
}

}  // namespace
}  // namespace cgp::model
