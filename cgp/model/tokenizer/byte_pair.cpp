// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cgp/base/error.h"
#include "cgp/model/tokenizer/model.h"

namespace cgp::model {

namespace {

/// GPT-2's spelling: byte of code points below 0x144, or -1.
const std::array<int, 0x144>& spelled_bytes() {
  static const auto table = [] {
    std::array<int, 0x144> out;
    out.fill(-1);
    std::uint32_t other = 0x100;
    for (int b = 0; b < 256; ++b) {
      bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      out[printable ? std::uint32_t(b) : other++] = b;
    }
    return out;
  }();
  return table;
}

}  // namespace

bool append_unspelled(std::string& out, std::string_view text) {
  const auto& bytes = spelled_bytes();
  const std::size_t before = out.size();
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] > ' ' && text[at] < 127) {
      out += text[at++];
      continue;
    }
    unicode::Decoded c = unicode::decode(text, at);
    if (c.point >= bytes.size() || bytes[c.point] < 0) {
      out.resize(before);
      out += text;
      return false;
    }
    out += char(bytes[c.point]);
    at += c.size;
  }
  return true;
}

std::string escape_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  for (char c : text) {
    if (c == ' ')
      out += kSpaceSymbol;
    else
      out += c;
  }
  return out;
}

BytePairModel::BytePairModel(const Vocabulary& vocabulary, Options options)
    : vocabulary_(vocabulary), options_(std::move(options)), whole_(vocabulary.size()) {
  for (const std::string& p : options_.patterns) patterns_.emplace_back(p);
  for (int b = 0; b < 256; ++b) {
    char c = char(b);
    first_[b] = vocabulary.find({&c, 1});
  }
}

std::size_t BytePairModel::add_merges(std::span<const std::pair<std::string_view, std::string_view>> merges) {
  std::size_t slots = 16;
  while (slots * 2 < merges.size() * 3) slots *= 2;
  pairs_.assign(slots, {});
  mask_ = slots - 1;
  // Look-ups wait for memory: a batch asks for all of its own before it uses them.
  constexpr std::size_t kBatch = 32;
  struct Item {
    std::size_t begin, middle, end;  // in `text`
    std::uint64_t left, right;
  };
  Item items[kBatch];
  Pair found[kBatch];
  std::string text;
  Token last = 0;
  for (std::size_t first = 0; first < merges.size(); first += kBatch) {
    const std::size_t count = std::min(kBatch, merges.size() - first);
    text.clear();
    for (std::size_t i = 0; i < count; ++i) {
      auto [left, right] = merges[first + i];
      std::size_t begin = text.size();
      options_.byte_level ? void(append_unspelled(text, left)) : void(text += left);
      std::size_t middle = text.size();
      options_.byte_level ? void(append_unspelled(text, right)) : void(text += right);
      std::string_view all(text);
      items[i] = {begin, middle, text.size(), Vocabulary::hash(all.substr(begin, middle - begin)),
                  Vocabulary::hash(all.substr(middle))};
      vocabulary_.prefetch(items[i].left);
      vocabulary_.prefetch(items[i].right);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const Item& item = items[i];
      std::string_view all(text), whole = all.substr(item.begin, item.end - item.begin);
      Token left = vocabulary_.find(all.substr(item.begin, item.middle - item.begin), item.left);
      Token right = vocabulary_.find(all.substr(item.middle, item.end - item.middle), item.right);
      // Most files have the results in order.
      Token merged = vocabulary_.has(last + 1) && vocabulary_.word(last + 1) == whole ? last + 1 : last;
      if (vocabulary_.word(merged) != whole || vocabulary_.type(merged) != TokenType::normal)
        merged = vocabulary_.find(whole);
      if (left == kNoToken || right == kNoToken || merged == kNoToken) return first + i;
      last = merged;
      found[i] = {std::uint64_t(left) << 32 | std::uint32_t(right), {std::uint32_t(first + i), merged}};
      __builtin_prefetch(&pairs_[seeded_hash(found[i].key) & mask_], 1);
    }
    for (std::size_t i = 0; i < count; ++i) insert(found[i]);
  }
  return merges.size();
}

void BytePairModel::insert(const Pair& pair) {
  for (std::uint64_t i = seeded_hash(pair.key) & mask_;; i = (i + 1) & mask_) {
    if (pairs_[i].key == pair.key) return;  // a pair that comes twice keeps its first place
    if (pairs_[i].key == ~0ull) {
      pairs_[i] = pair;
      return;
    }
  }
}

Merge BytePairModel::find(Token left, Token right) const {
  if (left < 0 || right < 0 || pairs_.empty()) return {};
  std::uint64_t key = std::uint64_t(left) << 32 | std::uint32_t(right);
  for (std::uint64_t i = seeded_hash(key) & mask_;; i = (i + 1) & mask_) {
    if (pairs_[i].key == key) return pairs_[i].merge;
    if (pairs_[i].key == ~0ull) return {};
  }
}

void BytePairModel::merge_piece(std::string_view piece, std::vector<Symbol>& symbols) const {
  symbols.clear();
  for (std::uint32_t at = 0; at < piece.size();) {
    std::uint32_t size = options_.byte_level ? 1 : unicode::decode(piece, at).size;
    Token token =
        size == 1 ? first_[static_cast<unsigned char>(piece[at])] : vocabulary_.find(piece.substr(at, size));
    symbols.push_back({at, at + size, token});
    at += size;
  }
  merge_symbols(symbols, [&](const Symbol& a, const Symbol& b) { return find(a.token, b.token); });
}

void BytePairModel::encode_piece(std::string_view piece, std::vector<Token>& out) const {
  static thread_local std::vector<Symbol> symbols;
  if (Token word = vocabulary_.find(piece); word != kNoToken) {
    bool taken = options_.ignore_merges && vocabulary_.type(word) == TokenType::normal;
    if (!taken && options_.newlines_whole) taken = piece.find_first_not_of('\n') == piece.npos;
    if (!taken) {
      taken = whole_.is(word, [&] {
        merge_piece(piece, symbols);
        return symbols.size() == 1 && symbols[0].token == word;
      });
    }
    if (taken) {
      out.push_back(word);
      return;
    }
  }
  merge_piece(piece, symbols);
  for (const Symbol& s : symbols) {
    if (s.token != kNoToken) {
      out.push_back(s.token);
      continue;
    }
    for (char c : piece.substr(s.begin, s.end - s.begin)) {
      Token byte = vocabulary_.byte_tokens()[static_cast<unsigned char>(c)];
      if (byte == kNoToken) byte = options_.unknown;
      if (byte != kNoToken) out.push_back(byte);
    }
  }
}

void BytePairModel::encode(std::string_view text, std::vector<Token>& out) const {
  if (options_.escape_spaces) {
    std::string escaped = escape_spaces(text);
    patterns_.at(0).split(escaped, [&](std::size_t begin, std::size_t end) {
      encode_piece(std::string_view(escaped).substr(begin, end - begin), out);
    });
    return;
  }
  if (patterns_.size() == 1) {
    patterns_[0].split(text, [&](std::size_t b, std::size_t e) { encode_piece(text.substr(b, e - b), out); });
    return;
  }
  std::vector<std::string_view> pieces = {text}, finer;
  for (const unicode::Regex& pattern : patterns_) {
    finer.clear();
    for (std::string_view piece : pieces)
      pattern.split(piece, [&](std::size_t b, std::size_t e) { finer.push_back(piece.substr(b, e - b)); });
    pieces.swap(finer);
  }
  for (std::string_view piece : pieces) encode_piece(piece, out);
}

}  // namespace cgp::model
