// SPDX-License-Identifier: Apache-2.0
#include "cgp/ptx/forms.h"

#include <charconv>
#include <unordered_map>

#include "cgp/base/text.h"

namespace cgp::ptx {
namespace {

using Pattern = OperandPattern;

constexpr std::string_view kForms[] = {
#define CGP_OP(id, text, family, forms) forms,
#include "cgp/ptx/opcodes.def"
};

std::string shapes(int k, bool integer) {
  std::string s = "(";
  for (int n = 8; n <= 256; n += 8)
    if (!integer || n <= 32 || n % 16 == 0) s += text::cat(n > 8 ? " " : "", ".m64n", n, "k", k);
  return s + ")";
}

const std::unordered_map<std::string_view, std::string>& macros() {
  static const std::unordered_map<std::string_view, std::string> m = {
      {"int", "(.u16 .s16 .u32 .s32 .u64 .s64)"},
      {"rnd", ".rn .rz .rm .rp"},
      {"icmp", "(.eq .ne .lt .le .gt .ge .lo .ls .hi .hs)"},
      {"fcmp", "(.eq .ne .lt .le .gt .ge .equ .neu .ltu .leu .gtu .geu .num .nan)"},
      {"cmptype", "(.b16 .b32 .b64 .u16 .u32 .u64 .s16 .s32 .s64)"},
      {"cvtint", "(.u8 .u16 .u32 .u64 .s8 .s16 .s32 .s64)"},
      {"mem32", "(.b8 .b16 .b32 .u8 .u16 .u32 .s8 .s16 .s32 .f32)"},
      {"mem64", "(.b64 .u64 .s64 .f64)"},
      {"mem256", "(.b32 .u32 .s32 .f32)"},
      {"memtypes", ".b8 .b16 .b32 .u8 .u16 .u32 .s8 .s16 .s32 .f32 .b64 .u64 .s64 .f64"},
      {"scope", "(.cta .cluster .gpu .sys)"},
      {"ldspace",
       "{.const .global .local .param .param::entry .param::func .shared .shared::cta .shared::cluster}"},
      {"stspace", "{.global .local .param .param::func .shared .shared::cta .shared::cluster}"},
      {"strongspace", "{.global .shared .shared::cta .shared::cluster}"},
      {"evict", "{.L1::evict_normal .L1::evict_unchanged .L1::evict_first .L1::evict_last .L1::no_allocate}"},
      {"evict2", "{.L2::evict_normal .L2::evict_first .L2::evict_last}"},
      {"hints", "{.L2::cache_hint}{.L2::64B .L2::128B .L2::256B}"},
      {"cacherules",
       ".L1::evict_normal .L1::evict_unchanged .L1::evict_first .L1::evict_last .L1::no_allocate: 7.4 70 ; "
       ".L2::64B .L2::128B: 7.4 75 ; .L2::256B .L2::cache_hint: 7.4 80 ; "
       ".L2::evict_normal .L2::evict_first .L2::evict_last: 8.8 100"},
      {"atomhead",
       "{.relaxed .acquire .release .acq_rel}{.cta .cluster .gpu .sys}"
       "{.global .shared .shared::cta .shared::cluster}"},
      {"redhead",
       "{.relaxed .release}{.cta .cluster .gpu .sys}{.global .shared .shared::cta .shared::cluster}"},
      {"atomvec", "{.relaxed .acquire .release .acq_rel}{.cta .cluster .gpu .sys}{.global}"},
      {"redvec", "{.relaxed .release}{.cta .cluster .gpu .sys}{.global}"},
      {"wmmaspace", "{.global .shared .shared::cta}"},
      {"smem", "{.shared .shared::cta}"},
      {"f8f6f4", "(.e4m3 .e5m2 .e3m2 .e2m3 .e2m1)"},
      {"dims", "(.1d .2d .3d .4d .5d)"},
      {"barsem", "(.release .relaxed)(.cta .cluster)"},
      {"group", "(.cta_group::1 .cta_group::2)"},
      {"x", "(.x1 .x2 .x4 .x8 .x16 .x32 .x64 .x128)"},
      {"wscollector",
       "{.collector::b0::fill .collector::b0::use .collector::b0::lastuse .collector::b0::discard "
       ".collector::b1::fill .collector::b1::use .collector::b1::lastuse .collector::b1::discard "
       ".collector::b2::fill .collector::b2::use .collector::b2::lastuse .collector::b2::discard "
       ".collector::b3::fill .collector::b3::use .collector::b3::lastuse .collector::b3::discard}"},
      {"m64k8", shapes(8, false)},
      {"m64k16", shapes(16, false)},
      {"m64k32", shapes(32, false)},
      {"m64k64", shapes(64, false)},
      {"m64k32int", shapes(32, true)},
      {"m64k64int", shapes(64, true)},
      {"m64k256int", shapes(256, true)}};
  return m;
}

// The table is part of the program: an error in it is found by the tests, which compile every row.
[[noreturn]] void bad(std::string_view line, std::string_view what) {
  throw Error(text::cat("opcodes.def: ", what, " in form `", line, "`"));
}

bool word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string expand(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '@') {
      out.push_back(line[i]);
      continue;
    }
    std::size_t end = i + 1;
    while (end < line.size() && word_char(line[end])) ++end;
    auto it = macros().find(line.substr(i + 1, end - i - 1));
    if (it == macros().end()) bad(line, text::cat("unknown macro ", line.substr(i, end - i)));
    out += it->second;
    i = end - 1;
  }
  return out;
}

int to_int(std::string_view s, std::string_view line) {
  int v = 0;
  auto r = std::from_chars(s.data(), s.data() + s.size(), v);
  if (r.ec != std::errc() || r.ptr != s.data() + s.size()) bad(line, text::cat("bad number '", s, "'"));
  return v;
}

Mod to_mod(std::string_view s, std::string_view line) {
  auto m = parse_mod(s);
  if (!m) bad(line, text::cat("unknown modifier '.", s, "'"));
  return *m;
}

// ".a.b" to its modifiers
std::vector<Mod> sequence(std::string_view s, std::string_view line) {
  std::vector<Mod> out;
  while (!s.empty()) {
    if (s[0] != '.') bad(line, text::cat("expected a dot in '", s, "'"));
    const std::size_t end = std::min(s.find('.', 1), s.size());
    out.push_back(to_mod(s.substr(1, end - 1), line));
    s.remove_prefix(end);
  }
  return out;
}

// A name may hold dots of its own only through "::", so a modifier is cut at the next dot or bracket.
std::size_t parse_slots(std::string_view line, std::vector<ModSlot>& out) {
  std::size_t i = 0;
  while (i < line.size()) {
    if (line[i] == '.') {
      const std::size_t end = std::min(line.find_first_of(".({ ", i + 1), line.size());
      out.push_back({false, {{to_mod(line.substr(i + 1, end - i - 1), line)}}});
      i = end;
    } else if (line[i] == '(' || line[i] == '{') {
      const std::size_t end = line.find(line[i] == '(' ? ')' : '}', i);
      if (end == std::string_view::npos) bad(line, "open bracket");
      ModSlot slot{line[i] == '{', {}};
      for (std::string_view alternative : text::split(line.substr(i + 1, end - i - 1), ' '))
        if (!alternative.empty()) slot.alternatives.push_back(sequence(alternative, line));
      out.push_back(std::move(slot));
      i = end + 1;
    } else {
      break;
    }
  }
  return i;
}

void parse_requirement(std::string_view s, Requirement& r, std::string_view line) {
  for (std::string_view word : text::split(s, ' ')) {
    if (word.empty()) continue;
    const std::size_t dot = word.find('.');
    if (dot != std::string_view::npos) {
      r.version = {to_int(word.substr(0, dot), line), to_int(word.substr(dot + 1), line)};
      continue;
    }
    TargetCondition c;
    if (const std::size_t dash = word.find('-'); dash != std::string_view::npos) {
      c.last = to_int(word.substr(dash + 1), line);
      word = word.substr(0, dash);
    }
    if (word.back() == 'a' || word.back() == 'f') {
      c.suffix = word.back();
      word.remove_suffix(1);
    }
    c.sm = to_int(word, line);
    r.targets.push_back(c);
  }
}

// "; 8.6 100 ; .x .y: 8.8" after the operands, or the rest of a "!" line.
void parse_requirements(std::string_view s, Requirement& need, std::vector<std::pair<Mod, Requirement>>& mods,
                        std::string_view line) {
  for (std::string_view part : text::split(s, ';')) {
    part = text::trim(part);
    // The colon that ends the modifiers is followed by a blank; "::" is not.
    const std::size_t colon = part.find(": ");
    if (part.empty() || part[0] != '.' || colon == std::string_view::npos) {
      parse_requirement(part, need, line);
      continue;
    }
    Requirement r;
    parse_requirement(part.substr(colon + 1), r, line);
    for (std::string_view m : text::split(part.substr(0, colon), ' '))
      if (!m.empty()) mods.emplace_back(to_mod(m.substr(1), line), r);
  }
}

std::vector<Pattern::Range> parse_ranges(std::string_view s, std::string_view line) {
  std::vector<Pattern::Range> out;
  auto number = [&](std::string_view t) { return std::int64_t(to_int(t, line)); };
  for (std::string_view part : text::split(s, '/')) {
    Pattern::Range r{0, 0, 1};
    const std::size_t dots = part.find("..");
    if (dots == std::string_view::npos) {
      r.first = r.last = number(part);
    } else {
      std::string_view last = part.substr(dots + 2);
      if (const std::size_t star = last.find('*'); star != std::string_view::npos) {
        r.step = number(last.substr(star + 1));
        last = last.substr(0, star);
      }
      r.first = number(part.substr(0, dots));
      r.last = number(last);
    }
    out.push_back(r);
  }
  return out;
}

void parse_count(std::string_view s, Pattern& p, std::string_view line) {
  std::size_t digits = 0;
  while (digits < s.size() && s[digits] >= '0' && s[digits] <= '9') ++digits;
  if (digits) p.multiply = to_int(s.substr(0, digits), line);
  const std::string_view unit = s.substr(digits);
  if (unit.empty()) {
    p.count_by = Pattern::Count::fixed;
  } else if (unit == "v") {
    p.count_by = Pattern::Count::vec;
  } else if (unit == "x") {
    p.count_by = Pattern::Count::x;
  } else if (unit == "dim-2") {
    p.count_by = Pattern::Count::dim;
    p.subtract = 2;
  } else if (unit.substr(0, 2) == "n/") {
    p.count_by = Pattern::Count::n;
    p.divide = to_int(unit.substr(2), line);
  } else {
    bad(line, text::cat("bad vector size {", s, "}"));
  }
}

void parse_type(std::string_view s, Pattern& p, std::string_view line) {
  using Type = Pattern::Type;
  if (s == "t1")
    p.type_from = Type::t1;
  else if (s == "t2")
    p.type_from = Type::t2;
  else if (s == "t3")
    p.type_from = Type::t3;
  else if (s == "wide")
    p.type_from = Type::wide;
  else if (s == "size")
    p.type_from = Type::size;
  else if (s == "addr")
    p.type_from = Type::address;
  else {
    p.type_from = Type::fixed;
    p.type = to_mod(s, line);
  }
}

Pattern parse_bracket(std::string_view s, Pattern p, std::string_view line) {
  using Where = Pattern::Where;
  p.kind = Pattern::Kind::address;
  const std::pair<std::string_view, Where> names[] = {
      {"[]", Where::mods},         {"[generic]", Where::generic}, {"[global]", Where::global},
      {"[shared]", Where::shared}, {"[tmem]", Where::tmem},       {"[tensor]", Where::tensor},
      {"[gather]", Where::gather}};
  for (const auto& [text, where] : names)
    if (s == text) {
      p.where = where;
      return p;
    }
  bad(line, text::cat("unknown address ", s));
}

Pattern parse_operand(std::string_view s, std::string_view line) {
  using Kind = Pattern::Kind;
  Pattern p;
  if (s.substr(0, 2) == "<.") {
    const std::size_t end = s.find('>');
    p.only_with = to_mod(s.substr(2, end - 2), line);
    s.remove_prefix(end + 1);
  }
  if (s[0] == '?') {
    p.optional = true;
    s.remove_prefix(1);
  }
  if (s[0] == '[') return parse_bracket(s, p, line);
  const std::pair<std::string_view, Kind> words[] = {
      {"pack", Kind::pack},   {"unpack", Kind::unpack}, {"mask", Kind::mask}, {"label", Kind::label},
      {"table", Kind::table}, {"call", Kind::call},     {"any", Kind::any},   {"_", Kind::sink}};
  for (const auto& [word, kind] : words)
    if (s == word) {
      p.kind = kind;
      return p;
    }
  switch (s[0]) {
    case 'd':
      p.kind = Kind::dest;
      break;
    case 'a':
    case 'b':
    case 'c':
    case 'e':
    case 's':
      p.kind = Kind::source;
      break;
    case 'r':
      p.kind = Kind::reg;
      break;
    case 'm':
      p.kind = Kind::mov;
      break;
    case 'p':
      p.kind = Kind::pred_dest;
      break;
    case 'q':
      p.kind = Kind::pred;
      break;
    case 'P':
      p.kind = Kind::pred_not;
      break;
    case 'Q':
      p.kind = Kind::pred_or_flag;
      break;
    case '#':
      p.kind = Kind::imm;
      break;
    default:
      bad(line, text::cat("unknown operand ", s));
  }
  for (std::size_t i = 1; i < s.size();) {
    const std::size_t end = std::min(s.find_first_of("_+|{:(", i + 1), s.size());
    switch (s[i]) {
      case '_':
        p.sink = true;
        break;
      case '+':
        p.wider = true;
        break;
      case '|':
        p.dual = true;
        break;
      case '{':
        parse_count(s.substr(i + 1, s.find('}', i) - i - 1), p, line);
        break;
      case ':':
        parse_type(s.substr(i + 1, end - i - 1), p, line);
        break;
      case '(':
        p.ranges = parse_ranges(s.substr(i + 1, s.find(')', i) - i - 1), line);
        break;
      default:
        bad(line, text::cat("unexpected '", s.substr(i), "'"));
    }
    i = end;
  }
  return p;
}

Form parse_form(Op op, const std::string& line) {
  Form f;
  f.op = op;
  std::string_view rest = line;
  const std::size_t semicolon = rest.find(';');
  if (semicolon != std::string_view::npos) {
    parse_requirements(rest.substr(semicolon + 1), f.need, f.mod_needs, line);
    rest = rest.substr(0, semicolon);
  }
  const std::size_t end = parse_slots(rest, f.slots);
  f.modifiers_text = std::string(rest.substr(0, end));
  rest = text::trim(rest.substr(end));
  if (rest == "-") rest = {};
  f.operands_text = std::string(rest);
  if (!rest.empty())
    for (std::string_view part : text::split(rest, ','))
      f.operands.push_back(parse_operand(text::trim(part), line));
  return f;
}

std::vector<Form> compile(Op op) {
  std::vector<Form> out;
  Requirement all;
  std::vector<std::pair<Mod, Requirement>> all_mods;
  for (std::string_view raw : text::split(kForms[std::size_t(op)], '\n')) {
    if (text::trim(raw).empty()) continue;
    const std::string line = expand(raw);
    if (line[0] == '!')
      parse_requirements(std::string_view(line).substr(1), all, all_mods, line);
    else
      out.push_back(parse_form(op, line));
  }
  for (Form& f : out) {
    f.need.version = std::max(f.need.version, all.version);
    if (f.need.targets.empty()) f.need.targets = all.targets;
    f.mod_needs.insert(f.mod_needs.end(), all_mods.begin(), all_mods.end());
  }
  return out;
}

bool match_from(const std::vector<ModSlot>& slots, std::size_t slot, const Mods& mods, int at) {
  if (slot == slots.size()) return at == mods.size();
  for (const auto& alternative : slots[slot].alternatives) {
    if (at + int(alternative.size()) > mods.size()) continue;
    bool same = true;
    for (std::size_t i = 0; same && i < alternative.size(); ++i) same = mods[at + int(i)] == alternative[i];
    if (same && match_from(slots, slot + 1, mods, at + int(alternative.size()))) return true;
  }
  return slots[slot].optional && match_from(slots, slot + 1, mods, at);
}

// `used` marks modifiers already placed; the first unused one that fits is taken, so types keep their order.
bool match_any(const std::vector<ModSlot>& slots, std::size_t slot, const Mods& mods, std::uint32_t used,
               Mods ordered, Mods& result, int& budget) {
  if (--budget < 0) return false;
  if (slot == slots.size()) {
    if (used != (1u << mods.size()) - 1) return false;
    result = ordered;
    return true;
  }
  for (const auto& alternative : slots[slot].alternatives) {
    std::uint32_t now = used;
    Mods next = ordered;
    bool all = true;
    for (Mod m : alternative) {
      int at = 0;
      while (at < mods.size() && (mods[at] != m || (now >> at & 1))) ++at;
      // Types, comparison flags and the like must not overtake an earlier unused one of their kind.
      bool overtakes = false;
      if (at < mods.size() && is_type(m))
        for (int k = 0; k < at; ++k) overtakes |= !(now >> k & 1) && is_type(mods[k]);
      if (at == mods.size() || overtakes) {
        all = false;
        break;
      }
      now |= 1u << at;
      next.push_back(m);
    }
    if (all && match_any(slots, slot + 1, mods, now, next, result, budget)) return true;
  }
  return slots[slot].optional && match_any(slots, slot + 1, mods, used, ordered, result, budget);
}

}  // namespace

const std::vector<Form>& forms(Op op) {
  static const std::vector<std::vector<Form>> all = [] {
    std::vector<std::vector<Form>> v;
    for (int i = 0; i < int(Op::kCount); ++i) v.push_back(compile(Op(i)));
    return v;
  }();
  static const std::vector<Form> none;
  return op < Op::kCount ? all[std::size_t(op)] : none;
}

bool match_modifiers(const Form& f, const Mods& mods) { return match_from(f.slots, 0, mods, 0); }

bool match_unordered(const Form& f, const Mods& mods, Mods& ordered) {
  int budget = 20000;
  return match_any(f.slots, 0, mods, 0, {}, ordered, budget);
}

Mods canonical(Op op, const Mods& mods) {
  for (const Form& f : forms(op))
    if (match_modifiers(f, mods)) return mods;
  Mods ordered;
  for (const Form& f : forms(op))
    if (match_unordered(f, mods, ordered)) return ordered;
  return mods;
}

Mod operand_type(const OperandPattern& p, const Mods& mods) {
  using Type = OperandPattern::Type;
  auto nth = [&](int i) {
    for (Mod m : mods)
      if (is_type(m) && i-- == 0) return m;
    return kNoMod;
  };
  switch (p.type_from) {
    case Type::t0:
      return nth(0);
    case Type::t1:
      return nth(1);
    case Type::t2:
      return nth(2);
    case Type::t3:
      return nth(3);
    case Type::fixed:
      return p.type;
    case Type::wide:
      switch (nth(0)) {
        case Mod::u16:
          return Mod::u32;
        case Mod::s16:
          return Mod::s32;
        case Mod::u32:
          return Mod::u64;
        case Mod::s32:
          return Mod::s64;
        default:
          return kNoMod;
      }
    case Type::address:
      return Mod::b64;
    case Type::size:
      return kNoMod;
  }
  return kNoMod;
}

int operand_count(const OperandPattern& p, const Mods& mods) {
  using Count = OperandPattern::Count;
  auto number_after = [&](std::string_view prefix, char stop) {
    for (Mod m : mods) {
      std::string_view s = name(m);
      if (s.substr(0, prefix.size()) != prefix) continue;
      s.remove_prefix(prefix.size());
      int v = 0;
      auto r = std::from_chars(s.data(), s.data() + s.size(), v);
      if (r.ec == std::errc() && (r.ptr == s.data() + s.size() ? stop == 0 : *r.ptr == stop)) return v;
    }
    return -1;
  };
  int n = -1;
  switch (p.count_by) {
    case Count::scalar:
      return 0;
    case Count::fixed:
      return p.multiply;
    case Count::vec:
      n = number_after("v", 0);
      return n < 0 ? 0 : n;
    case Count::x:
      n = number_after("x", 0);
      break;
    case Count::n:
      n = number_after("m64n", 'k');
      break;
    case Count::dim:
      for (Mod m : mods)
        if (m >= Mod::d1d && m <= Mod::d5d) n = int(m) - int(Mod::d1d) + 1;
      break;
  }
  return n < 0 ? -1 : n * p.multiply / p.divide - p.subtract;
}

}  // namespace cgp::ptx
