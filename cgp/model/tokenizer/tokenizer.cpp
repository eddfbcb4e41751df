// SPDX-License-Identifier: Apache-2.0
#include "cgp/model/tokenizer/tokenizer.h"

#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/model/tokenizer/tokenizer_parts.h"

namespace cgp::model {

namespace {

/// False where NFC changes nothing: it composes with characters from U+0300 on only.
bool needs_nfc(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

bool is_ascii_space(char c) { return c == ' ' || (c >= 9 && c <= 13); }

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

const Vocabulary& Tokenizer::vocabulary() const { return parts_->vocabulary; }
std::string_view Tokenizer::kind() const { return parts_->kind; }
const std::string& Tokenizer::pre_tokenizer() const { return parts_->pre_tokenizer; }
const Tokenizer::Special& Tokenizer::special() const { return parts_->special; }
bool Tokenizer::adds_bos() const { return parts_->add_bos; }
bool Tokenizer::adds_eos() const { return parts_->add_eos; }
bool Tokenizer::ends_generation(Token token) const { return parts_->ends_generation.count(token) > 0; }
bool Tokenizer::is_special(Token token) const {
  return parts_->vocabulary.has(token) && parts_->is_special(token);
}
const std::string& Tokenizer::chat_template() const { return parts_->chat_template; }

void Tokenizer::Parts::add_added(Token token, bool strip_left, bool strip_right) {
  std::string_view word = vocabulary.word(token);
  if (!word.empty()) added[static_cast<unsigned char>(word[0])].push_back({token, strip_left, strip_right});
}

void Tokenizer::Parts::sort_added() {
  for (std::vector<Added>& list : added)
    std::stable_sort(list.begin(), list.end(), [&](const Added& a, const Added& b) {
      return vocabulary.word(a.token).size() > vocabulary.word(b.token).size();
    });
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const Parts& p = *parts_;
  std::vector<Token> out;
  out.reserve(text.size() / 4 + 4);
  if (options.add_special && p.add_bos) out.push_back(p.special.bos);
  bool after_special = true;
  std::string composed;
  auto ordinary = [&](std::string_view part) {
    if (part.empty()) return;
    const bool first = part.data() == text.data();
    if (p.composed && needs_nfc(part)) part = composed = unicode::nfc(part);
    const bool spaced = part[0] == ' ' || part.starts_with(kSpaceSymbol);
    const bool prefix = p.add_space_prefix && !p.prefix_is_models && after_special &&
                        (first || !p.prefix_once) && !(spaced && p.prefix_unless_space);
    if (prefix)
      p.model->encode(text::cat(' ', part), out);
    else
      p.model->encode(part, out);
    after_special = false;
  };
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const Parts::Added& a : p.added[static_cast<unsigned char>(text[at])]) {
      if (!options.parse_special && p.is_special(a.token)) continue;
      std::string_view word = p.vocabulary.word(a.token);
      if (!text.substr(at).starts_with(word)) continue;
      std::size_t end = at, next = at + word.size();
      while (a.strip_left && end > begin && is_ascii_space(text[end - 1])) --end;
      while (a.strip_right && next < text.size() && is_ascii_space(text[next])) ++next;
      ordinary(text.substr(begin, end - begin));
      out.push_back(a.token);
      after_special = true;
      begin = next;
      at = next - 1;
      break;
    }
  }
  ordinary(text.substr(begin));
  if (options.add_special && p.add_eos) out.push_back(p.special.eos);
  return out;
}

void Tokenizer::Parts::append_piece(std::string& out, Token token) const {
  if (!vocabulary.has(token))
    throw ArgumentError(
        ErrorText{"a token is an id of the vocabulary", {}, text::cat(token, " of ", vocabulary.size()), {}});
  std::string_view word = vocabulary.word(token);
  if (vocabulary.type(token) == TokenType::byte) {
    const auto& bytes = vocabulary.byte_tokens();
    if (auto it = std::find(bytes.begin(), bytes.end(), token); it != bytes.end()) {
      out += char(it - bytes.begin());
      return;
    }
  }
  if (!escaped_spaces || vocabulary.type(token) != TokenType::normal) {
    out += word;
    return;
  }
  for (std::size_t at = 0; at < word.size();) {
    bool space = word.substr(at, kSpaceSymbol.size()) == kSpaceSymbol;
    out += space ? ' ' : word[at];
    at += space ? kSpaceSymbol.size() : 1;
  }
}

std::string Tokenizer::piece(Token token) const {
  std::string out;
  parts_->append_piece(out, token);
  return out;
}

std::string Tokenizer::decode(std::span<const Token> tokens, bool skip_special) const {
  std::string out;
  bool after_special = true;
  for (Token t : tokens) {
    bool special = is_special(t);
    if (special && skip_special) {
      after_special = true;
      continue;
    }
    std::size_t before = out.size();
    parts_->append_piece(out, t);
    bool added = special || parts_->vocabulary.type(t) == TokenType::user_defined;
    if (parts_->add_space_prefix && after_special && !added && out.size() > before && out[before] == ' ')
      out.erase(before, 1);
    after_special = added;
  }
  return out;
}

std::string StreamDecoder::push(Token token) {
  const Tokenizer::Parts& p = *tokenizer_->parts_;
  bool special = tokenizer_->is_special(token);
  std::string piece;
  if (!special || !skip_special_) p.append_piece(piece, token);
  bool added = special || p.vocabulary.type(token) == TokenType::user_defined;
  if (p.add_space_prefix && first_ && !added && !piece.empty() && piece[0] == ' ') piece.erase(0, 1);
  first_ = added;
  pending_ += piece;
  std::size_t waiting = unicode::incomplete_suffix(pending_);
  std::string out = unicode::valid(std::string_view(pending_).substr(0, pending_.size() - waiting));
  pending_.erase(0, pending_.size() - waiting);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = unicode::valid(pending_);
  pending_.clear();
  first_ = true;
  return out;
}

}  // namespace cgp::model
