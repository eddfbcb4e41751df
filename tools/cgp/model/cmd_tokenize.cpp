// SPDX-License-Identifier: Apache-2.0
// cgp tokenize: text to the ids of a model's tokenizer, and back.
#include <fmt/core.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/model/files/json_cursor.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/model/tokenizer/tokenizer.h"
#include "cgp/model/unicode/unicode.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/model_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

std::string input(const TokenizeOptions& o) {
  if (o.text_given) return o.text;
  if (o.file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  return read_file(o.file);
}

}  // namespace

int tokenize(const Context& context, const TokenizeOptions& o) {
  if (int(o.text_given) + int(!o.file.empty()) + int(!o.ids.empty()) != 1)
    throw ArgumentError(ErrorText{
        "one of --text, --file and --ids is needed", {}, {}, "cgp tokenize model.gguf --text Hello"});
  const model::Tokenizer tokenizer = model::Tokenizer::open(o.model);
  std::vector<model::Token> ids(o.ids.begin(), o.ids.end());
  if (ids.empty())
    ids = tokenizer.encode(input(o), {.add_special = o.add_special, .parse_special = o.parse_special});
  const std::string text = model::unicode::valid(tokenizer.decode(ids));
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.tokenize/1"},
                                {"file", o.model},
                                {"kind", tokenizer.kind()},
                                {"pre_tokenizer", tokenizer.pre_tokenizer()},
                                {"vocabulary", tokenizer.vocabulary().size()},
                                {"ids", ids},
                                {"pieces", nlohmann::ordered_json::array()},
                                {"text", text}};
    for (model::Token id : ids) j["pieces"].push_back(model::unicode::valid(tokenizer.piece(id)));
    write_out(spec::dumped(j, 2) + "\n");
    return kClean;
  }
  std::string out;
  if (!o.ids.empty()) {
    out = text + "\n";
  } else {
    for (model::Token id : ids)
      out += fmt::format("{:>8}  {}\n", id, model::json_string(model::unicode::valid(tokenizer.piece(id))));
    out += fmt::format("{} tokens\n", ids.size());
  }
  write_out(out);
  return kClean;
}

}  // namespace cgp::cli
