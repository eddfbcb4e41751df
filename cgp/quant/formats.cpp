// SPDX-License-Identifier: Apache-2.0
#include "cgp/quant/formats.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::quant {
namespace {

constexpr FormatInfo kFormats[] = {
#define CGP_FORMAT(name, ggml, elements, bytes, encodes) \
  {Format::name, #name, ggml, elements, bytes, encodes},
#include "cgp/quant/formats.def"
#undef CGP_FORMAT
};

}  // namespace

const FormatInfo& info(Format f) { return kFormats[std::size_t(f)]; }
std::span<const FormatInfo> all_formats() { return kFormats; }

Format format_named(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& f : kFormats) {
    if (f.name == name) return f.format;
    names.emplace_back(f.name);
  }
  throw ArgumentError({text::cat("there is no weight format ", name),
                       {},
                       text::cat("formats: ", text::join(names, ", ")),
                       text::cat("did you mean ", text::join(text::closest(name, names, 2), " or "), "?")});
}

Format format_of_ggml_type(std::uint32_t id, std::string_view tensor) {
  for (const auto& f : kFormats)
    if (f.ggml_type >= 0 && std::uint32_t(f.ggml_type) == id) return f.format;
  throw ArgumentError({text::cat("GGML type ", id, " is not a weight format that can be read"),
                       {},
                       tensor.empty() ? std::string() : text::cat("it is the type of tensor ", tensor),
                       {}});
}

std::uint64_t bytes_of(Format f, std::uint64_t elements) {
  const auto& i = info(f);
  if (elements % i.elements == 0 && elements / i.elements <= ~std::uint64_t(0) / i.bytes)
    return elements / i.elements * i.bytes;
  throw ArgumentError({text::cat("a row of ", i.name, " holds whole blocks of ", i.elements, " elements"),
                       {},
                       text::cat("it has ", elements, " elements"),
                       elements < i.elements ? text::cat("the least are ", i.elements)
                                             : text::cat("the next are ", elements / i.elements * i.elements,
                                                         " and ", (elements / i.elements + 1) * i.elements)});
}

}  // namespace cgp::quant
