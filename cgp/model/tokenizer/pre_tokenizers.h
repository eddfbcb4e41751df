// SPDX-License-Identifier: Apache-2.0
#pragma once
// The pre-tokenizers that tokenizer.ggml.pre names, as the regular expressions of the models' own tokenizer.json.
#include <string>
#include <string_view>
#include <vector>

namespace cgp::model {

struct PreTokenizer {
  std::vector<std::string_view> names;     ///< as in tokenizer.ggml.pre
  std::vector<std::string_view> patterns;  ///< each cuts what the ones before it left whole
  bool ignore_merges = false;              ///< a word of the vocabulary is taken without merging
  bool add_bos = false;                    ///< unless the file says otherwise
  bool escape_spaces = false;  ///< SentencePiece's spelling: ' ' is U+2581, no byte-level alphabet
};

const std::vector<PreTokenizer>& pre_tokenizers();
/// Throws Unsupported with the closest names where there is none.
const PreTokenizer& pre_tokenizer(std::string_view name);
/// Whether every character of every text is part of a match of `pattern`: known of those above that have one pattern.
bool covers_all_text(std::string_view pattern);

}  // namespace cgp::model
