// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parts of a tokenizer from the files of a Hugging Face folder.
#include <string>

#include "cgp/model/tokenizer/tokenizer_parts.h"

namespace cgp::model {

/// tokenizer.json. What it has that no part does is Unsupported by its name; ParseError names the byte or key.
void read_tokenizer_json(const std::string& path, Tokenizer::Parts& out);
/// tokenizer.model: SentencePiece's protocol buffer.
void read_sentencepiece_model(const std::string& path, Tokenizer::Parts& out);

}  // namespace cgp::model
