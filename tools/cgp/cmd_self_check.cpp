// SPDX-License-Identifier: Apache-2.0
// cgp self-check: the claims of the catalogue that can be refuted here, each with what decides it and its
// verdict.
#include <fmt/core.h>

#include <map>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/selfcheck/claim.h"
#include "tools/cgp/profiler_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using fmt::format;
using nlohmann::ordered_json;

bool wanted(const std::string& id, const std::vector<std::string>& rows) {
  if (rows.empty()) return true;
  for (const auto& r : rows)
    if (id.rfind(r.rfind("FALS-", 0) == 0 ? r : "FALS-" + r, 0) == 0) return true;
  return false;
}

std::string color_of(selfcheck::Outcome o) {
  return o == selfcheck::Outcome::pass ? "\x1b[32m" : o == selfcheck::Outcome::skip ? "\x1b[33m" : "\x1b[31m";
}

std::string line_of(const selfcheck::Verdict& v, bool color) {
  std::string out = format("{}{:<6}{}  {}  {}\n{:<8}by: {}  ({:.1f} s)\n", color ? color_of(v.outcome) : "",
                           selfcheck::name(v.outcome), color ? "\x1b[0m" : "", v.claim->id, v.claim->text, "",
                           v.claim->oracle, v.seconds);
  if (!v.why.empty()) out += format("{:<8}{}\n", "", v.why);
  return out;
}

ordered_json json_of(const selfcheck::Verdict& v, bool listed_only) {
  ordered_json j = {{"id", v.claim->id},
                    {"claim", v.claim->text},
                    {"oracle", v.claim->oracle},
                    {"needs_gpu", v.claim->gpu},
                    {"slow", v.claim->slow}};
  if (listed_only) return j;
  j["verdict"] = selfcheck::name(v.outcome);
  j["why"] = v.why;
  j["seconds"] = v.seconds;
  std::string seen = v.seen.dump();
  if (seen.size() < 600) j["seen"] = v.seen;
  return j;
}

}  // namespace

int self_check(const Context& context, const SelfCheckOptions& o) {
  std::vector<const selfcheck::Claim*> chosen;
  for (const auto& c : selfcheck::claims())
    if (wanted(c.id, o.rows) && (!o.quick || !c.slow)) chosen.push_back(&c);
  ordered_json j = {{"schema", "cgp.self_check/1"},
                    {"gpu", selfcheck::has_gpu()},
                    {"rows", ordered_json::array()},
                    {"undecided", ordered_json::array()}};
  std::map<selfcheck::Outcome, int> count;
  for (const auto* c : chosen) {
    selfcheck::Verdict v;
    v.claim = c;
    if (!o.list) {
      Progress progress;
      progress.step(text::cat(c->id, ": ", c->text));
      v = selfcheck::decide(*c);
    }
    ++count[v.outcome];
    j["rows"].push_back(json_of(v, o.list));
    if (context.json) continue;
    write_out(o.list ? format("{}  {}\n{:<8}by: {}{}\n", c->id, c->text, "", c->oracle,
                              c->gpu ? "; needs a GPU" : "")
                     : line_of(v, context.color_out));
  }
  int open = 0;
  for (const auto& u : selfcheck::undecided()) {
    if (!wanted(u.id, o.rows)) continue;
    ++open;
    j["undecided"].push_back({{"id", u.id}, {"why", u.why}});
    if (!context.json) write_out(format("open    {}  {}\n", u.id, u.why));
  }
  if (chosen.empty() && open == 0)
    throw ArgumentError(
        ErrorText{"no row has such an id", {}, text::join(o.rows, " "), "cgp self-check --list names them"});
  using selfcheck::Outcome;
  if (context.json)
    write_out(j.dump(2) + "\n");
  else if (!o.list)
    write_out(format(
        "\n{} hold, {} refuted, {} with an oracle that cannot fail, {} skipped, {} not decided by this "
        "program\n",
        count[Outcome::pass], count[Outcome::fail], count[Outcome::hollow], count[Outcome::skip], open));
  return !o.list && (count[Outcome::fail] || count[Outcome::hollow]) ? kCheckFailed : kClean;
}

}  // namespace cgp::cli
