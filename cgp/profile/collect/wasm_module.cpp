// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/wasm_module.h"

#include <fmt/core.h>

#include <array>
#include <cstring>
#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::profile {
namespace {

using fmt::format;

enum Section : std::uint8_t {
  kTypes = 1,
  kImports = 2,
  kFunctions = 3,
  kGlobals = 6,
  kExports = 7,
  kCode = 10
};
constexpr std::size_t kCounters = std::size(kWasmCounters);

class Bytes {
 public:
  Bytes(std::string_view all, const std::string& origin) : all_(all), origin_(origin) {}
  bool end() const { return at_ == all_.size(); }
  std::size_t at() const { return at_; }
  std::string_view since(std::size_t from) const { return all_.substr(from, at_ - from); }
  [[noreturn]] void damaged(const std::string& why) const {
    throw ParseError(ErrorText{"the file must be a WebAssembly module", origin_, why, {}});
  }
  std::uint8_t byte() {
    if (end()) damaged("it ends too early");
    return std::uint8_t(all_[at_++]);
  }
  std::string_view take(std::uint64_t n) {
    if (n > all_.size() - at_) damaged("it ends too early");
    at_ += n;
    return all_.substr(at_ - n, n);
  }
  /// LEB128; of a signed number the bits as they are.
  std::uint64_t number() {
    std::uint64_t v = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const std::uint8_t b = byte();
      if (shift < 64) v |= std::uint64_t(b & 0x7f) << shift;
      if (!(b & 0x80)) return v;
    }
    damaged("a number has more than ten bytes");
  }
  std::string_view name() { return take(number()); }
  Bytes part(std::uint64_t n) { return {take(n), origin_}; }

 private:
  std::string_view all_;
  const std::string& origin_;
  std::size_t at_ = 0;
};

void put_number(std::uint64_t v, std::string& out) {
  do {
    out += char((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
    v >>= 7;
  } while (v != 0);
}
/// Of a count: it is not negative.
void put_signed(std::uint64_t v, std::string& out) {
  while (v > 0x3f) out += char((v & 0x7f) | 0x80), v >>= 7;
  out += char(v);
}
void put_section(std::uint8_t id, std::string_view content, std::string& out) {
  out += char(id);
  put_number(content.size(), out);
  out += content;
}

std::string type_name(std::uint8_t type) {
  const char* names[] = {"f64", "f32", "i64", "i32"};
  return type >= 0x7c && type <= 0x7f ? names[type - 0x7c] : format("{:#x}", type);
}

struct Instruction {
  bool counts = true, fuel = true, simd = false;
  bool ends_stretch = false;  ///< what follows may be come to from elsewhere, or not at all
};

void skip_memory_operand(Bytes& in) {
  const auto alignment = in.number();
  if (alignment & 0x40) in.number();  // which memory
  in.number();
}

[[noreturn]] void unsupported(const std::string& what) {
  throw Unsupported(
      ErrorText{"instructions are counted up to WebAssembly 2.0, with tail calls, relaxed SIMD and threads",
                {},
                "the module has " + what,
                {}});
}

/// Past one instruction.
Instruction next(Bytes& in, int& depth) {
  Instruction i;
  const std::uint8_t op = in.byte();
  switch (op) {
    case 0x00:  // unreachable
    case 0x0f:  // return
      i.fuel = false, i.ends_stretch = true;
      return i;
    case 0x01:  // nop
    case 0x1a:  // drop
      i.fuel = false;
      return i;
    case 0x02:  // block
    case 0x03:  // loop
    case 0x04:  // if
      in.number(), ++depth;
      i.fuel = op == 0x04, i.ends_stretch = op != 0x02;
      return i;
    case 0x05:  // else
    case 0x0b:  // end
      depth -= op == 0x0b;
      i.counts = i.fuel = false, i.ends_stretch = true;
      return i;
    case 0x0e:  // br_table
      for (auto n = in.number(); n > 0; --n) in.number();
      in.number();
      i.ends_stretch = true;
      return i;
    case 0x0c:  // br
    case 0x0d:  // br_if
    case 0x12:  // return_call
      in.number();
      i.ends_stretch = true;
      return i;
    case 0x13:  // return_call_indirect
      in.number(), in.number();
      i.ends_stretch = true;
      return i;
    case 0x11:  // call_indirect
      in.number(), in.number();
      return i;
    case 0x1b:  // select
    case 0xd1:  // ref.is_null
      return i;
    case 0x1c:  // select with types
      for (auto n = in.number(); n > 0; --n) in.number();
      return i;
    case 0x43:
      in.take(4);
      return i;
    case 0x44:
      in.take(8);
      return i;
    case 0xfc: {
      const auto sub = in.number();
      if (sub > 17) unsupported(format("0xfc {:#x}", sub));
      const int operands = sub < 8 ? 0 : sub == 8 || sub == 10 || sub == 12 || sub == 14 ? 2 : 1;
      for (int n = 0; n < operands; ++n) in.number();
      return i;
    }
    case 0xfd: {
      const auto sub = in.number();
      i.simd = true;
      if (sub <= 11 || (sub >= 84 && sub <= 93)) skip_memory_operand(in);
      if (sub == 12 || sub == 13) in.take(16);                              // v128.const, shuffle
      if ((sub >= 21 && sub <= 34) || (sub >= 84 && sub <= 91)) in.byte();  // a lane
      if (sub > 0x113) unsupported(format("0xfd {:#x}", sub));
      return i;
    }
    case 0xfe: {
      const auto sub = in.number();
      if (sub == 3)
        in.byte();  // atomic.fence
      else
        skip_memory_operand(in);
      return i;
    }
    default:
      break;
  }
  if (op >= 0x28 && op <= 0x3e)
    skip_memory_operand(in);
  else if (op == 0x10 || (op >= 0x20 && op <= 0x26) || (op >= 0x3f && op <= 0x42) || op == 0xd0 || op == 0xd2)
    in.number();
  else if (op < 0x45 || op > 0xc4)
    unsupported(format("{:#x}", op));
  return i;
}

/// One function with counters: before each stretch that is run from its first instruction to its last.
std::string counted_body(Bytes in, std::uint64_t first_counter, WasmModule& m) {
  std::string out;
  for (auto n = in.number(); n > 0; --n) in.number(), in.byte();  // locals
  out += in.since(0);
  int depth = 1;
  std::size_t begin = in.at();
  std::array<std::uint64_t, kCounters> counts{};
  while (depth > 0) {
    const Instruction i = next(in, depth);
    counts[0] += i.counts, counts[1] += i.fuel, counts[2] += i.simd;
    m.instructions += i.counts, m.simd_instructions += i.simd;
    if (!i.ends_stretch) continue;
    for (std::size_t c = 0; c < kCounters; ++c) {
      if (counts[c] == 0) continue;
      out += '\x23', put_number(first_counter + c, out);  // global.get
      out += '\x42', put_signed(counts[c], out);          // i64.const
      out += '\x7c';                                      // i64.add
      out += '\x24', put_number(first_counter + c, out);  // global.set
    }
    out += in.since(begin);
    begin = in.at(), counts = {};
  }
  if (!in.end()) in.damaged("a function goes on behind its end");
  return out;
}

}  // namespace

WasmModule read_wasm(std::string_view bytes, const std::string& origin) {
  Bytes in(bytes, origin);
  if (in.take(8) != std::string_view("\0asm\1\0\0\0", 8)) in.damaged("it does not begin as one of version 1");
  WasmModule m;
  std::vector<std::vector<std::string>> types;
  std::vector<std::uint64_t> type_of;  // of functions, the imported ones first
  std::uint64_t globals = 0;
  struct Part {
    std::uint8_t id;
    std::string_view content;
  };
  std::vector<Part> parts;
  while (!in.end()) {
    const std::uint8_t id = in.byte();
    const auto content = in.name();
    parts.push_back({id, content});
    Bytes s(content, origin);
    if (id == kTypes)
      for (auto n = s.number(); n > 0; --n) {
        if (s.byte() != 0x60) unsupported("types that are no functions");
        types.emplace_back();
        for (auto k = s.number(); k > 0; --k) types.back().push_back(type_name(s.byte()));
        for (auto k = s.number(); k > 0; --k) s.byte();
      }
    if (id == kImports)
      for (auto n = s.number(); n > 0; --n) {
        const auto module = s.name(), name = s.name();
        m.imports.push_back(text::cat(module, ".", name));
        const auto limits = [&] {
          const auto flags = s.byte();
          s.number();
          if (flags & 1) s.number();
        };
        switch (s.byte()) {
          case 0:
            type_of.push_back(s.number());
            break;
          case 1:
            s.byte(), limits();
            break;
          case 2:
            limits();
            break;
          case 3:
            s.byte(), s.byte(), ++globals;
            break;
          default:
            unsupported("imports that are no function, table, memory or global");
        }
      }
    if (id == kFunctions)
      for (auto n = s.number(); n > 0; --n) type_of.push_back(s.number());
    if (id == kGlobals) globals += s.number();
    if (id == kExports)
      for (auto n = s.number(); n > 0; --n) {
        const auto name = s.name();
        const auto kind = s.byte();
        const auto index = s.number();
        if (kind != 0) continue;
        if (index >= type_of.size() || type_of[index] >= types.size()) s.damaged("an export has no function");
        m.exported.push_back({std::string(name), types[type_of[index]]});
      }
  }
  std::string code, more_globals, more_exports;
  for (std::size_t c = 0; c < kCounters; ++c) {
    more_globals += std::string_view("\x7e\1\x42\0\x0b", 5);  // i64, mutable, 0
    put_number(std::strlen(kWasmCounters[c]), more_exports);
    more_exports += kWasmCounters[c];
    more_exports += '\3', put_number(globals + c, more_exports);
  }
  const auto extended = [&](std::string_view content, const std::string& more) {
    std::string out;
    Bytes s(content, origin);
    put_number((content.empty() ? 0 : s.number()) + kCounters, out);
    return out + std::string(content.substr(s.at())) + more;
  };
  m.counted = bytes.substr(0, 8);
  bool globals_there = false, exports_there = false;
  for (const auto& p : parts) {
    // Sections are in the order of their numbers, custom ones (0) anywhere; that of data's count (12) is before the code.
    if (!globals_there && p.id >= kGlobals) {
      globals_there = true;
      put_section(kGlobals, extended(p.id == kGlobals ? p.content : "", more_globals), m.counted);
      if (p.id == kGlobals) continue;
    }
    if (!exports_there && p.id >= kExports) {
      exports_there = true;
      put_section(kExports, extended(p.id == kExports ? p.content : "", more_exports), m.counted);
      if (p.id == kExports) continue;
    }
    if (p.id != kCode) {
      put_section(p.id, p.content, m.counted);
      continue;
    }
    Bytes s(p.content, origin);
    m.functions = s.number();
    put_number(m.functions, code);
    for (auto n = m.functions; n > 0; --n) {
      const std::string body = counted_body(s.part(s.number()), globals, m);
      put_number(body.size(), code);
      code += body;
    }
    put_section(kCode, code, m.counted);
  }
  return m;
}

}  // namespace cgp::profile
