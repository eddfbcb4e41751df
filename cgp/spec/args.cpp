// SPDX-License-Identifier: Apache-2.0
#include "cgp/spec/args.h"

#include <array>
#include <charconv>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/spec/npy.h"
#include "cgp/spec/report/json_text.h"

namespace cgp::spec {
namespace {

using text::cat;

constexpr std::string_view kForms =
    "in:f32:x.npy, in:f32:1024:zero, inout:f32:x.npy, out:f32:1024=y.npy, scratch:u8:4096, buf:0+256, u32:7, "
    "'{\"struct\": ...}', '{\"tensormap\": ...}'";

class ArgumentParser {
 public:
  ArgumentParser(Spec& spec, std::string_view text, std::size_t index)
      : spec_(spec), text_(text), where_(cat("--arg ", index, " \"", text, "\"")), name_(cat("arg", index)) {}

  void parse() {
    if (!text_.empty() && text_[0] == '{') return json();
    const auto colon = text_.find(':');
    if (colon == std::string_view::npos) bad("an argument must say what it is", "it has no ':'");
    const std::string_view word = text_.substr(0, colon), rest = text_.substr(colon + 1);
    if (word == "buf") return address(rest);
    for (int i = 0; i < 4; ++i)
      if (name(Role(i)) == word) return buffer(Role(i), rest);
    if (const auto type = parse_dtype(word)) return scalar(*type, rest);
    std::vector<std::string> known{"in", "out", "inout", "scratch", "buf"};
    for (int i = 0; i < kDTypeCount; ++i) known.emplace_back(name(DType(i)));
    const auto near = text::closest(word, known, 1);
    bad(cat("unknown kind of argument \"", word, "\""),
        near.empty() ? "" : cat("did you mean ", near[0], "?"));
  }

 private:
  [[noreturn]] void bad(std::string rule, std::string why) const {
    throw ArgumentError(ErrorText{std::move(rule), where_, std::move(why), cat("forms: ", kForms)});
  }
  LaunchSpec& launch() const { return spec_.launches.at(0); }

  void json() {
    const Document document{std::string(text_), where_};
    launch().params.push_back(parse_param(document.root(), spec_));
  }

  std::uint64_t number(std::string_view s, std::string_view what) const {
    std::uint64_t v = 0;
    const bool hex = s.substr(0, 2) == "0x";
    const auto digits = hex ? s.substr(2) : s;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v, hex ? 16 : 10);
    if (digits.empty() || r.ec != std::errc() || r.ptr != digits.data() + digits.size())
      bad(cat(what, " must be a number"), cat("it is \"", s, "\""));
    return v;
  }

  void address(std::string_view rest) {
    const auto plus = rest.find('+');
    const std::uint64_t argument = number(rest.substr(0, plus), "the number of the earlier argument");
    const auto found = spec_.find_buffer(cat("arg", argument));
    if (!found) bad(cat("argument ", argument, " must be an earlier buffer"), "it is not");
    ParamSpec p;
    p.kind = ParamSpec::Kind::address;
    const std::uint64_t offset =
        plus == std::string_view::npos ? 0 : number(rest.substr(plus + 1), "the offset in bytes");
    p.addresses.push_back({*found, offset, 0});
    launch().params.push_back(std::move(p));
  }

  void scalar(DType type, std::string_view rest) {
    ParamSpec p;
    p.kind = ParamSpec::Kind::scalar;
    p.dtype = type;
    const std::uint64_t bits = scalar_bits(type, rest);
    for (int i = 0; i < bytes(type); ++i) p.bytes.push_back(std::uint8_t(bits >> (8 * i)));
    launch().params.push_back(std::move(p));
  }

  std::uint64_t scalar_bits(DType type, std::string_view s) const {
    const int width = 8 * bytes(type);
    std::uint64_t bits = 0;
    if (s.substr(0, 2) == "0x") {
      bits = number(s, "the bits");
      if (width < 64 && bits >> width) bad(cat("the bits must fit a ", name(type)), cat(width, " bits"));
      return bits;
    }
    if (is_float(type)) {
      double v = 0;
      const auto r = std::from_chars(s.data(), s.data() + s.size(), v);
      if (s.empty() || r.ec != std::errc() || r.ptr != s.data() + s.size())
        bad(cat("a ", name(type), " must be a number"), cat("it is \"", s, "\""));
      store_rounded(type, &bits, 0, v);
      return bits;
    }
    const bool negative = !s.empty() && s[0] == '-';
    const std::uint64_t magnitude = number(negative ? s.substr(1) : s, "the value");
    const bool is_signed =
        type == DType::s8 || type == DType::s16 || type == DType::s32 || type == DType::s64;
    const std::uint64_t limit = (is_signed ? 1ull << (width - 1) : width == 64 ? 0 : 1ull << width) - 1;
    if ((negative && !is_signed) || magnitude > limit + (negative ? 1 : 0))
      bad(cat("the value must fit a ", name(type)), cat("it is ", s));
    return negative ? ~magnitude + 1 : magnitude;
  }

  /// The part after the role: dtype ':' (count [':' init] | file) ['=' output].
  void buffer(Role role, std::string_view rest) {
    const auto colon = rest.find(':');
    const auto type = parse_dtype(rest.substr(0, colon));
    if (!type || colon == std::string_view::npos) {
      std::vector<std::string> known;
      for (int i = 0; i < kDTypeCount; ++i) known.emplace_back(name(DType(i)));
      bad("a buffer needs an element type and a size or file",
          cat("\"", rest.substr(0, colon), "\" is not one of ", text::join(known, " ")));
    }
    rest = rest.substr(colon + 1);
    BufferSpec b;
    b.name = name_;
    b.role = role;
    b.dtype = *type;
    const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    const bool counted = digits > 0 && (digits == rest.size() || rest[digits] == ':' || rest[digits] == '=');
    if (counted) {
      b.count = number(rest.substr(0, digits), "the number of elements");
      if (b.count > (1ull << 40) / std::uint64_t(bytes(*type))) bad("a buffer must be at most 1 TiB", "");
      counted_buffer(b, rest.substr(digits));
    } else {
      file_buffer(b, rest);
    }
    ParamSpec p;
    p.kind = ParamSpec::Kind::address;
    p.addresses.push_back({spec_.buffers.size(), 0, 0});
    spec_.buffers.push_back(std::move(b));
    launch().params.push_back(std::move(p));
  }

  void counted_buffer(BufferSpec& b, std::string_view rest) const {
    if (!rest.empty() && rest[0] == ':') {
      std::string_view init = rest.substr(1);
      rest = {};
      if (b.role == Role::inout || b.role == Role::out)
        if (const auto equals = init.rfind('='); equals != std::string_view::npos)
          rest = init.substr(equals), init = init.substr(0, equals);
      const bool json = !init.empty() && (init[0] == '{' || init[0] == '[');
      const Document document(json ? std::string(init) : cat('"', init, '"'), where_);
      b.init = parse_init(document.root(), b.dtype, b.count);
    } else if (b.role == Role::in || b.role == Role::inout) {
      bad(cat("an ", name(b.role), " buffer needs a file or a generator"), "it has only a size");
    }
    if (!rest.empty()) set_output(b, rest.substr(1));
  }

  void file_buffer(BufferSpec& b, std::string_view rest) const {
    if (b.role == Role::out || b.role == Role::scratch)
      bad(cat("an ", name(b.role), " buffer needs a number of elements"), cat("\"", rest, "\" is none"));
    const auto equals = b.role == Role::inout ? rest.rfind('=') : std::string_view::npos;
    const std::string path(rest.substr(0, equals));
    if (path.empty()) bad("a buffer needs a file or a size", "both are missing");
    HostArray array = read_array(path, b.dtype);
    b.count = array.count();
    b.shape = array.shape;
    b.init = Init{};
    b.init->kind = Init::Kind::file;
    b.init->path = path;
    if (b.role == Role::inout)
      set_output(b, equals == std::string_view::npos ? std::string_view(path) : rest.substr(equals + 1));
  }

  void set_output(BufferSpec& b, std::string_view path) const {
    if (b.role == Role::in || b.role == Role::scratch)
      bad(cat("an ", name(b.role), " buffer has no output file"), cat("it names ", path));
    if (path.empty()) bad("'=' must be followed by the output's file name", "it is empty");
    b.output_path = path;
  }

  Spec& spec_;
  std::string_view text_;
  std::string where_, name_;
};

}  // namespace

void add_argument(Spec& spec, std::string_view text, std::size_t index) {
  ArgumentParser(spec, text, index).parse();
}

runtime::Dim3 parse_extents(std::string_view text, std::string_view option) {
  std::array<std::uint32_t, 3> v{1, 1, 1};
  const auto parts = text::split(text, ',');
  const auto bad = [&](std::string why) {
    throw ArgumentError(ErrorText{cat(option, " must be X, X,Y or X,Y,Z, each at least 1"),
                                  {},
                                  std::move(why),
                                  cat("for example ", option, " 4,2,1")});
  };
  if (parts.size() > 3) bad(cat("it has ", parts.size(), " extents: \"", text, "\""));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto s = text::trim(parts[i]);
    const auto r = std::from_chars(s.data(), s.data() + s.size(), v[i]);
    if (s.empty() || r.ec != std::errc() || r.ptr != s.data() + s.size() || v[i] == 0)
      bad(cat("extent ", i, " is \"", s, "\""));
  }
  return {v[0], v[1], v[2]};
}

}  // namespace cgp::spec
