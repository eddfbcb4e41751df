// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "cgp/base/text.h"
#include "cgp/emu/finding_class.h"
#include "cgp/spec/report/findings.h"

namespace cgp::spec {
namespace {

using fmt::format;

/// Mangled C++ names as people know them: "_ZZ6kernelPfE4tile" is "kernel::tile".
std::string printable(std::string_view s) {
  const auto word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$';
  };
  std::string out;
  while (!s.empty()) {
    std::size_t n = 0;
    while (n < s.size() && word(s[n])) ++n;
    if (s.substr(0, 2) == "_Z" && n > 2) {
      int status = 0;
      const std::string mangled(s.substr(0, n));
      char* name = abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status);
      std::string plain = status == 0 && name ? name : mangled;
      std::free(name);
      if (const auto open = plain.find('('), close = plain.rfind(')'); close != plain.npos && close > open)
        plain.erase(open, close - open + 1);  // overloads are rare, argument lists are long
      out += plain;
    } else {
      n = std::max<std::size_t>(n, 1);
      out += s.substr(0, n);
    }
    s.remove_prefix(n);
  }
  return out;
}

/// One place in a text, with a sentence beside its caret.
struct Snippet {
  std::string name;  ///< in Sources
  int line = 0, column = 0;
  std::string label;
  bool second = false;  ///< of the other party
  bool again = false;   ///< the same place as the one before, in another text
};

class Renderer {
 public:
  Renderer(Sources& sources, const Style& style) : sources_(sources), style_(style), paint_(style.color) {}

  std::string render(const std::vector<Snippet>& all) {
    for (const Snippet& s : all) gutter_ = std::max(gutter_, std::to_string(s.line).size());
    std::string out;
    for (const Snippet& s : all) out += one(s);
    return out;
  }

  /// "  = where: ..." with continuation lines below the first word.
  std::string remark(std::string_view word, std::string_view sentence) const {
    const std::string lead = format("{} {} {}: ", std::string(gutter_, ' '), "=", word);
    return format("{} {} {}: {}\n", std::string(gutter_, ' '), paint_.frame("="), paint_.strong(word),
                  wrapped(sentence, style_.width, int(lead.size())));
  }

 private:
  std::string one(const Snippet& s) {
    const std::string pad(gutter_, ' ');
    std::string out =
        format("{}{} {}:{}", pad, paint_.frame(s.again ? ":::" : "-->"), sources_.path(s.name), s.line);
    if (s.column > 0) out += format(":{}", s.column);
    const auto line = sources_.line(s.name, s.line);
    if (!line || text::trim(*line).empty()) {
      if (!s.label.empty()) out += format("  {}", mark(s, s.label));
      return out + '\n';
    }
    const bool exact = s.column > 0 && std::size_t(s.column) <= line->size();
    std::size_t begin =
        exact ? std::size_t(s.column) - 1 : std::min(line->find_first_not_of(" \t"), line->size());
    std::size_t end = exact ? token_end(*line, begin) : line->size();
    std::string code = expand_tabs(*line, begin, end);
    crop(code, begin, end);
    std::string under(begin, ' ');
    under += mark(s, std::string(std::max<std::size_t>(end - begin, 1), '^'));
    if (!s.label.empty()) {
      const std::size_t used = gutter_ + 3 + end + 1;
      if (used + s.label.size() > std::size_t(style_.width) && used > 30)
        under +=
            format("\n{} {} {}", pad, paint_.frame("|"), std::string(std::min<std::size_t>(begin, 8), ' '));
      else
        under += ' ';
      under += mark(s, s.label);
    }
    return out + format("\n{:>{}} {} {}\n{} {} {}\n", s.line, gutter_, paint_.frame("|"), code, pad,
                        paint_.frame("|"), under);
  }

  std::string mark(const Snippet& s, std::string_view what) const {
    return s.second ? paint_.second(what) : paint_.bad(what);
  }

  static std::size_t token_end(const std::string& line, std::size_t begin) {
    const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    std::size_t end = begin + 1;
    while (end < line.size() && word(line[begin]) && word(line[end])) ++end;
    return end;
  }

  /// Tab stops of 4; `begin` and `end` move along.
  static std::string expand_tabs(const std::string& line, std::size_t& begin, std::size_t& end) {
    std::string out;
    std::size_t b = 0, e = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (i == begin) b = out.size();
      if (line[i] == '\t')
        out.append(4 - out.size() % 4, ' ');
      else
        out += line[i];
      if (i + 1 == end) e = out.size();
    }
    begin = b;
    end = e;
    return out;
  }

  /// Takes deep indentation away, and cuts out what does not fit beside the marked range.
  void crop(std::string& code, std::size_t& begin, std::size_t& end) const {
    const std::size_t first = std::min(code.find_first_not_of(' '), code.size());
    const std::size_t drop = first > 4 ? first - 4 : 0;
    code.erase(0, drop);
    begin -= std::min(begin, drop);
    end -= std::min(end, drop);
    const std::size_t room = std::size_t(std::max(style_.width - int(gutter_) - 4, 20));
    if (code.size() <= room) return;
    if (begin > room / 2) {
      const std::size_t cut = std::min(begin - 8, code.size() - room + 3);
      code = "..." + code.substr(cut);
      begin = begin - cut + 3;
      end = end - cut + 3;
    }
    if (code.size() > room) code = code.substr(0, room - 3) + "...";
    end = std::min(end, code.size());
  }

  Sources& sources_;
  const Style& style_;
  Paint paint_;
  std::size_t gutter_ = 1;
};

std::string who(const emu::Dim3& block, const emu::Dim3& thread) {
  return format("thread {} of block {}", dim_text(thread), dim_text(block));
}

/// The C++ place first, the PTX place after it; the sentence goes to the first that can be quoted.
template <class Place>
void add_places(std::vector<Snippet>& out, const Place& p, const std::string& module, Sources& sources,
                const std::string& label, bool second) {
  const bool cpp = !p.file.empty() && p.line > 0;
  const bool quoted = cpp && sources.line(p.file, p.line).has_value();
  const bool ptx = p.ptx_line > 0 && !module.empty();
  if (cpp) out.push_back({p.file, p.line, p.column, quoted || !ptx ? label : "", second, false});
  if (ptx) out.push_back({module, p.ptx_line, 0, quoted ? "" : label, second, cpp});
}

std::string place_text(const emu::Finding& f) {
  std::string s;
  if (!f.buffer.empty()) {
    s = printable(f.buffer);
    if (f.byte_offset)
      s += format(" {} {} bytes", f.byte_offset < 0 ? '-' : '+',
                  text::grouped(std::uint64_t(std::abs(f.byte_offset))));
    if (f.address) s += format(" ({})", text::hex(f.address));
  } else if (f.address) {
    s = format("address {}", text::hex(f.address));
  }
  if (f.count > 1) s += format("{}met {} times", s.empty() ? "" : ", ", text::grouped(f.count));
  if (f.instructions > 1) s += format("{}at {} instructions", s.empty() ? "" : ", ", f.instructions);
  return s;
}

std::string headline(const LocatedFinding& f, const Style& style, std::string& rest) {
  const emu::Finding& x = f.finding;
  const std::string label = format("{}[{}]", emu::name(x.severity), x.cls);
  const std::size_t end = std::min(x.message.find('\n'), x.message.size());
  std::string first = printable(x.message.substr(0, end));
  if (end < x.message.size())
    for (auto line : text::split(std::string_view(x.message).substr(end + 1), '\n'))
      rest += (rest.empty() ? "" : "\n") + printable(text::trim(line));
  if (first.empty())
    if (const auto* c = emu::find_class(x.cls)) first = c->title;
  const Paint paint(style.color);
  // The first line is shorter by the label, the others start at column 4.
  const std::string padded = std::string(label.size() - 2, '.') + first;
  const std::string lines = wrapped(padded, style.width, 4).substr(label.size() - 2);
  std::string out = paint.severity(x.severity, label) + ": ";
  bool start = true;
  for (auto part : text::split(lines, '\n')) {
    const std::size_t lead = start ? 0 : std::min(part.find_first_not_of(' '), part.size());
    out += (start ? "" : "\n") + std::string(part.substr(0, lead)) + paint.strong(part.substr(lead));
    start = false;
  }
  return out + '\n';
}

std::string one_line(const LocatedFinding& f, Sources& sources, const Style& style) {
  const emu::Finding& x = f.finding;
  const Paint paint(style.color);
  std::string out = paint.severity(x.severity, format("{}[{}]", emu::name(x.severity), x.cls)) + ':';
  if (!x.file.empty()) out += format(" {}:{}", sources.path(x.file), x.line);
  if (x.ptx_line) out += format(" {}:{}", sources.path(f.module), x.ptx_line);
  return out + format(", {}\n", who(x.block, x.thread));
}

}  // namespace

std::string dim_text(const emu::Dim3& d) { return format("({},{},{})", d.x, d.y, d.z); }

std::string wrapped(std::string_view s, int width, int indent) {
  const std::size_t room = std::size_t(std::max(width - indent, 20));
  const std::string lead(std::size_t(indent), ' ');
  std::string out;
  bool first = true;
  for (std::string_view line : text::split(s, '\n')) {
    while (true) {
      out += first ? "" : "\n" + lead;
      first = false;
      if (line.size() <= room) break;
      std::size_t at = line.rfind(' ', room);
      if (at == std::string_view::npos || at == 0 || line.find_first_not_of(' ') > at)
        at = line.find(' ', room);  // a word longer than the line stays whole
      if (at == std::string_view::npos) break;
      out += line.substr(0, at);
      line.remove_prefix(at + 1);
    }
    out += line;
  }
  return out;
}

namespace {
int other_line(const LocatedFinding& f) { return f.finding.other ? f.finding.other->ptx_line : 0; }
}  // namespace

bool fails(const LocatedFinding& f) { return f.finding.severity == emu::Severity::error; }
bool any_fails(const std::vector<LocatedFinding>& all) { return std::any_of(all.begin(), all.end(), fails); }

std::string count_text(const std::vector<LocatedFinding>& all) {
  if (all.empty()) return "no findings";
  std::string out;
  for (const auto severity : {emu::Severity::error, emu::Severity::warning, emu::Severity::note}) {
    const auto n = std::count_if(all.begin(), all.end(),
                                 [&](const LocatedFinding& f) { return f.finding.severity == severity; });
    if (n) out += format("{}{} {}{}", out.empty() ? "" : ", ", n, emu::name(severity), n == 1 ? "" : "s");
  }
  return out;
}

void merge(std::vector<LocatedFinding>& all, const std::vector<LocatedFinding>& more,
           const std::string& policy) {
  for (const LocatedFinding& f : more) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const LocatedFinding& g) {
      return g.finding.cls == f.finding.cls && g.finding.ptx_line == f.finding.ptx_line &&
             g.launch == f.launch && g.module == f.module && other_line(g) == other_line(f) &&
             g.finding.buffer == f.finding.buffer;
    });
    LocatedFinding& to = same == all.end() ? all.emplace_back(f) : *same;
    if (f.finding.severity < to.finding.severity) to.finding = f.finding;  // the worst is shown
    to.policies.push_back(policy);
  }
  std::stable_sort(all.begin(), all.end(), [](const LocatedFinding& a, const LocatedFinding& b) {
    return a.launch != b.launch ? a.launch < b.launch : emu::reported_before(a.finding, b.finding);
  });
}

std::string finding_text(const LocatedFinding& f, Sources& sources, const Style& style) {
  const emu::Finding& x = f.finding;
  std::string rest;
  std::string out = headline(f, style, rest);
  const auto label = [](const std::string& access, const emu::Dim3& block, const emu::Dim3& thread) {
    return access.empty() ? who(block, thread) : format("{} {}", who(block, thread), access);
  };
  std::vector<Snippet> places;
  if (x.ptx_line > 0) add_places(places, x, f.module, sources, label(x.access, x.block, x.thread), false);
  if (x.other && x.other->ptx_line > 0)
    add_places(places, *x.other, f.module, sources, label(x.other->access, x.other->block, x.other->thread),
               true);
  Renderer renderer(sources, style);
  out += renderer.render(places);
  if (!rest.empty()) out += renderer.remark("who waits", rest);
  if (const std::string where = place_text(x); !where.empty()) out += renderer.remark("where", where);
  if (!x.missing_edge.empty()) out += renderer.remark("missing", x.missing_edge);
  if (!f.policies.empty() && f.policies.size() < f.policies_run) {
    std::string under = f.policies[0];
    if (f.policies.size() > 1) under += format(" and {} more", f.policies.size() - 1);
    out += renderer.remark("under", under);
  }
  const emu::FindingClass* cls = emu::find_class(x.cls);
  const std::string hint = !x.hint.empty() ? x.hint : cls ? std::string(cls->hint) : std::string();
  if (!hint.empty()) out += renderer.remark("hint", hint);
  return out;
}

std::string findings_text(const std::vector<LocatedFinding>& all, Sources& sources, const Style& style,
                          std::size_t full) {
  std::string out;
  std::set<std::string> classes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i < full)
      out += finding_text(all[i], sources, style) + '\n';
    else
      out += one_line(all[i], sources, style);
    if (emu::find_class(all[i].finding.cls)) classes.insert(all[i].finding.cls);
  }
  if (all.size() > full) out += '\n';
  if (!classes.empty()) {
    std::vector<std::string> names(classes.begin(), classes.end());
    out += Paint(style.color)
               .dim(format("more about it: cgp explain {}",
                           names.size() == 1 ? names[0] : text::join(names, " | "))) +
           '\n';
  }
  return out;
}

}  // namespace cgp::spec
