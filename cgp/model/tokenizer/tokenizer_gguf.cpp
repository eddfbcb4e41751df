// SPDX-License-Identifier: Apache-2.0
// A tokenizer from a GGUF's keys tokenizer.ggml.*.
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/tokenizer/pre_tokenizers.h"
#include "cgp/model/tokenizer/tokenizer_parts.h"

namespace cgp::model {

using text::cat;

namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

[[noreturn]] void bad_key(const Source& file, std::string_view key, std::string rule, std::string why) {
  throw ParseError(
      ErrorText{std::move(rule), cat(file.path(), ", key '", kPrefix, key, "'"), std::move(why), {}});
}

const GgufArray* find_array(const Source& file, std::string_view key, GgufType type) {
  return file.find_array(cat(kPrefix, key), type);
}

const GgufArray& strings(const Source& file, std::string_view key) {
  const GgufArray* found = find_array(file, key, GgufType::string);
  if (!found) bad_key(file, key, "a tokenizer must have this key", "the file lacks it");
  return *found;
}

/// Words whose text says that generation ends with them: files mark only some.
constexpr std::string_view kEnds[] = {"<|eot_id|>",
                                      "<|im_end|>",
                                      "<|end|>",
                                      "<|return|>",
                                      "<|call|>",
                                      "<|flush|>",
                                      "<|calls|>",
                                      "<end_of_turn>",
                                      "<|endoftext|>",
                                      "</s>",
                                      "<|eom_id|>",
                                      "<EOT>",
                                      "_<EOT>",
                                      "[EOT]",
                                      "[EOS]",
                                      "<|end_of_text|>",
                                      "<end_of_utterance>",
                                      "<eos>",
                                      "<turn|>",
                                      "<|tool_response>",
                                      "<｜end▁of▁sentence｜>",
                                      "[e~["};
constexpr std::string_view kEndsOfTurn[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",     "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>"};

template <class List>
bool contains(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

void read_vocabulary(const Source& file, bool byte_level, Vocabulary& out) {
  const GgufArray& words = strings(file, "tokens");
  const GgufArray* types = find_array(file, "token_type", GgufType::i32);
  const GgufArray* scores = find_array(file, "scores", GgufType::f32);
  for (auto [array, key] : {std::pair(types, "token_type"), std::pair(scores, "scores")})
    if (array && array->count < words.count)
      bad_key(file, key, "every token must have one", cat(array->count, " for ", words.count, " tokens"));
  if (words.count == 0) bad_key(file, "tokens", "a vocabulary must have tokens", "there is none");
  std::size_t bytes = 0;
  for (std::string_view w : words.strings) bytes += w.size();
  out.reserve(words.count, bytes);
  std::string buffer;
  for (std::size_t i = 0; i < words.count; ++i) {
    std::int32_t raw = types ? types->at<std::int32_t>(i) : 1;
    TokenType type = raw >= 1 && raw <= 6 ? TokenType(raw) : TokenType::unused;
    float score = scores ? scores->at<float>(i) : 0;
    if (score != score)
      bad_key(file, "scores", "a score must be a number", cat("that of token ", i, " is none"));
    std::string_view word = words.strings[i];
    if (byte_level && type == TokenType::normal) {
      buffer.clear();
      append_unspelled(buffer, word);
      word = buffer;
    }
    out.add(word, type, score);
  }
}

void read_special(const Source& file, Tokenizer::Special& s, const Vocabulary& vocabulary) {
  auto read = [&](std::string_view key, Token& token) {
    if (auto id = file.find_integer(cat(kPrefix, key))) {
      if (*id >= vocabulary.size())
        bad_key(file, key, "a special token must be in the vocabulary", cat(*id, " of ", vocabulary.size()));
      token = Token(*id);
    }
    if (token != kNoToken && !vocabulary.has(token)) token = kNoToken;
  };
  read("bos_token_id", s.bos);
  read("eos_token_id", s.eos);
  read("unknown_token_id", s.unknown);
  read("seperator_token_id", s.separator);  // as the format spells it
  read("padding_token_id", s.padding);
  read("mask_token_id", s.mask);
  read("eot_token_id", s.end_of_turn);
  read("eom_token_id", s.end_of_message);
}

/// Words that end generation, and the types that the file gives them wrongly.
void mark_ends(Vocabulary& vocabulary, Tokenizer::Special& special, std::set<Token>& ends) {
  bool has_call = false, has_return = false, has_tool_response = false;
  Token end = kNoToken, s = kNoToken;
  for (Token t = 0; t < Token(vocabulary.size()); ++t) {
    std::string_view word = vocabulary.word(t);
    if (word.size() < 4 || word.size() > 30 || !contains(kEnds, word)) continue;
    ends.insert(t);
    if (contains(kEndsOfTurn, word) && special.end_of_turn == kNoToken) special.end_of_turn = t;
    if (word == "<|eom_id|>" && special.end_of_message == kNoToken) special.end_of_message = t;
    has_call |= word == "<|call|>" || word == "<|calls|>";
    has_return |= word == "<|return|>" || word == "<|flush|>";
    has_tool_response |= word == "<|tool_response>";
    if (word == "<|end|>") end = t;
    if (word == "</s>") s = t;
  }
  if (has_call && has_return) ends.erase(end);  // it ends a message there, and the model goes on
  if (has_tool_response) ends.erase(s);         // text there
  for (Token t : ends) vocabulary.set_type(t, TokenType::control);
  for (Token t : {special.eos, special.end_of_turn, special.end_of_message})
    if (t != kNoToken) ends.insert(t);
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  return out;
}

}  // namespace

Tokenizer Tokenizer::from_gguf(const Source& file) {
  auto parts = std::make_unique<Parts>();
  Parts& p = *parts;
  Special& s = p.special;
  const std::string_view model = file.string(cat(kPrefix, "model"));
  p.pre_tokenizer = file.find_string(cat(kPrefix, "pre")).value_or("");
  p.chat_template = file.find_string("tokenizer.chat_template").value_or("");
  auto flag = [&](std::string_view key, bool otherwise) {
    return file.find_bool(cat(kPrefix, key)).value_or(otherwise);
  };
  const PreTokenizer* pre = nullptr;
  if (model == "gpt2" || model == "gemma4") {
    p.kind = "bpe";
    if (model == "gemma4") p.pre_tokenizer = "gemma4";
    pre = &model::pre_tokenizer(p.pre_tokenizer);
    p.escaped_spaces = pre->escape_spaces;
    p.add_bos = pre->add_bos || model == "gemma4";
  } else if (model == "llama") {
    p.kind = "sentencepiece";
    p.add_bos = p.add_space_prefix = p.escaped_spaces = true;
    s = {.bos = 1, .eos = 2, .unknown = 0};
  } else if (model == "t5") {
    p.kind = "unigram";
    p.add_eos = p.prefix_is_models = p.escaped_spaces = true;
    s = {.eos = 1, .unknown = 2, .padding = 0};
  } else if (model == "bert") {
    p.kind = "wordpiece";
    p.add_bos = p.add_eos = p.escaped_spaces = true;
    s = {.bos = 101, .unknown = 100, .separator = 102, .padding = 0, .mask = 103};
  } else {
    throw Unsupported(ErrorText{"a tokenizer is one of gpt2, llama, t5, bert and gemma4",
                                cat(file.path(), ", key '", kPrefix, "model'"),
                                cat("found '", model, "'"),
                                {}});
  }

  read_vocabulary(file, pre && !pre->escape_spaces, p.vocabulary);
  const Vocabulary& vocabulary = p.vocabulary;
  read_special(file, s, vocabulary);
  if (model == "bert") {
    s.eos = s.separator;
    if (auto cls = file.find_integer(cat(kPrefix, "cls_token_id")); cls && vocabulary.has(Token(*cls)))
      s.bos = Token(*cls);
  } else {
    p.add_bos = flag("add_bos_token", p.add_bos) || model == "gemma4";
    p.add_eos = flag("add_eos_token", p.add_eos);
  }
  if (p.add_bos && s.bos == kNoToken)
    bad_key(file, "bos_token_id", "a vocabulary that wants a token before the text must have it",
            "it has none");
  if (p.add_eos && s.eos == kNoToken)
    bad_key(file, "eos_token_id", "a vocabulary that wants a token after the text must have it",
            "it has none");
  if (!pre) p.add_space_prefix = flag("add_space_prefix", p.add_space_prefix);
  mark_ends(p.vocabulary, s, p.ends_generation);

  const std::string name = lower(file.find_string("general.name").value_or(""));
  const std::string_view architecture = file.find_string("general.architecture").value_or("");
  const bool strip_right = name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
  const bool strip_mask = architecture == "nomic-bert-moe" || architecture == "jina-bert-v3" ||
                          p.pre_tokenizer.starts_with("jina-v2-") || p.pre_tokenizer == "modern-bert";
  for (Token t = 0; t < Token(vocabulary.size()); ++t) {
    TokenType type = vocabulary.type(t);
    if (type != TokenType::control && type != TokenType::user_defined && type != TokenType::unknown) continue;
    std::string_view word = vocabulary.word(t);
    p.add_added(t, strip_mask && (word == "<mask>" || word == "[MASK]"),
                strip_right && word != "<unk>" && word != "<s>" && word != "<|endoftext|>");
  }
  p.sort_added();

  if (pre) {
    BytePairModel::Options options;
    for (std::string_view pattern : pre->patterns) options.patterns.emplace_back(pattern);
    options.byte_level = !pre->escape_spaces;
    options.ignore_merges = pre->ignore_merges;
    options.escape_spaces = pre->escape_spaces;
    options.newlines_whole = model == "gemma4";
    options.unknown = s.unknown;
    auto bpe = std::make_unique<BytePairModel>(vocabulary, std::move(options));
    const GgufArray& lines = strings(file, "merges");
    std::vector<std::pair<std::string_view, std::string_view>> merges;
    merges.reserve(lines.count);
    for (std::string_view line : lines.strings) {
      std::size_t space = line.find(' ', 1);
      if (line.empty() || space == line.npos)
        bad_key(file, "merges", "a merge must be two words with a space between them",
                cat("merge ", merges.size(), " is '", line, "'"));
      merges.push_back({line.substr(0, space), line.substr(space + 1)});
    }
    if (std::size_t bad = bpe->add_merges(merges); bad < merges.size())
      bad_key(file, "merges", "a merge's two words, and both together, must be in the vocabulary",
              cat("merge ", bad, " is '", lines.strings[bad], "'"));
    p.model = std::move(bpe);
  } else if (model == "llama") {
    p.model = std::make_unique<SentencePieceBpeModel>(vocabulary, s.unknown);
  } else if (model == "t5") {
    UnigramModel::Options options;
    options.add_space_prefix = p.add_space_prefix;
    options.remove_extra_spaces = flag("remove_extra_whitespaces", false);
    options.escape_spaces = flag("escape_whitespaces", true);
    options.unknown = s.unknown;
    if (const GgufValue* map = file.find(cat(kPrefix, "precompiled_charsmap"))) {
      const auto* array = std::get_if<GgufArray>(&map->held);
      if (!array || (array->element != GgufType::i8 && array->element != GgufType::u8))
        bad_key(file, "precompiled_charsmap", "it must be an array of bytes", "it has another type");
      options.precompiled_charsmap.assign(reinterpret_cast<const char*>(array->data.data()),
                                          array->data.size());
    }
    p.model = std::make_unique<UnigramModel>(vocabulary, std::move(options));
  } else {
    WordPieceModel::Options options;
    options.lowercase = flag("normalizer.lowercase", true);
    options.strip_accents = flag("normalizer.strip_accents", options.lowercase);
    options.unknown = s.unknown;
    p.model = std::make_unique<WordPieceModel>(vocabulary, options);
  }
  return Tokenizer(std::move(parts));
}

}  // namespace cgp::model
