// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/tokenizer/pre_tokenizers.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::model {

namespace {

// Macros, so that patterns are put together at compile time.
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define WORD R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define SYMBOLS R"(| ?[^\s\p{L}\p{N}]+[\r\n]*)"
// A word ends where lower case turns to upper case.
#define CASED_WORD(SUFFIX)                                                                 \
  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" SUFFIX \
  R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" SUFFIX

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 = CONTRACTION "|" WORD R"(|\p{N}{1,3})" SYMBOLS SPACES;
constexpr std::string_view kQwen2 = CONTRACTION "|" WORD R"(|\p{N})" SYMBOLS SPACES;
constexpr std::string_view kGpt4o =
    CASED_WORD(CONTRACTION "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" SPACES;
constexpr std::string_view kTekken = CASED_WORD("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" SPACES;
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)" SPACES;
constexpr std::string_view kChineseJapanese = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kChineseKorean = "[一-龥ࠀ-一가-퟿]+";
constexpr std::string_view kUpTo3Digits = R"(\p{N}{1,3})";
constexpr std::string_view kBloom = " ?[^(\\s|.,!?…。，、।۔،)]+";
constexpr std::string_view kLines = "[^\\n]+|[\\n]+";
// clang-format off
constexpr std::string_view kDeepSeekLetters =
    "\\s?["
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-"
    "ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ"
    "-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓ"
    "ℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ"
    "-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
    "]+";
// clang-format on

}  // namespace

const std::vector<PreTokenizer>& pre_tokenizers() {
  static const std::vector<PreTokenizer> table = {
      {{"default", ""}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
        "modern-bert", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling", "jina-v1-en",
        "jina-v2-code", "roberta-bpe"},
       {kGpt2}},
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       {kLlama3},
       true,
       true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {kLlama3}},
      {{"glm4", "glm5"}, {kLlama3}, true},
      {{"jais-2"},
       {CONTRACTION
        "|" WORD R"(|\p{N}{1,3})" SYMBOLS
        R"(|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez",
        "grok-2"},
       {kQwen2}},
      {{"qwen35"},
       {CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" SPACES}},
      {{"minicpm5"}, {kUpTo3Digits, CONTRACTION "|" WORD R"(|\p{N}+)" SYMBOLS SPACES}, true},
      {{"ufakzeka"}, {WORD R"(|\p{N})" SYMBOLS SPACES}},
      {{"laguna"}, {kLines, kQwen2}},
      {{"deepseek-llm"},
       {"[\r\n]", kDeepSeekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)", kChineseKorean,
        R"(\p{N}+)"}},
      {{"deepseek-coder"}, {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kChineseKorean, R"(\p{N})"}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {kUpTo3Digits, kChineseJapanese, kDeepSeek3}},
      {{"spark2_5"},
       {kUpTo3Digits, kChineseJapanese,
        R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
        R"(\p{N})"}},
      {{"youtu"},
       {"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]"
        "+",
        CASED_WORD(CONTRACTION "?") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" SPACES},
       true},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {R"(\p{N})", kGpt2}},
      {{"poro-chat", "bloom", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, R"(\p{N})"}},
      {{"tekken"}, {kTekken}, true, true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {kGpt4o}},
      {{"granite-embed-multi-97m"}, {kGpt4o}, true},
      {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}},
      {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"seed-coder"}, {CONTRACTION "|" WORD R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" SPACES}},
      {{"exaone-moe"},
       {CONTRACTION
        R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"chameleon"},
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", R"(\p{N})",
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
       false,
       true},
      {{"gemma4", "granite-embed-multi-311m", "sarvam-moe"}, {kLines}, false, false, true},
  };
  return table;
}

const PreTokenizer& pre_tokenizer(std::string_view name) {
  std::vector<std::string> names;
  for (const PreTokenizer& p : pre_tokenizers())
    for (std::string_view n : p.names) {
      if (n == name) return p;
      names.emplace_back(n);
    }
  throw Unsupported(ErrorText{text::cat("the pre-tokenizer '", name, "' is not known"),
                              "key 'tokenizer.ggml.pre'",
                              text::cat("close ones are ", text::join(text::closest(name, names), ", ")),
                              {}});
}

bool covers_all_text(std::string_view pattern) {
  for (std::string_view known : {kGpt2, kLlama3, kQwen2, kGpt4o, kTekken})
    if (pattern == known) return true;
  return false;
}

}  // namespace cgp::model
