// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/npy.h"

#include <cctype>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"

namespace cgp::spec {
namespace {

using text::cat;

constexpr std::string_view kMagic = "\x93NUMPY";

[[noreturn]] void bad(const std::string& path, std::string rule, std::string why, std::string hint = {}) {
  throw ParseError(ErrorText{std::move(rule), path, std::move(why), std::move(hint)});
}

bool ends_with(std::string_view s, std::string_view end) {
  return s.size() >= end.size() && s.substr(s.size() - end.size()) == end;
}

/// The three fields of a .npy header, which is the text of a Python dict literal.
struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::uint64_t> shape;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path) : s_(text), path_(path) {}

  Header parse() {
    Header h;
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        skip_space();
        if (at_ < s_.size() && s_[at_] == '[')
          bad(path_, "a .npy file must hold plain elements", "its elements are records (structured dtype)",
              "save one field: np.save(path, a['field'])");
        h.descr = quoted();
        descr = true;
      } else if (key == "fortran_order") {
        h.fortran_order = boolean();
        order = true;
      } else if (key == "shape") {
        h.shape = tuple();
        shape = true;
      } else {
        broken(cat("unknown key '", key, "'"));
      }
      accept(',');
    }
    if (!descr || !order || !shape) broken("needs the keys descr, fortran_order and shape");
    return h;
  }

 private:
  [[noreturn]] void broken(std::string why) {
    bad(path_, "a .npy header must be a dict of descr, fortran_order and shape", std::move(why));
  }
  void skip_space() {
    while (at_ < s_.size() && std::isspace(static_cast<unsigned char>(s_[at_]))) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ >= s_.size() || s_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) broken(cat("expected '", c, "' at byte ", at_, " of the header"));
  }
  std::string quoted() {
    skip_space();
    if (at_ >= s_.size() || (s_[at_] != '\'' && s_[at_] != '"'))
      broken(cat("expected a string at byte ", at_));
    const char quote = s_[at_++];
    const auto end = s_.find(quote, at_);
    if (end == std::string_view::npos) broken("a string does not end");
    std::string out(s_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  bool boolean() {
    skip_space();
    for (bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (s_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return value;
      }
    }
    broken("fortran_order must be True or False");
  }
  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> out;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::uint64_t v = 0;
      auto r = std::from_chars(s_.data() + at_, s_.data() + s_.size(), v);
      if (r.ec != std::errc()) broken(cat("expected an extent at byte ", at_));
      at_ = std::size_t(r.ptr - s_.data());
      out.push_back(v);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view s_;
  const std::string& path_;
  std::size_t at_ = 0;
};

/// The element type that a descr names, and whether it merely has the right size (void or unsigned storage).
DType element_type(const std::string& descr, std::optional<DType> want, const std::string& path) {
  const char order = descr.empty() ? ' ' : descr[0];
  const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
  const std::string code = has_order ? descr.substr(1) : descr;
  if (order == '>' && !ends_with(code, "1"))
    bad(path, "a .npy file must be little-endian", cat("its dtype is '", descr, "'"),
        cat("np.save(path, a.astype('<", code, "'))"));
  struct Row {
    const char* code;
    DType type;
  };
  constexpr Row rows[] = {{"u1", DType::u8},   {"i1", DType::s8},   {"b1", DType::u8},
                          {"u2", DType::u16},  {"i2", DType::s16},  {"u4", DType::u32},
                          {"i4", DType::s32},  {"u8", DType::u64},  {"i8", DType::s64},
                          {"f2", DType::f16},  {"f4", DType::f32},  {"f8", DType::f64},
                          {"V2", DType::bf16}, {"V1", DType::e4m3}, {"bfloat16", DType::bf16}};
  std::optional<DType> found;
  for (const Row& row : rows)
    if (code == row.code) found = row.type;
  if (!found)
    bad(path, "a .npy file must hold a number type that cgp knows", cat("its dtype is '", descr, "'"),
        "known: u1 i1 u2 i2 u4 i4 u8 i8 f2 f4 f8, and V2 (bf16), V1 (e4m3, e5m2)");
  if (!want || *want == *found) return *found;
  // Types that NumPy lacks travel as void or unsigned integers of the same size.
  const bool foreign = *want == DType::bf16 || *want == DType::e4m3 || *want == DType::e5m2;
  if (foreign && bytes(*want) == bytes(*found) && (code[0] == 'V' || code[0] == 'u')) return *want;
  throw ArgumentError(ErrorText{
      cat("the file must hold ", name(*want)), path, cat("it holds ", name(*found), " ('", descr, "')"),
      cat("name the type it has (", name(*found), ") or convert it with NumPy's astype")});
}

std::string descr_of(DType t) {
  constexpr const char* codes[] = {"|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8",
                                   "<i8", "<f2", "<V2", "<f4", "<f8", "|V1", "|V1"};
  return codes[int(t)];
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string s = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text::append(s, cat(i ? ", " : "", shape[i]));
  return s + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

HostArray parse_npy(std::string_view content, const std::string& path, std::optional<DType> want) {
  if (content.size() < 10 || content.substr(0, 6) != kMagic)
    bad(path, "a .npy file must begin with \\x93NUMPY", cat("the file has ", content.size(), " bytes"),
        "give raw data another suffix, for example .bin");
  const auto byte = [&](std::size_t i) { return std::uint64_t(static_cast<unsigned char>(content[i])); };
  const int major = int(byte(6));
  if (major < 1 || major > 3)
    bad(path, "a .npy file must have format version 1, 2 or 3", cat("it says ", major, ".", byte(7)));
  const std::size_t start = major == 1 ? 10 : 12;
  if (content.size() < start) bad(path, "a .npy file must have a whole header", "the file ends inside it");
  std::uint64_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (content.size() - start < length)
    bad(path, "a .npy file must have a whole header",
        cat("the header needs ", length, " bytes, ", content.size() - start, " follow"));
  const Header header = HeaderParser(content.substr(start, length), path).parse();
  HostArray array;
  array.dtype = element_type(header.descr, want, path);
  array.shape = header.shape;
  if (header.fortran_order && header.shape.size() > 1)
    bad(path, "a .npy file must be in C (row-major) order",
        cat("it holds a Fortran-order array of shape ", shape_text(header.shape)),
        "np.save(path, np.ascontiguousarray(a))");
  std::uint64_t size = std::uint64_t(bytes(array.dtype));
  for (std::uint64_t extent : header.shape) {
    if (extent && size > std::numeric_limits<std::uint64_t>::max() / extent)
      bad(path, "a .npy array must fit in memory", cat("its shape is ", shape_text(header.shape)));
    size *= extent;
  }
  const std::uint64_t there = content.size() - start - length;
  if (there != size)
    bad(path, there < size ? "a .npy file must hold all of its data" : "a .npy file must end after its data",
        cat("shape ", shape_text(header.shape), " of '", header.descr, "' needs ", size, " bytes, ", there,
            " follow the header"),
        there < size ? "the file is truncated: write it again" : "");
  const auto data = content.substr(start + length);
  array.bytes.assign(data.begin(), data.end());
  return array;
}

std::string format_npy(const HostArray& array) {
  std::string header = cat("{'descr': '", descr_of(array.dtype),
                           "', 'fortran_order': False, 'shape': ", shape_text(array.shape), ", }");
  const bool longer = header.size() + 64 > 65535;
  const std::size_t prefix = longer ? 12 : 10;
  header.append(63 - (prefix + header.size()) % 64, ' ');  // the data starts at a multiple of 64
  header.push_back('\n');
  std::string out(kMagic);
  out.push_back(longer ? 2 : 1);
  out.push_back(0);
  for (std::size_t i = 0; i < prefix - 8; ++i) out.push_back(char(header.size() >> (8 * i) & 0xff));
  out += header;
  out.append(reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size());
  return out;
}

HostArray read_array(const std::string& path, std::optional<DType> want, std::optional<std::uint64_t> count) {
  const std::string content = read_file(path);
  HostArray array;
  if (ends_with(path, ".npy")) {
    array = parse_npy(content, path, want);
  } else {
    if (!want)
      throw ArgumentError(
          ErrorText{"a raw file needs an element type", path, "only .npy files carry their own", {}});
    array.dtype = *want;
    if (content.size() % std::size_t(bytes(*want)))
      bad(path, cat("a raw file of ", name(*want), " must have a multiple of ", bytes(*want), " bytes"),
          cat("it has ", content.size()));
    array.bytes.assign(content.begin(), content.end());
    array.shape = {array.count()};
  }
  if (count && array.count() != *count)
    throw ArgumentError(ErrorText{cat("the file must hold ", *count, " elements of ", name(array.dtype)),
                                  path,
                                  cat("it holds ", array.count()),
                                  {}});
  return array;
}

void write_array(const std::string& path, const HostArray& array) {
  if (ends_with(path, ".npy"))
    write_file(path, format_npy(array));
  else
    write_file(path, {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()});
}

}  // namespace cgp::spec
