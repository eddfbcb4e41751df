// SPDX-License-Identifier: Apache-2.0
// tokenizer.json and tokenizer.model with the words of the GGUF fixtures give the ids of the reference; what is not here is
// named; damaged files are read or refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/tokenizer/model.h"
#include "cgp/model/tokenizer/pre_tokenizers.h"
#include "cgp/model/tokenizer/tokenizer.h"

namespace cgp::model {
namespace {

using text::cat;

struct Words {
  explicit Words(std::string_view name)
      : file(Gguf::open(cat(CGP_TESTDATA "/tokenizers/", name, ".gguf"))),
        words(file.find_array("tokenizer.ggml.tokens", GgufType::string)->strings),
        types(*file.find_array("tokenizer.ggml.token_type", GgufType::i32)) {}
  int type(std::size_t i) const { return types.at<std::int32_t>(i); }
  float score(std::size_t i) const {
    return file.find_array("tokenizer.ggml.scores", GgufType::f32)->at<float>(i);
  }

  Gguf file;
  const std::vector<std::string_view>& words;
  const GgufArray& types;
};

/// Each word once, with its id; of types where `in` is true.
template <class F>
std::string vocabulary(const Words& w, F&& in, std::string (*spelled)(std::string_view) = json_string) {
  std::map<std::string_view, std::size_t> ids;
  std::string out;
  for (std::size_t i = 0; i < w.words.size(); ++i)
    if (in(w.type(i)) && ids.emplace(w.words[i], i).second)
      out += cat(out.empty() ? "" : ",\n", spelled(w.words[i]), ": ", i);
  return cat("{", out, "}");
}

std::string added_tokens(const Words& w) {
  std::string out;
  for (std::size_t i = 0; i < w.words.size(); ++i)
    if (const int t = w.type(i); t == 2 || t == 3 || t == 4)
      out += cat(out.empty() ? "" : ",", "{\"id\":", i, ",\"content\":", json_string(w.words[i]),
                 ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":",
                 t != 4, "}");
  return cat("[", out, "]");
}

std::string json_of(const Words& w, std::string_view steps, std::string_view model) {
  return cat("{\"version\":\"1.0\",\"truncation\":null,\"added_tokens\":", added_tokens(w), ",", steps,
             ",\"model\":", model, "}");
}

bool ordinary(int type) { return type == 1 || type == 4; }

std::string byte_level_json(const Words& w) {
  const PreTokenizer& pre = pre_tokenizer(w.file.string("tokenizer.ggml.pre"));
  std::string steps;
  for (std::string_view p : pre.patterns)
    steps += cat("{\"type\":\"Split\",\"pattern\":{\"Regex\":", json_string(p),
                 "},\"behavior\":\"Isolated\",\"invert\":false},");
  std::string merges;
  int i = 0;
  for (std::string_view m : w.file.find_array("tokenizer.ggml.merges", GgufType::string)->strings) {
    const std::size_t space = m.find(' ');
    merges += cat(i ? "," : "", i % 2 ? json_string(m)
                                      : cat("[", json_string(m.substr(0, space)), ",",
                                            json_string(m.substr(space + 1)), "]"));
    ++i;
  }
  return json_of(
      w,
      cat("\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[", steps,
          "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{"
          "\"type\":\"ByteLevel\"}"),
      cat("{\"type\":\"BPE\",\"ignore_merges\":", pre.ignore_merges,
          ",\"vocab\":", vocabulary(w, [](int t) { return t == 1; }), ",\"merges\":[", merges, "]}"));
}

/// The merges that SentencePiece's scores stand for: of the best word first, its cuts by the ids of the left part.
std::string score_merges(const Words& w) {
  std::map<std::string_view, std::size_t> ids;
  for (std::size_t i = 0; i < w.words.size(); ++i)
    if (ordinary(w.type(i))) ids.emplace(w.words[i], i);
  struct Merge {
    float score;
    std::size_t left, right;
  };
  std::vector<Merge> all;
  for (auto [word, id] : ids) {
    std::vector<Merge> cuts;
    for (std::size_t k = 1; k < word.size(); ++k)
      if (ids.contains(word.substr(0, k)) && ids.contains(word.substr(k)))
        cuts.push_back({w.score(id), ids[word.substr(0, k)], ids[word.substr(k)]});
    std::sort(cuts.begin(), cuts.end(), [](const Merge& a, const Merge& b) {
      return std::pair(a.left, a.right) < std::pair(b.left, b.right);
    });
    all.insert(all.end(), cuts.begin(), cuts.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Merge& a, const Merge& b) { return a.score > b.score; });
  std::string out;
  for (const Merge& m : all)
    out += cat(out.empty() ? "" : ",", "[", json_string(w.words[m.left]), ",", json_string(w.words[m.right]),
               "]");
  return cat("[", out, "]");
}

constexpr std::string_view kPrepend =
    R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"▁"},)"
    R"({"type":"Replace","pattern":{"String":" "},"content":"▁"}]},"pre_tokenizer":null)";
constexpr std::string_view kMetaspace =
    R"("normalizer":null,"pre_tokenizer":{"type":"Metaspace","replacement":"▁","prepend_scheme":"first","split":false})";
constexpr std::string_view kSpaceDecoder =
    R"("decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"▁"},"content":" "},)"
    R"({"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";

std::string sentencepiece_json(const Words& w, std::string_view steps) {
  return json_of(
      w, cat(steps, ",", kSpaceDecoder),
      cat("{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":",
          vocabulary(w, [](int) { return true; }), ",\"merges\":", score_merges(w), "}"));
}

std::string word_piece_json(const Words& w) {
  return json_of(
      w,
      R"("normalizer":{"type":"BertNormalizer","clean_text":true,"handle_chinese_chars":true,)"
      R"("strip_accents":null,"lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},)"
      R"("decoder":{"type":"WordPiece"})",
      cat("{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"vocab\":",
          vocabulary(
              w, [](int t) { return t == 1; },
              [](std::string_view word) {
                const bool first = word.starts_with(kSpaceSymbol);
                return json_string(first ? std::string(word.substr(kSpaceSymbol.size())) : cat("##", word));
              }),
          "}"));
}

std::string varint(std::uint64_t n) {
  std::string out;
  for (; n > 127; n >>= 7) out += char(n | 128);
  return out + char(n);
}
std::string field(int number, std::string_view bytes) {
  return cat(varint(number << 3 | 2), varint(bytes.size()), bytes);
}
std::string field(int number, std::uint64_t value) { return varint(number << 3) + varint(value); }

std::string sentencepiece_model(const Words& w, std::uint64_t kind) {
  std::string out;
  for (std::size_t i = 0; i < w.words.size(); ++i) {
    const float score = w.score(i);
    std::string piece = field(1, w.words[i]) + varint(2 << 3 | 5);
    piece.append(reinterpret_cast<const char*>(&score), 4);
    out += field(1, piece + field(3, std::uint64_t(w.type(i))));
  }
  return out + field(2, field(3, kind) + field(40, std::uint64_t(0)) + field(35, 1)) +
         field(3, field(3, 1) + field(4, std::uint64_t(0)));
}

class FolderTokenizer : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(path_); }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const char* name, std::string_view content) const { write_file(cat(path_, "/", name), content); }
  Tokenizer load() const { return Tokenizer::from_folder(path_); }
  std::string error() const {
    try {
      load();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  void expect_ids(const Words& w, const char* name) const {
    const Tokenizer is = load(), want = Tokenizer::from_gguf(w.file);
    for (std::string_view s : w.file.find_array("test.texts", GgufType::string)->strings) {
      EXPECT_EQ(is.encode(s, {.add_special = false}), want.encode(s, {.add_special = false}))
          << name << " " << s;
      EXPECT_EQ(is.decode(is.encode(s, {.add_special = false})),
                want.decode(want.encode(s, {.add_special = false})));
    }
  }
  const std::string path_ = cat(testing::TempDir(), "cgp_tokenizer_", getpid());
};

TEST_F(FolderTokenizer, IdsAreThoseOfTheGgufFile) {
  for (const char* name : {"gpt-2", "starcoder", "llama-bpe", "qwen2", "deepseek-coder", "command-r"}) {
    const Words w(name);
    put("tokenizer.json", byte_level_json(w));
    expect_ids(w, name);
  }
  for (const char* name : {"llama-spm", "phi-3"}) {
    const Words w(name);
    put("tokenizer.json", sentencepiece_json(w, kPrepend));
    expect_ids(w, name);
  }
  const Words bert("bert-bge");
  put("tokenizer.json", word_piece_json(bert));
  expect_ids(bert, "bert-bge");
}

TEST_F(FolderTokenizer, IdsOfASentencePieceModelAreThoseOfTheGgufFile) {
  for (const char* name : {"llama-spm", "phi-3"}) {
    const Words w(name);
    put("tokenizer.model", sentencepiece_model(w, 2));
    expect_ids(w, name);
    EXPECT_TRUE(load().adds_bos());
  }
  put("tokenizer_config.json", R"({"add_bos_token":false})");
  EXPECT_FALSE(load().adds_bos());
}

TEST_F(FolderTokenizer, APrefixOfTheFirstWordAlone) {
  const Words w("phi-3");
  const auto ids = [&](std::string_view s) {
    return load().encode(s, {.add_special = false, .parse_special = true});
  };
  put("tokenizer.json", sentencepiece_json(w, kPrepend));
  const auto all = ids("a<s>a");
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], all[2]) << "each part has a prefix";
  put("tokenizer.json", sentencepiece_json(w, kMetaspace));
  const auto first = ids("a<s>a");
  EXPECT_EQ(first[0], all[0]);
  EXPECT_NE(first.back(), all[2]) << "the part behind a special token has none";
  EXPECT_EQ(ids(" a"), ids("a")) << "a space is the prefix";
}

TEST_F(FolderTokenizer, TokensBesideTheTextAndTheTemplate) {
  const Words w("llama-bpe");
  std::string json = byte_level_json(w);
  const std::uint64_t bos = w.file.integer("tokenizer.ggml.bos_token_id");
  const std::string_view name = w.words[bos];
  json.insert(
      1,
      cat(R"("post_processor":{"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",)",
          R"("single":[{"SpecialToken":{"id":"B","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],)",
          R"("special_tokens":{"B":{"id":"B","ids":[)", bos, "]}}}]},"));
  put("tokenizer.json", json);
  put("tokenizer_config.json",
      cat(R"({"chat_template":[{"name":"default","template":"x"}],"eos_token":{"content":)",
          json_string(name), "}}"));
  put("generation_config.json", "{\"eos_token_id\":[5,7]}");
  const Tokenizer t = load();
  EXPECT_EQ(t.encode("").at(0), Token(bos));
  EXPECT_FALSE(t.adds_eos());
  EXPECT_EQ(t.special().eos, Token(bos));
  EXPECT_TRUE(t.ends_generation(5) && t.ends_generation(7) && !t.ends_generation(6));
  EXPECT_EQ(t.chat_template(), "x");
  put("chat_template.jinja", "y");
  EXPECT_EQ(load().chat_template(), "y");
  put("generation_config.json", "{\"eos_token_id\":99999999}");
  EXPECT_NE(error().find("generation_config.json, key 'eos_token_id'"), std::string::npos) << error();
}

TEST_F(FolderTokenizer, NfcComposesBeforeTheModel) {
  const Words w("qwen2");
  std::string json = byte_level_json(w);
  json.replace(json.find("\"normalizer\":null"), 17, R"("normalizer":{"type":"NFC"})");
  put("tokenizer.json", json);
  const Tokenizer t = load();
  EXPECT_EQ(t.encode("cafe\u0301"), t.encode("caf\u00E9"));
  EXPECT_EQ(t.decode(t.encode("e\u0301")), "\u00E9");
}

TEST_F(FolderTokenizer, WhatIsNotHereIsNamed) {
  const std::string good = byte_level_json(Words("gpt-2"));
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string json = good;
    json.replace(json.find(from), from.size(), to);
    put("tokenizer.json", json);
    return error();
  };
  const auto has = [](const std::string& error, std::string_view part) {
    EXPECT_NE(error.find(part), std::string::npos) << error;
  };
  EXPECT_EQ(with("null", "null"), "no error");
  has(with("\"normalizer\":null", R"("normalizer":{"type":"NFKC"})"), "NFKC");
  has(with("Isolated", "MergedWithNext"), "MergedWithNext");
  has(with("\"add_prefix_space\":false", "\"add_prefix_space\":true"), "add_prefix_space");
  has(with("{\"type\":\"BPE\",", "{\"type\":\"WordLevel\","), "WordLevel");
  has(with("{\"type\":\"BPE\",", R"({"type":"BPE","dropout":0.1,)"), "dropout");
  has(with("{\"type\":\"BPE\",", R"({"type":"BPE","end_of_word_suffix":"</w>",)"), "</w>");
  has(with("\"single_word\":false", "\"single_word\":true"), "single_word");
  has(with("\"decoder\":{\"type\":\"ByteLevel\"}", R"("decoder":{"type":"CTC"})"), "CTC");
  has(with("\"merges\":[", R"("merges":[["a","\u0001"],)"), "merge 0");
  has(with("\"vocab\":{", "\"vocab\":{\"twice\":0,"), "an id must belong to one word");
  std::filesystem::remove(path_ + "/tokenizer.json");
  has(error(), "tokenizer.json or tokenizer.model");
}

TEST(TokenizerFolderMutation, DamagedTokenizersAreReadOrRefused) {
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int cases = wanted ? std::atoi(wanted) / 4 : 60;
  const std::string path = cat(testing::TempDir(), "cgp_tokenizer_mutation_", getpid());
  std::filesystem::create_directories(path);
  const std::pair<const char*, std::string> files[] = {
      {"tokenizer.json", byte_level_json(Words("deepseek-coder"))},
      {"tokenizer.json", sentencepiece_json(Words("phi-3"), kMetaspace)},
      {"tokenizer.json", word_piece_json(Words("bert-bge"))},
      {"tokenizer.model", sentencepiece_model(Words("llama-spm"), 2)}};
  SplitMix64 random(9);
  int read = 0, refused = 0;
  for (const auto& [name, whole] : files) {
    for (int i = 0; i < cases; ++i) {
      std::string damaged = whole;
      for (std::uint64_t n = 1 + random.next() % 4; n > 0; --n) {
        std::size_t at = random.next() % damaged.size();
        // Steps and settings stand at both ends of the file.
        if (i % 3 == 1) at = std::min<std::size_t>(at, random.next() % 900);
        if (i % 3 == 2)
          at = damaged.size() - 1 - std::min<std::size_t>(damaged.size() - 1, random.next() % 900);
        if (random.next() % 8 == 0)
          damaged.erase(at, 1 + random.next() % 3);
        else
          damaged[at] = random.next() % 2 ? "0123456789{}[]\",:-e.\\"[random.next() % 21]
                                          : char(damaged[at] ^ 1 << random.next() % 8);
      }
      std::ofstream(path + "/" + name, std::ios::binary) << damaged;
      try {
        const Tokenizer t = Tokenizer::from_folder(path);
        for (std::string_view s : {"Hello world", " \n\t 33 it's \xFF\xC2 \u20AC", "<s>ab"})
          t.decode(t.encode(s, {.parse_special = true}));
        ++read;
      } catch (const Error& e) {
        EXPECT_FALSE(e.rule().empty());
        ++refused;
      }
    }
    std::filesystem::remove(path + "/" + name);
  }
  std::filesystem::remove_all(path);
  EXPECT_GT(read, cases / 10);
  EXPECT_GT(refused, cases / 10);
}

}  // namespace
}  // namespace cgp::model
