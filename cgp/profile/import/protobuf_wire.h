// SPDX-License-Identifier: Apache-2.0
#pragma once
// The wire format of protocol buffers, as far as reading fields by number goes: variable-length integers,
// fixed 32 and 64 bits, and byte strings (texts, nested messages, packed lists).
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::profile::wire {

struct Field {
  std::uint32_t number = 0;
  int type = 0;             ///< 0 varint, 1 fixed 64, 2 bytes, 5 fixed 32
  std::uint64_t value = 0;  ///< of types 0, 1 and 5
  std::string_view bytes;   ///< of type 2
  double real() const {
    if (type == 5) {
      float f;
      const auto low = std::uint32_t(value);
      std::memcpy(&f, &low, sizeof f);
      return double(f);
    }
    double d;
    std::memcpy(&d, &value, sizeof d);
    return d;
  }
};

[[noreturn]] inline void broken(const std::string& why) {
  throw ParseError(ErrorText{"the message must be a protocol buffer", {}, why, {}});
}

inline std::uint64_t varint(std::string_view& rest) {
  std::uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest.empty()) broken("it ends within a number");
    const auto b = static_cast<unsigned char>(rest.front());
    rest.remove_prefix(1);
    v |= std::uint64_t(b & 0x7f) << shift;
    if (!(b & 0x80)) return v;
  }
  broken("a number has more than ten bytes");
}

inline std::string_view take(std::string_view& rest, std::uint64_t n) {
  if (n > rest.size()) broken(text::cat("a field of ", n, " bytes, ", rest.size(), " are left"));
  const auto out = rest.substr(0, std::size_t(n));
  rest.remove_prefix(std::size_t(n));
  return out;
}

/// Every field of a message in its order. Throws ParseError.
template <class F>
void fields(std::string_view message, F each) {
  while (!message.empty()) {
    const std::uint64_t key = varint(message);
    Field f;
    f.number = std::uint32_t(key >> 3), f.type = int(key & 7);
    if (!f.number) broken("a field has the number 0");
    if (f.type == 0) {
      f.value = varint(message);
    } else if (f.type == 1 || f.type == 5) {
      const auto raw = take(message, f.type == 1 ? 8 : 4);
      for (std::size_t i = raw.size(); i-- > 0;) f.value = f.value << 8 | static_cast<unsigned char>(raw[i]);
    } else if (f.type == 2) {
      f.bytes = take(message, varint(message));
    } else {
      broken(text::cat("a field has the type ", f.type));
    }
    each(static_cast<const Field&>(f));
  }
}

}  // namespace cgp::profile::wire
