// SPDX-License-Identifier: Apache-2.0
// Ids against those of the reference, on vocabularies cut down by scripts/tokenizer_fixtures.py; bytes back from ids; and
// what damaged vocabularies and odd texts do.
#include "cgp/model/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/gguf/gguf_writer.h"
#include "cgp/model/tokenizer/pre_tokenizers.h"
#include "cgp/model/unicode/regex.h"
#include "cgp/model/unicode/unicode.h"

namespace cgp::model {
namespace {

std::string fixture(std::string_view name) { return text::cat(CGP_TESTDATA "/tokenizers/", name, ".gguf"); }

Tokenizer tokenizer(std::string_view name) { return Tokenizer::from_gguf(Gguf::open(fixture(name))); }

std::vector<Token> plain(const Tokenizer& t, std::string_view s) {
  return t.encode(s, {.add_special = false});
}

std::vector<Token> numbers(std::string_view line) {
  std::vector<Token> out;
  for (std::string_view word : text::split(line, ' '))
    if (!word.empty()) out.push_back(std::atoi(std::string(word).c_str()));
  return out;
}

class Vectors : public testing::TestWithParam<const char*> {};

TEST_P(Vectors, IdsAreThoseOfTheReference) {
  Gguf file = Gguf::open(fixture(GetParam()));
  Tokenizer t = Tokenizer::from_gguf(file);
  const GgufArray& texts = *file.find_array("test.texts", GgufType::string);
  const GgufArray& ids = *file.find_array("test.ids", GgufType::string);
  ASSERT_GT(texts.count, 0u);
  ASSERT_EQ(texts.count, ids.count);
  for (std::size_t i = 0; i < texts.count; ++i)
    EXPECT_EQ(plain(t, texts.strings[i]), numbers(ids.strings[i])) << texts.strings[i];
}

TEST_P(Vectors, TextComesBackWholeAndInParts) {
  Gguf file = Gguf::open(fixture(GetParam()));
  Tokenizer t = Tokenizer::from_gguf(file);
  // These normalise: what comes back is the normalised text.
  if (t.kind() == "wordpiece" || t.kind() == "unigram") return;
  for (std::string_view s : file.find_array("test.texts", GgufType::string)->strings) {
    std::vector<Token> ids = plain(t, s);
    EXPECT_EQ(t.decode(ids), s);
    StreamDecoder stream(t);
    std::string parts;
    for (Token id : ids) {
      std::string part = stream.push(id);
      EXPECT_EQ(unicode::valid(part), part) << "a part is whole characters";
      parts += part;
    }
    EXPECT_EQ(parts + stream.finish(), s);
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Vectors,
                         testing::Values("gpt-2", "mpt", "refact", "starcoder", "command-r", "llama-bpe",
                                         "qwen2", "qwen35", "deepseek-coder", "deepseek-llm", "falcon",
                                         "gemma-4", "llama-spm", "phi-3", "bert-bge", "nomic-bert-moe"));

TEST(Tokenizer, EveryByteOfAByteLevelVocabularyComesBack) {
  Tokenizer t = tokenizer("gpt-2");
  std::string all;
  SplitMix64 random(3);
  for (int i = 0; i < 20000; ++i) all += char(random.next());
  EXPECT_EQ(t.decode(plain(t, all)), all);
  for (int b = 0; b < 256; ++b) {
    std::string one(1, char(b));
    EXPECT_EQ(t.decode(plain(t, one)), one) << b;
  }
}

TEST(Tokenizer, SentencePieceHasBytesForUnknownCharacters) {
  Tokenizer t = tokenizer("llama-spm");
  std::vector<Token> ids = plain(t, "\u0F40");  // not in the vocabulary: three bytes
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(t.piece(ids[1]), "\xE0");
  EXPECT_EQ(t.decode(ids), "\u0F40");
  EXPECT_EQ(t.decode(plain(t, "\xFF")), "\xFF");
}

TEST(Tokenizer, SpecialTokensAreTextUnlessAskedFor) {
  Tokenizer t = tokenizer("phi-3");
  const std::string_view text = "<s>Hello";
  EXPECT_NE(plain(t, text)[0], t.special().bos);
  std::vector<Token> parsed = t.encode(text, {.add_special = false, .parse_special = true});
  EXPECT_EQ(parsed[0], t.special().bos);
  EXPECT_EQ(t.decode(parsed), text);
  EXPECT_EQ(t.decode(parsed, true), "Hello");
  EXPECT_TRUE(t.is_special(parsed[0]));
}

TEST(Tokenizer, TokensBeforeAndAfterTheText) {
  Tokenizer llama = tokenizer("llama-bpe");
  EXPECT_TRUE(llama.adds_bos());
  EXPECT_EQ(llama.encode("")[0], llama.special().bos);
  EXPECT_TRUE(plain(llama, "").empty());
  Tokenizer bert = tokenizer("bert-bge");
  std::vector<Token> ids = bert.encode("Hello");
  EXPECT_EQ(bert.piece(ids.front()), "[CLS]");
  EXPECT_EQ(bert.piece(ids.back()), "[SEP]");
  Tokenizer gpt2 = tokenizer("gpt-2");
  EXPECT_FALSE(gpt2.adds_bos());
  EXPECT_TRUE(gpt2.ends_generation(gpt2.special().eos));
  EXPECT_FALSE(gpt2.ends_generation(plain(gpt2, "a")[0]));
}

TEST(Tokenizer, ATokenOutsideOfTheVocabularyIsNamed) {
  Tokenizer t = tokenizer("gpt-2");
  Token bad[] = {1 << 20};
  try {
    t.decode(bad);
    FAIL();
  } catch (const ArgumentError& e) {
    EXPECT_NE(std::string(e.what()).find("1048576"), std::string::npos);
  }
}

TEST(StreamDecoder, HalfACharacterWaits) {
  Tokenizer t = tokenizer("gpt-2");
  StreamDecoder s(t);
  auto byte = [&](char c) { return plain(t, std::string(1, c))[0]; };
  EXPECT_EQ(s.push(byte('\xE2')), "");
  EXPECT_EQ(s.push(byte('\x82')), "");
  EXPECT_EQ(s.push(byte('\xAC')), "€");
  EXPECT_EQ(s.push(byte('\xE2')), "");
  EXPECT_EQ(s.push(byte('a')), "\uFFFDa");
  EXPECT_EQ(s.push(byte('\xF0')), "");
  EXPECT_EQ(s.finish(), "\uFFFD");
  EXPECT_EQ(s.push(byte('a')), "a");
}

TEST(Tokenizer, LongWordsTakeTimeInProportion) {
  using clock = std::chrono::steady_clock;
  for (const char* name : {"llama-bpe", "llama-spm", "gemma-4", "nomic-bert-moe", "deepseek-llm"}) {
    Tokenizer t = tokenizer(name);
    for (std::string_view unit : {" ", "a", "\n", "ab", "9", "\xF0\x9F\xA6\x99", "A"}) {
      std::string text;
      while (text.size() < 300000) text += unit;
      auto start = clock::now();
      EXPECT_FALSE(plain(t, text).empty() && t.kind() != "unigram") << name;
      EXPECT_LT(std::chrono::duration<double>(clock::now() - start).count(), 10)
          << name << " '" << unit << "'";
    }
  }
}

TEST(Tokenizer, ThreadsShareOne) {
  Tokenizer t = tokenizer("qwen2");
  Gguf file = Gguf::open(fixture("qwen2"));
  const auto& texts = file.find_array("test.texts", GgufType::string)->strings;
  std::vector<std::vector<Token>> want;
  for (std::string_view s : texts) want.push_back(plain(tokenizer("qwen2"), s));
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(plain(t, texts[i]), want[i]);
    });
  for (std::thread& thread : threads) thread.join();
}

/// A file of byte-level BPE: "a", "b", "ab" and what the caller adds.
struct Small {
  std::vector<std::string_view> tokens = {"a", "b", "ab", "<s>"}, merges = {"a b"};
  std::vector<std::int32_t> types = {1, 1, 1, 3};
  std::string model = "gpt2", pre = "gpt-2";
  bool with_tokens = true, with_merges = true;
  std::uint32_t bos = 3;

  std::string bytes() const {
    GgufWriter out;
    out.add("tokenizer.ggml.model", model);
    out.add("tokenizer.ggml.pre", pre);
    if (with_tokens) out.add_array("tokenizer.ggml.tokens", std::span<const std::string_view>(tokens));
    out.add_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(types));
    if (with_merges) out.add_array("tokenizer.ggml.merges", std::span<const std::string_view>(merges));
    out.add("tokenizer.ggml.bos_token_id", bos);
    return out.bytes();
  }
  Tokenizer load() const {
    std::string file = bytes();
    return Tokenizer::from_gguf(Gguf::parse(std::as_bytes(std::span(file.data(), file.size())), "x.gguf"));
  }
  std::string error() const {
    try {
      load();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

TEST(Tokenizer, BadFilesAreNamedByKey) {
  EXPECT_EQ(Small{}.error(), "");
  Small s;
  s.with_tokens = false;
  EXPECT_NE(s.error().find("tokenizer.ggml.tokens"), std::string::npos);
  s = {};
  s.with_merges = false;
  EXPECT_NE(s.error().find("tokenizer.ggml.merges"), std::string::npos);
  s = {};
  s.merges = {"a b", "a c"};
  EXPECT_NE(s.error().find("merge 1 is 'a c'"), std::string::npos) << s.error();
  s.merges = {"ab"};
  EXPECT_NE(s.error().find("a space between"), std::string::npos) << s.error();
  s = {};
  s.bos = 4;
  EXPECT_NE(s.error().find("tokenizer.ggml.bos_token_id"), std::string::npos) << s.error();
  s = {};
  s.types = {1};
  EXPECT_NE(s.error().find("tokenizer.ggml.token_type"), std::string::npos) << s.error();
  s = {};
  s.pre = "qwen3";
  EXPECT_NE(s.error().find("'qwen3'"), std::string::npos) << s.error();
  EXPECT_NE(s.error().find("qwen2"), std::string::npos) << "the closest names are given";
  s = {};
  s.model = "rwkv";
  EXPECT_THROW(s.load(), Unsupported);
}

TEST(PreTokenizers, EveryPatternCutsWithoutLoss) {
  const std::string text =
      "Hello, it's 12345 y'ALL!\r\n\n  \tÄpfel 一二 가나 \xFF (IMGIMGABZ)$= 1234567 😀e\u0301";
  std::set<std::string_view> names;
  for (const PreTokenizer& p : pre_tokenizers()) {
    for (std::string_view name : p.names) EXPECT_TRUE(names.insert(name).second) << name;
    for (std::string_view pattern : p.patterns) {
      std::string joined;
      std::size_t last = 0;
      unicode::Regex(pattern).split(text, [&](std::size_t begin, std::size_t end) {
        EXPECT_EQ(begin, last);
        EXPECT_LT(begin, end);
        joined += text.substr(begin, end - begin);
        last = end;
      });
      EXPECT_EQ(joined, text) << pattern;
    }
  }
  EXPECT_EQ(names.size(), 89u) << "87 of the README, and two names of the default";
}

TEST(Tokenizer, MergesThatGoInACircleEnd) {
  Small s;
  s.tokens = {"a", "aa", "aaa", "aaaa"};
  s.merges = {"a a", "aa a", "a aa", "aa aa", "aaa a", "a aaa", "a a"};
  s.types = {1, 1, 1, 1};
  Tokenizer t = s.load();
  EXPECT_EQ(plain(t, "aaaaa"), (std::vector<Token>{1, 2}));
  EXPECT_EQ(t.decode(plain(t, std::string(1001, 'a'))), std::string(1001, 'a'));
}

TEST(Tokenizer, APairThatComesTwiceKeepsItsFirstPlace) {
  Small s;
  s.tokens = {"a", "b", "c", "ab", "bc", "<s>"};
  s.types = {1, 1, 1, 1, 1, 3};
  s.merges = {"a b", "b c", "a b"};
  s.bos = 5;
  EXPECT_EQ(plain(s.load(), "abc"), (std::vector<Token>{3, 2}));
}

TEST(TokenizerMutation, DamagedVocabulariesAreReadOrRefused) {
  const char* wanted = std::getenv("CGP_MUTATIONS");
  const int cases = wanted ? std::atoi(wanted) / 50 : 400;
  SplitMix64 random(5);
  const std::string texts[] = {"Hello world", " \n\t 33 it's \xFF\xC2 \u20AC", "<s>ab"};
  int read = 0, refused = 0;
  for (const char* name : {"deepseek-coder", "phi-3", "bert-bge", "falcon"}) {
    MappedFile mapped(fixture(name));
    const std::string file(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
    for (int i = 0; i < cases; ++i) {
      std::string damaged = file;
      for (std::uint64_t n = 1 + random.next() % 8; n > 0; --n) {
        std::size_t at = random.next() % (i % 2 ? damaged.size() : 2000);
        damaged[at] = char(random.next() % 4 ? damaged[at] ^ 1 << random.next() % 8 : random.next());
      }
      try {
        Tokenizer t = Tokenizer::from_gguf(
            Gguf::parse(std::as_bytes(std::span(damaged.data(), damaged.size())), "x.gguf"));
        for (const std::string& s : texts) t.decode(t.encode(s, {.parse_special = true}));
        ++read;
      } catch (const Error& e) {
        EXPECT_FALSE(e.rule().empty());
        ++refused;
      }
    }
  }
  EXPECT_GT(read, cases / 10);
  EXPECT_GT(refused, cases / 10);
}

}  // namespace
}  // namespace cgp::model
