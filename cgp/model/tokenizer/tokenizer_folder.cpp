// SPDX-License-Identifier: Apache-2.0
// A tokenizer from a Hugging Face folder: its words from tokenizer.json or tokenizer.model, its special tokens and its chat
// template from the files beside it.
#include "cgp/model/tokenizer/tokenizer_folder.h"

#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/source/json_object.h"

namespace cgp::model {

using text::cat;

namespace {

class FolderReader {
 public:
  FolderReader(const std::string& folder, Tokenizer::Parts& out) : folder_(folder), p_(out) {}

  void run() {
    const auto config = file("tokenizer_config.json");
    if (exists("tokenizer.json")) {
      read_tokenizer_json(path("tokenizer.json"), p_);
    } else if (exists("tokenizer.model")) {
      read_sentencepiece_model(path("tokenizer.model"), p_);
      if (config) {
        p_.add_bos = config->find_bool("add_bos_token").value_or(p_.add_bos);
        p_.add_eos = config->find_bool("add_eos_token").value_or(p_.add_eos);
      }
    } else {
      throw ParseError(ErrorText{"a folder of a model must have tokenizer.json or tokenizer.model", folder_,
                                 exists("vocab.json") ? "it has vocab.json" : "neither is there",
                                 "save the tokenizer with save_pretrained() of a PreTrainedTokenizerFast"});
    }
    if (config) {
      for (auto [key, token] :
           {std::pair("bos_token", &p_.special.bos), std::pair("eos_token", &p_.special.eos),
            std::pair("unk_token", &p_.special.unknown), std::pair("sep_token", &p_.special.separator),
            std::pair("pad_token", &p_.special.padding), std::pair("mask_token", &p_.special.mask)})
        if (*token == kNoToken) *token = named(*config, key);
      chat_template(*config);
    }
    if (exists("chat_template.jinja")) p_.chat_template = read_file(path("chat_template.jinja"));
    for (const char* name : {"generation_config.json", "config.json"})
      if (const auto ids = file(name)) special_ids(*ids);
    for (auto [adds, token, key] : {std::tuple(p_.add_bos, p_.special.bos, "bos_token"),
                                    std::tuple(p_.add_eos, p_.special.eos, "eos_token")})
      if (adds && token == kNoToken)
        throw ParseError(ErrorText{"a tokenizer that puts a token beside the text must name it",
                                   cat(folder_, ", key '", key, "'"),
                                   "it is not there",
                                   {}});
    p_.mark_ends();
  }

 private:
  std::string path(const char* name) const { return (std::filesystem::path(folder_) / name).string(); }
  bool exists(const char* name) const { return std::filesystem::exists(path(name)); }
  std::optional<JsonObject> file(const char* name) const {
    if (!exists(name)) return {};
    return JsonObject::read(path(name));
  }

  /// The token under `key`: its text, or an object that has it as its content.
  Token named(const JsonObject& config, std::string_view key) const {
    const Value* v = config.find(key);
    if (!v) return kNoToken;
    const std::string text = v->is_string()
                                 ? v->string()
                                 : JsonObject(*v, cat(config.where(), ", key '", key, "'")).string("content");
    return p_.vocabulary.find_any(text);
  }

  void chat_template(const JsonObject& config) {
    const Value* v = config.find("chat_template");
    if (!v) return;
    if (v->is_string()) {
      p_.chat_template = v->string();
      return;
    }
    const ValueList* list = config.find_list("chat_template");
    for (const Value& entry : *list) {
      const JsonObject one(entry, cat(config.where(), ", key 'chat_template'"));
      if (one.string("name") == "default") p_.chat_template = one.string("template");
    }
  }

  /// bos_token_id, and eos_token_id: one or several.
  void special_ids(const JsonObject& config) {
    const auto checked = [&](std::string_view key, const Value& v) {
      if (!v.is_integer() || v.integer() < 0 ||
          !p_.vocabulary.has(Token(std::min<std::int64_t>(v.integer(), 1 << 30))))
        config.fail(key, "a special token must be in the vocabulary",
                    cat(v.json().substr(0, 60), " of ", p_.vocabulary.size()));
      return Token(v.integer());
    };
    if (const Value* v = config.find("bos_token_id"); v && p_.special.bos == kNoToken)
      p_.special.bos = checked("bos_token_id", *v);
    const Value* v = config.find("eos_token_id");
    if (!v) return;
    const ValueList one{*v}, &all = v->list() ? *v->list() : one;
    for (const Value& id : all) {
      const Token token = checked("eos_token_id", id);
      if (p_.special.eos == kNoToken) p_.special.eos = token;
      p_.ends_generation.insert(token);
    }
  }

  const std::string& folder_;
  Tokenizer::Parts& p_;
};

}  // namespace

Tokenizer Tokenizer::from_folder(const std::string& folder) {
  auto parts = std::make_unique<Parts>();
  FolderReader(folder, *parts).run();
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::open(const std::string& path) {
  return std::filesystem::is_directory(path) ? from_folder(path) : from_gguf(Gguf::open(path));
}

Tokenizer Tokenizer::open(const Source& source) {
  return std::filesystem::is_directory(source.path()) ? from_folder(source.path()) : from_gguf(source);
}

}  // namespace cgp::model
