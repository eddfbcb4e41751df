// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/lint/x86_mix.h"

#include <cctype>

#include "cgp/base/text.h"

namespace cgp::profile {
namespace {

bool has(std::string_view s, std::string_view part) { return s.find(part) != std::string_view::npos; }

/// %xmm16 to %xmm31 and their wider forms exist in AVX-512 alone.
bool has_high_register(std::string_view s) {
  for (std::size_t at = s.find("mm"); at != std::string_view::npos; at = s.find("mm", at + 2)) {
    if (at + 3 >= s.size() || !std::isdigit(static_cast<unsigned char>(s[at + 2])) ||
        !std::isdigit(static_cast<unsigned char>(s[at + 3])))
      continue;
    if ((s[at + 2] - '0') * 10 + (s[at + 3] - '0') >= 16) return true;
  }
  return false;
}

bool has_mask(std::string_view s) {
  for (std::size_t at = s.find("%k"); at != std::string_view::npos; at = s.find("%k", at + 2))
    if (at + 2 < s.size() && std::isdigit(static_cast<unsigned char>(s[at + 2]))) return true;
  return false;
}

/// addss, vfmadd231sd, cvtsi2ss, ucomisd; not vbroadcastss, which fills a vector.
bool is_scalar(std::string_view mnemonic) {
  if (mnemonic.size() < 4 || has(mnemonic, "broadcast")) return false;
  const auto ends = [&](std::string_view e) { return mnemonic.substr(mnemonic.size() - e.size()) == e; };
  return ends("ss") || ends("sd") || has(mnemonic, "ss2si") || has(mnemonic, "sd2si") ||
         has(mnemonic, "si2ss") || has(mnemonic, "si2sd");
}

void count(X86Mix& m, X86Kind k) {
  switch (k) {
    case X86Kind::integer:
      ++m.integer;
      break;
    case X86Kind::scalar_float:
      ++m.scalar_float;
      break;
    case X86Kind::sse:
      ++m.sse;
      break;
    case X86Kind::avx128:
      ++m.avx128;
      break;
    case X86Kind::avx256:
      ++m.avx256;
      break;
    case X86Kind::avx512:
      ++m.avx512;
      break;
    case X86Kind::amx:
      ++m.amx;
      break;
  }
}

}  // namespace

void X86Mix::add(const X86Mix& o) {
  integer += o.integer, scalar_float += o.scalar_float, sse += o.sse, avx128 += o.avx128, avx256 += o.avx256;
  avx512 += o.avx512, amx += o.amx;
}

X86Kind x86_kind(std::string_view instruction) {
  instruction = text::trim(instruction);
  if (const auto comment = instruction.find('#'); comment != std::string_view::npos)
    instruction = instruction.substr(0, comment);
  const auto space = instruction.find(' ');
  const auto mnemonic = instruction.substr(0, space);
  const auto operands = space == std::string_view::npos ? std::string_view() : instruction.substr(space);
  if (has(operands, "%tmm") || mnemonic == "tilerelease") return X86Kind::amx;
  if (has(operands, "%st")) return X86Kind::scalar_float;
  if (mnemonic == "vzeroupper" || mnemonic == "vzeroall") return X86Kind::integer;
  const bool vector = has(operands, "%xmm") || has(operands, "%ymm") || has(operands, "%zmm");
  if (!vector) return has_mask(operands) ? X86Kind::avx512 : X86Kind::integer;
  if (is_scalar(mnemonic)) return X86Kind::scalar_float;
  if (has(operands, "%zmm") || has_mask(operands) || has_high_register(operands)) return X86Kind::avx512;
  if (has(operands, "%ymm")) return X86Kind::avx256;
  return mnemonic[0] == 'v' ? X86Kind::avx128 : X86Kind::sse;
}

std::vector<X86Function> x86_functions(std::string_view listing) {
  std::vector<X86Function> out;
  for (const auto line : text::split(listing, '\n')) {
    if (line.size() > 3 && line.substr(line.size() - 2) == ">:") {
      const auto open = line.find(" <");
      if (open != std::string_view::npos)
        out.push_back({std::string(line.substr(open + 2, line.size() - open - 4)), {}});
      continue;
    }
    // "  401136:\tmov    %eax,%ebx": a second tab only where bytes are shown
    const auto tab = line.find(":\t");
    if (tab == std::string_view::npos || out.empty()) continue;
    auto code = line.substr(tab + 2);
    if (const auto bytes = code.find('\t'); bytes != std::string_view::npos) code = code.substr(bytes + 1);
    if (!text::trim(code).empty()) count(out.back().mix, x86_kind(code));
  }
  return out;
}

}  // namespace cgp::profile
