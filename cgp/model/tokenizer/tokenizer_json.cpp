// SPDX-License-Identifier: Apache-2.0
// A tokenizer from tokenizer.json, the file of Hugging Face's library tokenizers.
#include <algorithm>
#include <map>
#include <optional>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/files/mapped_file.h"
#include "cgp/model/source/json_object.h"
#include "cgp/model/tokenizer/pre_tokenizers.h"
#include "cgp/model/tokenizer/tokenizer_folder.h"

namespace cgp::model {

using text::cat;

namespace {

/// The bytes of base64 (RFC 4648); nothing where it is none.
std::optional<std::string> from_base64(std::string_view text) {
  std::string out;
  std::uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (char c : text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return {};
    bits = bits << 6 | std::uint32_t(digit), count += 6;
    if (count >= 8) out += char(bits >> (count -= 8) & 255);
  }
  return out;
}

/// `text` as a regular expression that matches it alone.
std::string literal(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (std::string_view(R"(\.^$|?*+()[]{}-)").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

class TokenizerJson {
 public:
  TokenizerJson(const std::string& path, Tokenizer::Parts& out)
      : path_(path),
        file_(path),
        text_(reinterpret_cast<const char*>(file_.bytes().data()), file_.bytes().size()),
        p_(out) {}

  void run() {
    read_file();
    kind_ = model_->find_string("type").value_or(merges_.empty() ? "" : "BPE");
    if (kind_ != "BPE" && kind_ != "Unigram" && kind_ != "WordPiece")
      model_->unsupported("type", "a tokenizer is BPE, Unigram or WordPiece", cat("it is '", kind_, "'"));
    if (vocab_.empty()) model_->fail("vocab", "a tokenizer must have a vocabulary", "it has none");
    for (const JsonObject& o : flat("pre_tokenizer", "pretokenizers"))
      byte_level_ |= o.string("type") == "ByteLevel";
    read_words();
    read_added();
    fill_vocabulary();
    post_processors();
    if (kind_ == "BPE")
      byte_pair();
    else if (kind_ == "Unigram")
      unigram();
    else
      word_piece();
    p_.sort_added();
  }

 private:
  struct Word {
    std::string_view text;
    float score = 0;
    TokenType type = TokenType::unused;
    bool there = false;
  };

  /// Small values are parsed whole, the vocabulary and the merges later, in place.
  void read_file() {
    JsonCursor json(text_, path_);
    const auto value = [&](const std::string& key, std::string_view raw) {
      return Value::from_json(raw, cat(path_, ", key '", key, "'"));
    };
    json.object([&](const std::string& key) {
      if (key != "model") {
        const std::string_view raw = json.raw();
        if (key != "truncation" && key != "padding") root_.emplace_back(key, value(key, raw));
        return;
      }
      ValueDict members;
      json.object([&](const std::string& name) {
        const std::string_view raw = json.raw();
        if (name == "vocab")
          vocab_ = raw;
        else if (name == "merges")
          merges_ = raw;
        else
          members.emplace_back(name, value(name, raw));
      });
      model_.emplace(Value(std::move(members)), cat(path_, ", key 'model'"));
    });
    json.end();
    if (!model_)
      throw ParseError(
          ErrorText{"a tokenizer must have a model", cat(path_, ", key 'model'"), "it is not there", {}});
    root_object_.emplace(Value(root_), path_);
  }

  JsonCursor at(std::string_view part) const {
    return {part, path_, std::uint64_t(part.data() - text_.data())};
  }
  /// A string of the file, kept where it has escapes.
  std::string_view keep(JsonCursor& json) {
    std::string buffer;
    const std::string_view found = json.string(buffer);
    if (found.data() != buffer.data()) return found;
    return kept_.emplace_back(std::move(buffer));
  }
  Word& word(std::uint64_t id, const JsonCursor& json) {
    // An entry takes some bytes of the file: ids beyond its size leave gaps.
    if (id > text_.size()) json.fail("the ids of a vocabulary must have few gaps", cat("an id is ", id));
    if (id >= words_.size()) words_.resize(id + 1);
    return words_[id];
  }

  void read_words() {
    JsonCursor json = at(vocab_);
    words_.reserve(vocab_.size() / 24);
    if (kind_ == "Unigram") {
      json.array([&] {
        Word w{.text = {}, .there = true};
        int n = 0;
        json.array([&] {
          if (n == 0)
            w.text = keep(json);
          else if (const Value score = Value::from_json(json.raw(), path_);
                   n == 1 && (score.is_float() || score.is_integer()))
            w.score = float(score.number());
          else
            json.fail("a piece must have a text and a score");
          ++n;
        });
        if (n != 2) json.fail("a piece must have a text and a score");
        words_.push_back(w);
      });
    } else {
      std::string buffer;
      json.object(buffer, [&](std::string_view text) {
        if (text.data() == buffer.data()) text = kept_.emplace_back(text);
        Word& w = word(json.integer(), json);
        if (w.there)
          json.fail("an id must belong to one word", cat("'", w.text, "' and '", text, "' have one"));
        w.text = text, w.there = true;
      });
    }
    json.end();
    const bool bytes = kind_ == "BPE" && model_->find_bool("byte_fallback").value_or(false);
    for (Word& w : words_)
      if (w.there)
        w.type =
            bytes && w.text.size() == 6 && w.text.starts_with("<0x") ? TokenType::byte : TokenType::normal;
  }

  void read_added() {
    const ValueList* list = root_object_->find_list("added_tokens");
    if (!list) return;
    for (const Value& v : *list) {
      const JsonObject o(v, cat(path_, ", key 'added_tokens'"));
      Added a{.id = o.integer("id"), .text = kept_.emplace_back(o.string("content"))};
      if (a.text.empty()) o.fail("content", "an added token must have a text", "it is empty");
      if (o.find_bool("single_word").value_or(false))
        o.unsupported("single_word", "an added token may be part of a word",
                      cat("that of '", a.text, "' is true"));
      a.normalized = o.find_bool("normalized").value_or(false);
      a.strip_left = o.find_bool("lstrip").value_or(false),
      a.strip_right = o.find_bool("rstrip").value_or(false);
      Word& w = word(a.id, at(text_));
      if (w.there && w.text != a.text)
        o.fail("id", "an id must belong to one word", cat("'", w.text, "' and '", a.text, "' have ", a.id));
      w.text = a.text, w.there = true;
      w.type = o.find_bool("special").value_or(false) ? TokenType::control : TokenType::user_defined;
      added_.push_back(a);
    }
  }

  void fill_vocabulary() {
    if (words_.empty()) model_->fail("vocab", "a vocabulary must have words", "there is none");
    std::size_t bytes = 0;
    for (const Word& w : words_) bytes += w.text.size() + 3;
    p_.vocabulary.reserve(words_.size(), bytes);
    std::string buffer;
    for (const Word& w : words_) {
      std::string_view text = w.text;
      if (w.type == TokenType::normal && byte_level_) {
        buffer.clear();
        append_unspelled(buffer, text);
        text = buffer;
      } else if (w.type == TokenType::normal && kind_ == "WordPiece") {
        buffer = text.starts_with("##") ? std::string(text.substr(2)) : cat(kSpaceSymbol, text);
        text = buffer;
      }
      // A gap among the ids is a token without a text.
      p_.vocabulary.add(text, w.there ? w.type : TokenType::control, w.score);
    }
    for (const Added& a : added_) p_.add_added(Token(a.id), a.strip_left, a.strip_right);
    Token unknown = kNoToken;
    if (const auto text = kind_ == "Unigram" ? std::nullopt : model_->find_string("unk_token")) {
      unknown =
          p_.vocabulary.find_any(kind_ == "WordPiece" && !is_added(*text) ? cat(kSpaceSymbol, *text) : *text);
      if (unknown == kNoToken)
        model_->fail("unk_token", "a special token must be in the vocabulary", cat("'", *text, "' is not"));
    } else if (const auto id = kind_ == "Unigram" ? model_->find_integer("unk_id") : std::nullopt) {
      if (*id >= words_.size())
        model_->fail("unk_id", "a special token must be in the vocabulary", cat(*id, " of ", words_.size()));
      unknown = Token(*id);
    }
    p_.special.unknown = unknown;
  }
  bool is_added(std::string_view text) const {
    return std::any_of(added_.begin(), added_.end(), [&](const Added& a) { return a.text == text; });
  }

  /// The steps under `key`, those of sequences one after the other.
  std::vector<JsonObject> flat(std::string_view key, std::string_view inner) const {
    std::vector<JsonObject> out;
    const auto add = [&](const auto& self, const JsonObject& o) -> void {
      if (o.string("type") != "Sequence") return out.push_back(o);
      const ValueList* steps = o.find_list(inner);
      if (!steps) o.fail(inner, "a sequence must have its steps", "they are not there");
      for (const Value& step : *steps) self(self, JsonObject(step, o.where()));
    };
    if (const auto o = root_object_->find_object(key)) add(add, *o);
    return out;
  }
  [[noreturn]] void refuse(const JsonObject& step) const {
    step.unsupported("type", cat("a tokenizer of the kind ", kind_, " is run without this step"),
                     cat("it is ", Value(step.members()).json().substr(0, 200)));
  }
  static bool is_true(const JsonObject& o, std::string_view key) { return o.find_bool(key).value_or(false); }
  /// A pattern that is a string.
  static std::optional<std::string> string_pattern(const JsonObject& o) {
    const auto pattern = o.find_object("pattern");
    return pattern ? pattern->find_string("String") : std::nullopt;
  }
  static std::optional<std::string> regex_pattern(const JsonObject& o) {
    const auto pattern = o.find_object("pattern");
    return pattern ? pattern->find_string("Regex") : std::nullopt;
  }

  void special_token(const JsonObject& o, std::string_view key, std::uint64_t id, Token& token,
                     bool& adds) const {
    if (id >= words_.size())
      o.fail(key, "a special token must be in the vocabulary", cat(id, " of ", words_.size()));
    token = Token(id), adds = true;
  }

  void post_processors() {
    for (const JsonObject& o : flat("post_processor", "processors")) {
      const std::string type = o.string("type");
      if (type == "ByteLevel") continue;
      if (type == "BertProcessing" || type == "RobertaProcessing") {
        for (auto [key, token, adds] : {std::tuple("cls", &p_.special.bos, &p_.add_bos),
                                        std::tuple("sep", &p_.special.eos, &p_.add_eos)}) {
          const ValueList* pair = o.find_list(key);
          if (!pair || pair->size() != 2 || !(*pair)[1].is_integer() || (*pair)[1].integer() < 0)
            o.fail(key, "the value must be a token and its id", "it is not");
          special_token(o, key, std::uint64_t((*pair)[1].integer()), *token, *adds);
        }
      } else if (type == "TemplateProcessing") {
        template_of(o);
      } else {
        refuse(o);
      }
    }
  }

  /// "<s> $A </s>": at most one token before the text, and one after it.
  void template_of(const JsonObject& o) {
    const ValueList* single = o.find_list("single");
    const auto tokens = o.find_object("special_tokens");
    if (!single) o.fail("single", "a template must have this key", "it is not there");
    bool text = false;
    for (const Value& v : *single) {
      const JsonObject piece(v, cat(o.where(), ", key 'single'"));
      if (piece.has("Sequence")) {
        text = true;
        continue;
      }
      const auto special = piece.find_object("SpecialToken");
      if (!special) piece.fail("single", "a piece must be a SpecialToken or a Sequence", "it is neither");
      const std::string name = special->string("id");
      const auto described = tokens ? tokens->find_object(name) : std::nullopt;
      const ValueList* ids = described ? described->find_list("ids") : nullptr;
      if (!ids || ids->size() != 1 || !(*ids)[0].is_integer() || (*ids)[0].integer() < 0)
        o.unsupported("special_tokens", "a special token of a template has one id",
                      cat("'", name, "' has not"));
      if (text ? p_.add_eos : p_.add_bos)
        o.unsupported("single", "a template has at most one token before the text and one after it",
                      cat("'", name, "' is another"));
      special_token(o, "special_tokens", std::uint64_t((*ids)[0].integer()),
                    text ? p_.special.eos : p_.special.bos, text ? p_.add_eos : p_.add_bos);
    }
  }

  /// Text between added tokens is normalised, but they are looked for before: those that are not are refused.
  void refuse_normalized(bool only_composed) const {
    for (const Added& a : added_)
      if (a.normalized && !(only_composed && unicode::nfc(a.text) == a.text))
        throw Unsupported(
            ErrorText{"an added token is looked for in the text as it is",
                      cat(path_, ", key 'added_tokens'"),
                      cat("'", a.text, "' has normalized: true, and the tokenizer has a normalizer"),
                      {}});
  }

  void metaspace(const JsonObject& o, std::string& pattern) {
    if (o.find_string("replacement").value_or(std::string(kSpaceSymbol)) != kSpaceSymbol) refuse(o);
    const std::string scheme =
        o.find_string("prepend_scheme")
            .value_or(o.find_bool("add_prefix_space").value_or(true) ? "always" : "never");
    if (scheme != "always" && scheme != "first" && scheme != "never") refuse(o);
    p_.escaped_spaces = true;
    p_.add_space_prefix = scheme != "never", p_.prefix_once = scheme == "first",
    p_.prefix_unless_space = true;
    if (o.find_bool("split").value_or(true)) pattern = "▁[^▁]*|[^▁]+";
  }

  void byte_pair() {
    p_.kind = "bpe";
    for (std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (const auto s = model_->find_string(key); s && !s->empty())
        model_->unsupported(key, "byte-pair encoding has no marks of words", cat("it is '", *s, "'"));
    if (model_->find_number("dropout").value_or(0) != 0)
      model_->unsupported("dropout", "merges are all done", cat("it is ", model_->number("dropout")));
    BytePairModel::Options options;
    options.byte_level = byte_level_;
    options.ignore_merges = is_true(*model_, "ignore_merges");
    options.unknown = p_.special.unknown;

    const auto normalizers = flat("normalizer", "normalizers");
    for (const JsonObject& o : normalizers) {
      const std::string type = o.string("type");
      if (type == "NFC" && byte_level_ && !p_.add_space_prefix)
        p_.composed = true;
      else if (type == "Prepend" && o.string("prepend") == kSpaceSymbol && !byte_level_ && !p_.escaped_spaces)
        p_.add_space_prefix = true;
      else if (type == "Replace" && string_pattern(o) == " " && o.string("content") == kSpaceSymbol &&
               !byte_level_)
        p_.escaped_spaces = true;
      else
        refuse(o);
    }
    if (!normalizers.empty()) refuse_normalized(p_.composed);

    std::string cut;  // of text whose spaces are escaped
    bool last = false;
    for (const JsonObject& o : flat("pre_tokenizer", "pretokenizers")) {
      const std::string type = o.string("type");
      if (last) refuse(o);
      if (type == "ByteLevel") {
        if (is_true(o, "add_prefix_space")) refuse(o);
        if (o.find_bool("use_regex").value_or(true))
          options.patterns.emplace_back(pre_tokenizer("gpt-2").patterns[0]);
        last = true;
      } else if (type == "Metaspace" && !byte_level_ && !p_.escaped_spaces) {
        metaspace(o, cut);
        last = true;
      } else if (type == "Digits" && byte_level_) {
        options.patterns.emplace_back(is_true(o, "individual_digits") ? R"(\p{N})" : R"(\p{N}+)");
      } else if (type == "Split" && !byte_level_ && p_.escaped_spaces && string_pattern(o) == " ") {
        // No space is left.
      } else if (type == "Split" && byte_level_) {
        const auto regex = regex_pattern(o), plain = string_pattern(o);
        if (!regex && !plain) refuse(o);
        std::string pattern = regex ? *regex : literal(*plain);
        const std::string behavior = o.string("behavior");
        const bool inverted = is_true(o, "invert");
        if (!(behavior == "Isolated" && !inverted) &&
            !(behavior == "Removed" && inverted && covers_all_text(pattern)))
          refuse(o);
        options.patterns.push_back(std::move(pattern));
      } else {
        refuse(o);
      }
    }
    if (!byte_level_) {
      if (!p_.escaped_spaces)
        root_object_->unsupported(
            "pre_tokenizer", "byte-pair encoding is byte-level, or has spaces as U+2581", "it is neither");
      const auto& bytes = p_.vocabulary.byte_tokens();
      if (!is_true(*model_, "byte_fallback") || std::count(bytes.begin(), bytes.end(), kNoToken))
        model_->unsupported("byte_fallback", "characters that are no words become bytes",
                            "it is false, or the vocabulary lacks a byte");
      options.escape_spaces = true;
      if (cut.empty()) {
        bool inner = false;
        for (const Word& w : words_) inner |= has_inner_space(w.text);
        cut = inner ? R"([\s\S]+)" : "▁*[^▁]+|▁+";  // no merge goes over such a cut
      }
      options.patterns = {cut};
    }
    decoders(byte_level_
                 ? std::vector<std::string_view>{"ByteLevel"}
                 : std::vector<std::string_view>{"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"});
    auto model = std::make_unique<BytePairModel>(p_.vocabulary, std::move(options));
    add_merges(*model);
    p_.model = std::move(model);
  }

  void add_merges(BytePairModel& model) {
    std::vector<std::pair<std::string_view, std::string_view>> merges;
    if (!merges_.empty()) {
      merges.reserve(merges_.size() / 12);
      JsonCursor json = at(merges_);
      json.array([&] {
        std::pair<std::string_view, std::string_view> m;
        if (json.at_array()) {
          int n = 0;
          json.array([&] {
            if (n > 1) json.fail("a merge must be two words");
            (n++ ? m.second : m.first) = keep(json);
          });
          if (n != 2) json.fail("a merge must be two words");
        } else {
          const std::string_view line = keep(json);
          const std::size_t space = line.find(' ');
          if (space == line.npos || line.find(' ', space + 1) != line.npos)
            json.fail("a merge must be two words with a space between them", cat("it is '", line, "'"));
          m = {line.substr(0, space), line.substr(space + 1)};
        }
        merges.push_back(m);
      });
      json.end();
    }
    if (const std::size_t bad = model.add_merges(merges); bad < merges.size())
      model_->fail("merges", "a merge's two words, and both together, must be in the vocabulary",
                   cat("merge ", bad, " is '", merges[bad].first, " ", merges[bad].second, "'"));
  }

  void decoders(const std::vector<std::string_view>& known) {
    for (const JsonObject& o : flat("decoder", "decoders"))
      if (std::find(known.begin(), known.end(), o.string("type")) == known.end()) refuse(o);
  }

  void unigram() {
    p_.kind = "unigram";
    p_.escaped_spaces = p_.prefix_is_models = true;
    if (is_true(*model_, "byte_fallback"))
      model_->unsupported("byte_fallback", "a unigram model has a token for unknown characters",
                          "it is true");
    UnigramModel::Options options;
    options.unknown = p_.special.unknown;
    bool single_spaces = false, stripped = false, words = false, spaces = false;
    const auto normalizers = flat("normalizer", "normalizers");
    for (const JsonObject& o : normalizers) {
      const std::string type = o.string("type");
      if (type == "Precompiled" && !single_spaces && !stripped) {
        const auto map = from_base64(o.string("precompiled_charsmap"));
        if (!map) o.fail("precompiled_charsmap", "the value must be base64", "it is not");
        options.precompiled_charsmap = *map;
      } else if (type == "Replace" && regex_pattern(o) == " {2,}" && o.string("content") == " ") {
        single_spaces = true;
      } else if (type == "Strip" && o.find_bool("strip_left").value_or(true) &&
                 o.find_bool("strip_right").value_or(true)) {
        stripped = true;
      } else {
        refuse(o);
      }
    }
    if (!normalizers.empty()) refuse_normalized(false);
    std::string cut;
    for (const JsonObject& o : flat("pre_tokenizer", "pretokenizers")) {
      const std::string type = o.string("type");
      if (type == "WhitespaceSplit" && !spaces)
        words = true;
      else if (type == "Metaspace" && !spaces)
        metaspace(o, cut), spaces = true;
      else
        refuse(o);
    }
    bool inner = false;
    for (const Word& w : words_) inner |= has_inner_space(w.text);
    if (!spaces || !p_.add_space_prefix || p_.prefix_once || inner || !(words || (single_spaces && stripped)))
      root_object_->unsupported(
          "pre_tokenizer", "a unigram model has one U+2581 before each word, and words without it inside",
          "it has other spaces");
    p_.prefix_unless_space = false;
    options.remove_extra_spaces = true;
    decoders({"Metaspace"});
    p_.model = std::make_unique<UnigramModel>(p_.vocabulary, std::move(options));
  }

  void word_piece() {
    p_.kind = "wordpiece";
    p_.escaped_spaces = true;
    if (model_->find_string("continuing_subword_prefix").value_or("##") != "##")
      model_->unsupported("continuing_subword_prefix", "continuations begin with ##",
                          cat("it is '", model_->string("continuing_subword_prefix"), "'"));
    WordPieceModel::Options options;
    options.unknown = p_.special.unknown;
    options.longest_word = model_->find_integer("max_input_chars_per_word").value_or(100);
    bool normalized = false, cut = false;
    for (const JsonObject& o : flat("normalizer", "normalizers")) {
      if (o.string("type") != "BertNormalizer" || normalized || !o.find_bool("clean_text").value_or(true) ||
          !o.find_bool("handle_chinese_chars").value_or(true))
        refuse(o);
      options.lowercase = o.find_bool("lowercase").value_or(true);
      options.strip_accents = o.find_bool("strip_accents").value_or(options.lowercase);
      normalized = true;
    }
    for (const JsonObject& o : flat("pre_tokenizer", "pretokenizers")) {
      if (o.string("type") != "BertPreTokenizer" || cut) refuse(o);
      cut = true;
    }
    if (!normalized || !cut)
      root_object_->unsupported("normalizer", "WordPiece has BertNormalizer and BertPreTokenizer",
                                "one is missing");
    refuse_normalized(false);
    decoders({"WordPiece"});
    p_.model = std::make_unique<WordPieceModel>(p_.vocabulary, options);
  }

  struct Added {
    std::uint64_t id;
    std::string_view text;
    bool normalized = false, strip_left = false, strip_right = false;
  };
  const std::string& path_;
  MappedFile file_;
  std::string_view text_, vocab_, merges_;
  Tokenizer::Parts& p_;
  std::string kind_;
  ValueDict root_;
  std::optional<JsonObject> root_object_, model_;
  std::deque<std::string> kept_;
  std::vector<Word> words_;
  std::vector<Added> added_;
  bool byte_level_ = false;
};

}  // namespace

void read_tokenizer_json(const std::string& path, Tokenizer::Parts& out) { TokenizerJson(path, out).run(); }

}  // namespace cgp::model
