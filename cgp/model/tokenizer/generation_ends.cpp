// SPDX-License-Identifier: Apache-2.0
// The words of a vocabulary that end generation.
#include <algorithm>

#include "cgp/model/tokenizer/tokenizer_parts.h"

namespace cgp::model {

namespace {

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

}  // namespace

void Tokenizer::Parts::mark_ends() {
  std::set<Token>& ends = ends_generation;
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

}  // namespace cgp::model
