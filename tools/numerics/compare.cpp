// SPDX-License-Identifier: Apache-2.0
#include "compare.h"

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>

#include "cgp/base/float16.h"
#include "cgp/base/text.h"

namespace cgp::numerics {
namespace {

using ptx::Mod;
using ptx::Op;
using text::cat;

std::uint64_t cell(const std::vector<std::uint32_t>& v, int bits, std::size_t n) {
  return bits == 64 ? v[2 * n] | std::uint64_t(v[2 * n + 1]) << 32 : v[n];
}

// One element of an approximate result as a number, with the spacing of its type there.
struct Number {
  double value = 0, spacing = 0;
};
Number number(Mod type, std::uint64_t bits) {
  int mantissa = 23, least = -149;
  double v = 0;
  switch (type) {
    case Mod::f64:
      v = std::bit_cast<double>(bits);
      mantissa = 52;
      least = -1074;
      break;
    case Mod::f16:
    case Mod::f16x2:
      v = float(half::from_bits(std::uint16_t(bits)));
      mantissa = 10;
      least = -24;
      break;
    case Mod::bf16:
    case Mod::bf16x2:
      v = double(std::bit_cast<float>(std::uint32_t(bits) << 16));
      mantissa = 7;
      least = -133;
      break;
    default:
      v = double(std::bit_cast<float>(std::uint32_t(bits)));
      break;
  }
  int e = 0;
  std::frexp(v, &e);
  return {v, std::ldexp(1.0, std::max(e - 1 - mantissa, least))};
}

// What the ISA manual allows between an instruction's result and the exact one, which the emulator rounds
// correctly: relative, absolute, or in units in the last place. The largest of the three counts. NVIDIA
// documents no bound where the table gives an absolute one of infinity.
struct Bound {
  double relative = 0, absolute = 0, ulps = 0.5;
};
Bound bound(const Case& c, const Number& x) {
  const auto type = c.outputs[0].type;
  const bool is_half = type == Mod::f16 || type == Mod::f16x2,
             is_bf16 = type == Mod::bf16 || type == Mod::bf16x2;
  switch (c.op) {
    case Op::div:
      return {0, 0, 2.5};
    case Op::rcp:
      return type == Mod::f64 ? Bound{std::exp2(-19.9), 0, 0.5} : Bound{0, 0, 1.5};
    case Op::sqrt:
      return {std::ldexp(1, -23), 0, 1.5};
    case Op::rsqrt:
      return type == Mod::f64 ? Bound{std::ldexp(1, -20), 0, 0.5} : Bound{std::exp2(-22.9), 0, 0.5};
    case Op::sin:
    case Op::cos: {
      const double a = std::fabs(x.value), pi = 3.14159265358979;
      return {0, a <= 2 * pi ? std::exp2(-20.5) : a <= 100 * pi ? std::exp2(-14.7) : 2.0, 0.5};
    }
    case Op::lg2:
      return {std::ldexp(1, -22), x.value > 0.5 && x.value < 2 ? std::ldexp(1, -22) : 0, 0.5};
    case Op::ex2:
      return is_half   ? Bound{std::exp2(-9.9), 0, 1.5}
             : is_bf16 ? Bound{std::ldexp(1, -7), 0, 0.5}
                       : Bound{0, 0, 2.5};
    case Op::tanh:
      return is_half   ? Bound{0, std::exp2(-10.987), 0.5}
             : is_bf16 ? Bound{0, std::ldexp(1, -8), 0.5}
                       : Bound{std::ldexp(1, -11), 0, 0.5};
    default:
      return {};
  }
}

struct Element {
  int bits, count;  // of one element, elements in a register
};
Element element_of(const Output& o) {
  if (o.type == Mod::f16x2 || o.type == Mod::bf16x2) return {16, 2};
  return {o.bits, 1};
}

std::uint64_t input_bits(const Case& c, std::uint32_t thread, std::size_t k) {
  static std::map<std::pair<Input, std::uint32_t>, std::vector<std::uint32_t>> kept;
  auto [it, fresh] = kept.try_emplace({c.inputs[k], c.cases});
  if (fresh) it->second = values(c.inputs[k], c.cases);
  return cell(it->second, c.inputs[k].bits,
              std::size_t(thread) * std::size_t(std::max(1, c.inputs[k].count)));
}

void compare_approximate(const Case& c, std::uint32_t thread, std::uint64_t want, std::uint64_t have, int n,
                         Comparison& out) {
  const Output& o = c.outputs[0];
  const Element e = element_of(o);
  const std::uint64_t x_bits = input_bits(c, thread, 0);
  for (int k = 0; k < e.count; ++k) {
    const std::uint64_t mask = e.bits == 64 ? ~0ull : (1ull << e.bits) - 1;
    const std::uint64_t w = want >> (k * e.bits) & mask, h = have >> (k * e.bits) & mask;
    const Number a = number(o.type, w), b = number(o.type, h),
                 x = number(c.inputs[0].type, x_bits >> (k * e.bits) & mask);
    ++out.values;
    double units = 0, share = 0;
    if (std::isnan(a.value) || std::isnan(b.value) || std::isinf(a.value) || std::isinf(b.value)) {
      if (w != h) units = share = std::numeric_limits<double>::infinity();
      // The next value to the largest finite one is infinity.
      const Number& finite = std::isinf(a.value) ? b : a;
      if (std::isinf(a.value) != std::isinf(b.value) && !std::isnan(a.value) && !std::isnan(b.value) &&
          std::signbit(a.value) == std::signbit(b.value) &&
          std::fabs(finite.value) + 3 * finite.spacing >
              std::ldexp(1, o.type == Mod::f64                                             ? 1023
                            : e.bits == 16 && o.type != Mod::bf16 && o.type != Mod::bf16x2 ? 15
                                                                                           : 127) *
                  1.99)
        units = share = 1;
    } else {
      const double error = std::fabs(a.value - b.value), spacing = std::max(a.spacing, b.spacing);
      units = error / spacing;
      const Bound limit = bound(c, x);
      const double allowed = std::max({limit.relative * std::fabs(b.value) + spacing / 2,
                                       limit.absolute + spacing / 2, limit.ulps * spacing});
      share = error / allowed;
      if (a.value == 0 && b.value == 0 && w != h) units = share = std::numeric_limits<double>::infinity();
    }
    ++out.ulps[units == 0 ? 0 : units <= 1 ? 1 : units <= 2 ? 2 : units <= 4 ? 3 : units <= 16 ? 4 : 5];
    out.worst = std::max(out.worst, share);
    if (share <= 1) continue;
    ++out.different;
    if (out.first.size() < 8) out.first.push_back({thread, 0, n, want, have});
  }
}

}  // namespace

Comparison compare(const Case& c, const Answer& expected, const Answer& got) {
  Comparison out;
  for (std::size_t k = 0; k < c.outputs.size(); ++k) {
    const Output& o = c.outputs[k];
    for (std::uint32_t t = 0; t < c.cases; ++t)
      for (int n = 0; n < o.count; ++n) {
        const std::size_t at = std::size_t(t) * std::size_t(o.count) + std::size_t(n);
        const std::uint64_t w = cell(expected.outputs[k], o.bits, at), h = cell(got.outputs[k], o.bits, at);
        if (c.approximate) {
          compare_approximate(c, t, w, h, n, out);
          continue;
        }
        ++out.values;
        if (w == h) continue;
        ++out.different;
        if (out.first.size() < 8) out.first.push_back({t, k, n, w, h});
      }
  }
  return out;
}

std::string inputs_of(const Case& c, std::uint32_t thread) {
  std::string s;
  for (std::size_t k = 0; k < c.inputs.size(); ++k)
    if (c.inputs[k].draw != Draw::block) s += cat(s.empty() ? "" : " ", text::hex(input_bits(c, thread, k)));
  return s;
}

std::uint64_t hash(const Answer& a) {
  std::uint64_t h = 0xcbf29ce484222325ull;
  for (const auto& o : a.outputs)
    for (std::uint32_t v : o) {
      h = (h ^ v) * 0x100000001b3ull;
      h ^= h >> 29;
    }
  return h;
}

// Approximate forms: every so many-th cell of the first output.
constexpr std::size_t kSamples = 48;

std::string fixture_line(const Case& c, const Answer& a) {
  if (!c.approximate) return text::hex(hash(a)).substr(2);
  std::string s = "~";
  const int bits = c.outputs[0].bits;
  for (std::size_t n = 0; n < kSamples; ++n)
    s += cat(n ? "," : "", text::hex(cell(a.outputs[0], bits, n * (c.cases / kSamples))).substr(2));
  return s;
}

std::map<std::string, std::string> read_fixture(const std::string& path) {
  std::ifstream f(path);
  if (!f) throw Error(cat("cannot read the fixture ", path));
  std::map<std::string, std::string> out;
  for (std::string line; std::getline(f, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t tab = line.find('\t');
    if (tab == line.npos) throw Error(cat("no tab in line `", line, "` of ", path));
    out[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return out;
}

std::string disagrees(const Case& c, const std::string& line, const Answer& got) {
  if (line[0] != '~') {
    const std::string mine = fixture_line(c, got);
    return mine == line ? "" : cat("hash ", mine, ", the GPU's is ", line);
  }
  Comparison all;
  std::size_t n = 0;
  const int bits = c.outputs[0].bits;
  for (std::string_view word : text::split(std::string_view(line).substr(1), ',')) {
    std::uint64_t want = 0;
    std::from_chars(word.data(), word.data() + word.size(), want, 16);
    const std::size_t at = n++ * (c.cases / kSamples);
    compare_approximate(c, std::uint32_t(at), want, cell(got.outputs[0], bits, at), 0, all);
  }
  if (!all.different) return "";
  const Difference& d = all.first[0];
  return cat(all.different, " of ", all.values,
             " samples beyond the documented error, the first with inputs ", inputs_of(c, d.thread), ": GPU ",
             text::hex(d.expected), ", emulator ", text::hex(d.got));
}

}  // namespace cgp::numerics
