// SPDX-License-Identifier: Apache-2.0
// The line tables of DWARF 2 to 5 (DWARF Debugging Information Format, version 5, section 6.2).
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "cgp/profile/sampling/elf_file.h"

namespace cgp::profile {
namespace {

struct Damaged : std::runtime_error {
  Damaged() : std::runtime_error("a line table ends too early") {}
};

class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}
  std::size_t at() const { return at_; }
  bool done() const { return at_ >= bytes_.size(); }
  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) throw Damaged();
    const auto part = bytes_.substr(at_, n);
    at_ += n;
    return part;
  }
  std::uint64_t fixed(int n) {
    std::uint64_t v = 0;
    std::memcpy(&v, take(std::uint64_t(n)).data(), std::size_t(n));
    return v;
  }
  std::uint8_t byte() { return std::uint8_t(fixed(1)); }
  std::uint64_t unsigned_leb() {
    std::uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
      const auto b = byte();
      if (shift < 64) v |= std::uint64_t(b & 127) << shift;
      if (!(b & 128)) return v;
    }
  }
  std::int64_t signed_leb() {
    std::int64_t v = 0;
    for (int shift = 0;;) {
      const auto b = byte();
      if (shift < 64) v |= std::int64_t(std::uint64_t(b & 127) << shift);
      shift += 7;
      if (!(b & 128)) return shift < 64 && (b & 64) ? v | -(std::int64_t(1) << shift) : v;
    }
  }
  std::string_view string() {
    const auto end = bytes_.find('\0', at_);
    if (end == bytes_.npos) throw Damaged();
    const auto s = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return s;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

struct Strings {
  std::string_view str, line_str;
};

enum Content { kPath = 1, kFolder = 2 };
enum Form {
  kBlock2 = 3,
  kBlock4 = 4,
  kData2 = 5,
  kData4 = 6,
  kData8 = 7,
  kString = 8,
  kBlock = 9,
  kBlock1 = 10,
  kData1 = 11,
  kStrp = 14,
  kUdata = 15,
  kData16 = 30,
  kLineStrp = 31
};

/// Text, or a number, of one field of a table of version 5.
std::pair<std::string_view, std::uint64_t> field(Cursor& c, std::uint64_t form, int offset_size,
                                                 const Strings& s) {
  const auto text = [](std::string_view table, std::uint64_t at) {
    return at < table.size() ? table.substr(at, table.find('\0', at) - at) : std::string_view{};
  };
  switch (form) {
    case kString:
      return {c.string(), 0};
    case kLineStrp:
      return {text(s.line_str, c.fixed(offset_size)), 0};
    case kStrp:
      return {text(s.str, c.fixed(offset_size)), 0};
    case kUdata:
      return {{}, c.unsigned_leb()};
    case kData1:
      return {{}, c.fixed(1)};
    case kData2:
      return {{}, c.fixed(2)};
    case kData4:
      return {{}, c.fixed(4)};
    case kData8:
      return {{}, c.fixed(8)};
    case kData16:
      c.take(16);
      return {};
    case kBlock:
      c.take(c.unsigned_leb());
      return {};
    case kBlock1:
      c.take(c.fixed(1));
      return {};
    case kBlock2:
      c.take(c.fixed(2));
      return {};
    case kBlock4:
      c.take(c.fixed(4));
      return {};
    default:
      throw Damaged();
  }
}

struct FileName {
  std::string_view name;
  std::uint64_t folder = 0;
};

struct Unit {
  std::uint8_t minimum = 1, line_range = 1, opcode_base = 1;
  std::int8_t line_base = 0;
  std::vector<std::uint8_t> lengths;
  std::vector<std::string_view> folders;
  std::vector<FileName> files;
  std::uint64_t first_file = 1;  ///< 0 from version 5 on

  std::string path(std::uint64_t file) const {
    if (file < first_file || file - first_file >= files.size()) return {};
    const FileName& f = files[file - first_file];
    const std::string name(f.name);
    // Before version 5 folder 0 is the one of the compilation, which is not in this table.
    const std::uint64_t folder = first_file == 0 ? f.folder : f.folder - 1;
    if (name.empty() || name[0] == '/' || folder >= folders.size()) return name;
    std::string in(folders[folder]);
    if (first_file == 0 && !in.empty() && in[0] != '/' && folder > 0) in = std::string(folders[0]) + "/" + in;
    return in + "/" + name;
  }
};

std::vector<FileName> table(Cursor& c, int offset_size, const Strings& s) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> format(c.byte());
  for (auto& [content, form] : format) content = c.unsigned_leb(), form = c.unsigned_leb();
  std::vector<FileName> out;
  for (auto n = c.unsigned_leb(); n > 0; --n) {
    if (format.empty()) throw Damaged();
    FileName f;
    for (const auto& [content, form] : format) {
      const auto [text, number] = field(c, form, offset_size, s);
      if (content == kPath) f.name = text;
      if (content == kFolder) f.folder = number;
    }
    out.push_back(f);
  }
  return out;
}

Unit header(Cursor& c, int offset_size, const Strings& s, std::size_t& program) {
  Unit u;
  const auto version = c.fixed(2);
  if (version < 2 || version > 5) throw Damaged();
  if (version >= 5) c.take(2);  // sizes of addresses and of segments
  const auto length = c.fixed(offset_size);
  program = c.at() + length;
  u.minimum = c.byte();
  if (version >= 4) c.take(1);  // operations of an instruction, of VLIW
  c.take(1);                    // whether a row begins a statement, first
  u.line_base = std::int8_t(c.byte()), u.line_range = c.byte(), u.opcode_base = c.byte();
  if (u.line_range == 0 || u.opcode_base == 0) throw Damaged();
  for (int i = 1; i < u.opcode_base; ++i) u.lengths.push_back(c.byte());
  if (version >= 5) {
    for (const auto& f : table(c, offset_size, s)) u.folders.push_back(f.name);
    u.files = table(c, offset_size, s);
    u.first_file = 0;
    return u;
  }
  for (auto name = c.string(); !name.empty(); name = c.string()) u.folders.push_back(name);
  for (auto name = c.string(); !name.empty(); name = c.string()) {
    const auto folder = c.unsigned_leb();
    c.unsigned_leb(), c.unsigned_leb();  // time and length
    u.files.push_back({name, folder});
  }
  return u;
}

class Program {
 public:
  Program(const Unit& unit, const std::vector<std::uint64_t>& wanted,
          std::map<std::uint64_t, SourceLine>& out)
      : unit_(unit), wanted_(wanted), out_(out) {}

  void run(Cursor c) {
    while (!c.done()) {
      const auto op = c.byte();
      if (op >= unit_.opcode_base) {
        const int special = op - unit_.opcode_base;
        address_ += std::uint64_t(special / unit_.line_range) * unit_.minimum;
        line_ += unit_.line_base + special % unit_.line_range;
        row();
      } else if (op == 0) {
        extended(c);
      } else {
        standard(c, op);
      }
    }
  }

 private:
  void standard(Cursor& c, int op) {
    switch (op) {
      case 1:
        return row();
      case 2:
        address_ += c.unsigned_leb() * unit_.minimum;
        return;
      case 3:
        line_ += c.signed_leb();
        return;
      case 4:
        file_ = c.unsigned_leb();
        return;
      case 8:
        address_ += std::uint64_t((255 - unit_.opcode_base) / unit_.line_range) * unit_.minimum;
        return;
      case 9:
        address_ += c.fixed(2);
        return;
      default:
        for (int i = 0; i < unit_.lengths[std::size_t(op - 1)]; ++i) c.unsigned_leb();
    }
  }
  void extended(Cursor& c) {
    const auto size = c.unsigned_leb();
    if (size == 0) return;
    Cursor body(c.take(size));
    switch (body.byte()) {
      case 1:  // the end of a sequence: its last row reaches to here
        row();
        open_ = false, address_ = 0, file_ = 1, line_ = 1;
        return;
      case 2:
        address_ = body.fixed(int(std::min<std::uint64_t>(size - 1, 8)));
        return;
      default:
        return;
    }
  }
  /// The row before reaches up to this one.
  void row() {
    if (open_ && from_ != 0 && address_ > from_) {
      for (auto at = std::lower_bound(wanted_.begin(), wanted_.end(), from_);
           at != wanted_.end() && *at < address_; ++at)
        if (last_line_ > 0) out_[*at] = {unit_.path(last_file_), std::uint32_t(last_line_)};
    }
    open_ = true, from_ = address_, last_file_ = file_, last_line_ = line_;
  }

  const Unit& unit_;
  const std::vector<std::uint64_t>& wanted_;
  std::map<std::uint64_t, SourceLine>& out_;
  std::uint64_t address_ = 0, file_ = 1, from_ = 0, last_file_ = 1;
  std::int64_t line_ = 1, last_line_ = 0;
  bool open_ = false;
};

}  // namespace

std::map<std::uint64_t, SourceLine> read_lines(std::string_view line, std::string_view str,
                                               std::string_view line_str,
                                               const std::vector<std::uint64_t>& addresses) {
  std::map<std::uint64_t, SourceLine> out;
  Cursor all(line);
  try {
    while (!all.done() && !addresses.empty()) {
      std::uint64_t size = all.fixed(4);
      const int offset_size = size == 0xffffffff ? 8 : 4;
      if (offset_size == 8) size = all.fixed(8);
      const auto unit_bytes = all.take(size);
      try {
        Cursor c(unit_bytes);
        std::size_t program = 0;
        const Unit unit = header(c, offset_size, {str, line_str}, program);
        if (program > unit_bytes.size()) throw Damaged();
        Program(unit, addresses, out).run(Cursor(unit_bytes.substr(program)));
      } catch (const Damaged&) {  // the next unit begins where this one says it ends
      }
    }
  } catch (const Damaged&) {
  }
  return out;
}

}  // namespace cgp::profile
