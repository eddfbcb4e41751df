// SPDX-License-Identifier: Apache-2.0
#pragma once
// A template's text cut into data and the words inside of its tags.
#include <string>
#include <string_view>
#include <vector>

namespace cgp::model::jinja {

struct Word {
  enum Kind {
    data,
    begin_output,
    end_output,
    begin_block,
    end_block,
    name,
    integer,
    number,
    string,
    op,
    end
  } kind;
  std::string text;
  int line;
};

/// With trim_blocks and lstrip_blocks; comments are gone, raw blocks are data. Throws ParseError with the line.
std::vector<Word> lex(std::string_view source, const std::string& name);

}  // namespace cgp::model::jinja
