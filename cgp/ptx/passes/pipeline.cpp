// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>

#include "cgp/base/text.h"
#include "cgp/ptx/passes/passes_impl.h"

namespace cgp::ptx {
namespace {

struct Row {
  Pass pass;
  std::string_view name, summary;
  std::uint64_t (*run)(passes::Unit&);
};

constexpr Row kRows[] = {
    {Pass::split, "split", "independent values that share a register get registers of their own",
     passes::split},
    {Pass::fold, "fold", "constants: operands, results, neutral elements, offsets, branches", passes::fold},
    {Pass::copy, "copy", "reads of a copy read the original", passes::copy_propagation},
    {Pass::cse, "cse", "what was computed before is not computed again", passes::common_subexpressions},
    {Pass::strength, "strength", "mul, div, rem by powers of two", passes::strength},
    {Pass::mad, "mad", "integer mul + add of one use", passes::multiply_add},
    {Pass::fma, "fma", "floating mul + add of one use; changes results", passes::fuse},
    {Pass::convert, "convert", "short branches become selp and guards", passes::convert_branches},
    {Pass::unroll, "unroll", "loops with a small constant number of trips", passes::unroll},
    {Pass::hoist, "hoist", "loop-invariant instructions move in front of the loop", passes::hoist},
    {Pass::address, "address", "multiples of a loop counter become additions", passes::incremental_addresses},
    {Pass::vector, "vector", "neighbouring aligned loads and stores become .v2 and .v4", passes::vectorise},
    {Pass::dead, "dead", "results that nothing reads, unreachable blocks", passes::dead_code},
};
static_assert(std::size(kRows) == std::size_t(Pass::kCount));

const Row& row(Pass p) { return kRows[std::size_t(p)]; }

}  // namespace

std::string_view name(Pass p) { return p < Pass::kCount ? row(p).name : "?"; }
std::string_view summary(Pass p) { return p < Pass::kCount ? row(p).summary : "?"; }

bool PassOptions::any() const {
  return std::any_of(on.begin(), on.end(), [](bool b) { return b; });
}

PassOptions PassOptions::all() {
  PassOptions o;
  o.on.fill(true);
  o.set(Pass::fma, false);
  return o;
}

PassOptions parse_passes(std::string_view text) {
  PassOptions o;
  for (std::string_view word : text::split(text, ',')) {
    word = text::trim(word);
    if (word.empty()) continue;
    if (word == "all") {
      const bool fma = o.has(Pass::fma);
      o.on = PassOptions::all().on;
      o.set(Pass::fma, fma);
      continue;
    }
    if (word == "none") {
      o.on.fill(false);
      continue;
    }
    const bool off = word[0] == '-';
    const std::string_view wanted = off ? word.substr(1) : word;
    const auto* found =
        std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.name == wanted; });
    if (found == std::end(kRows)) {
      std::vector<std::string> names{"all", "none"};
      for (const Row& r : kRows) names.emplace_back(r.name);
      const auto near = text::closest(wanted, names, 1);
      throw ArgumentError(ErrorText{text::cat("unknown pass \"", wanted, "\""),
                                    {},
                                    text::cat("passes: ", text::join(names, ", ")),
                                    near.empty() ? "" : text::cat("did you mean ", near[0], "?")});
    }
    o.set(found->pass, !off);
  }
  return o;
}

std::string name(const PassOptions& o) {
  std::vector<std::string> names;
  for (const Row& r : kRows)
    if (o.has(r.pass)) names.emplace_back(r.name);
  return names.empty() ? "none" : text::join(names, ",");
}

std::uint64_t PassStatistics::changes() const {
  std::uint64_t n = 0;
  for (const One& o : of) n += o.changes;
  return n;
}

void PassStatistics::add(const PassStatistics& other) {
  for (std::size_t p = 0; p < of.size(); ++p) {
    of[p].changes += other.of[p].changes;
    of[p].instructions += other.of[p].instructions;
    of[p].seconds += other.of[p].seconds;
  }
  before += other.before;
  after += other.after;
  rounds = std::max(rounds, other.rounds);
}

std::string describe(const PassStatistics& s) {
  std::string out = text::cat(s.before, " instructions before, ", s.after, " after, ", s.rounds,
                              s.rounds == 1 ? " round\n" : " rounds\n");
  for (const Row& r : kRows) {
    const auto& one = s[r.pass];
    if (one.changes == 0) continue;
    out += text::cat("  ", r.name, std::string(10 - r.name.size(), ' '), one.changes,
                     one.changes == 1 ? " change, " : " changes, ", one.instructions > 0 ? "+" : "",
                     one.instructions, " instructions\n");
  }
  return out;
}

PassStatistics optimise(Module& m, Function& f, const PassOptions& options) {
  PassStatistics s;
  s.before = s.after = f.body.size();
  if (!f.has_body || f.body.empty() || !options.any()) return s;
  passes::spread_locs(f);
  passes::Unit unit(m, f, options);
  for (bool again = true; again && s.rounds < options.rounds;) {
    again = false;
    ++s.rounds;
    for (const Row& r : kRows) {
      if (!options.has(r.pass)) continue;
      const auto start = std::chrono::steady_clock::now();
      const std::size_t before = f.body.size();
      const std::uint64_t n = r.run(unit);
      auto& one = s[r.pass];
      one.changes += n;
      one.instructions += std::int64_t(f.body.size()) - std::int64_t(before);
      one.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      again |= n != 0;
    }
  }
  s.after = f.body.size();
  return s;
}

PassStatistics optimise(Module& m, const PassOptions& options) {
  PassStatistics s;
  for (Function& f : m.functions)
    if (f.has_body) s.add(optimise(m, f, options));
  return s;
}

}  // namespace cgp::ptx
