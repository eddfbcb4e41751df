// SPDX-License-Identifier: Apache-2.0
// cgp generate: a text continued by a model.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/load_model.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

namespace {

using nlohmann::ordered_json;

ordered_json rate_of(std::int64_t tokens, double seconds) {
  return {{"tokens", tokens},
          {"seconds", seconds},
          {"tokens_per_second", seconds > 0 ? double(tokens) / seconds : 0.0}};
}

ordered_json profile_of(const engine::Backend& backend) {
  ordered_json out = ordered_json::array();
  double all = 0;
  for (const engine::RoleTime& t : backend.profile()) all += t.seconds;
  for (int r = 0; r < engine::kRoles; ++r) {
    const engine::RoleTime t = backend.profile()[std::size_t(r)];
    if (t.count)
      out.push_back({{"operation", engine::name(engine::Role(r))},
                     {"count", t.count},
                     {"microseconds", t.seconds / double(t.count) * 1e6},
                     {"share", t.seconds / all}});
  }
  return out;
}

ordered_json logprob_of(const model::Sampled& s, const model::Tokenizer& tokenizer) {
  ordered_json top = ordered_json::array();
  for (const auto& [token, logprob] : s.top) top.push_back({{"id", token}, {"logprob", logprob}});
  return {{"id", s.token},
          {"text", model::unicode::valid(tokenizer.piece(s.token))},
          {"logprob", s.logprob},
          {"top", top}};
}

}  // namespace

int generate(const Context& context, const GenerateOptions& o) {
  engine::LLM llm = load_model(context, o.model);
  const std::string prompt = o.prompt.starts_with('@') ? read_file(o.prompt.substr(1)) : o.prompt;
  engine::Request request;
  request.prompt = llm.encode(prompt, o.parse_special);
  request.max_tokens = o.max_tokens;
  request.sampling = o.sampling;
  request.stops = o.stops;
  request.ignore_end = o.ignore_end;
  request.logprobs = o.logprobs;
  if (!o.grammar.empty())
    request.mask =
        engine::grammar_mask(llm.compile(model::Grammar::parse_gbnf(read_file(o.grammar), o.grammar)));
  if (!o.json_schema.empty())
    request.mask = engine::grammar_mask(
        llm.compile(model::Grammar::from_json_schema(read_file(o.json_schema), o.json_schema)));
  if (!context.json)
    request.on_text = [](std::string_view text) {
      write_out(text);
      return true;
    };
  const std::vector<engine::Token> prompt_ids = request.prompt;
  llm.backend().set_profile(o.profile);
  const engine::Completion done = llm.generate(std::move(request));
  // The first token comes with the prompt's last step.
  const auto decoded = std::int64_t(done.ids.size()) - 1;
  const ordered_json prefill = rate_of(done.prompt_tokens - done.reused_tokens, done.prefill_seconds),
                     decode = rate_of(decoded, done.decode_seconds);
  if (context.json) {
    ordered_json j = {{"schema", "cgp.generate/1"},
                      {"file", o.model.model},
                      {"backend", llm.backend().name()},
                      {"prompt_ids", prompt_ids},
                      {"ids", done.ids},
                      {"text", done.text},
                      {"finish_reason", engine::name(done.reason)},
                      {"prefill", prefill},
                      {"decode", decode},
                      {"load_seconds", llm.load_seconds()},
                      {"memory_bytes", llm.backend().memory().total()}};
    if (o.model.lookup || !o.model.draft.empty())
      j["lookup"] = {{"drafted", done.drafted_tokens}, {"accepted", done.accepted_tokens}};
    if (o.logprobs)
      for (const model::Sampled& s : done.tokens) j["logprobs"].push_back(logprob_of(s, llm.tokenizer()));
    if (o.profile) j["profile"] = profile_of(llm.backend());
    write_out(spec::dumped(j, 2) + "\n");
    return kClean;
  }
  std::string out =
      fmt::format("\n\n{} tokens of prompt at {:.1f}/s, {} generated at {:.1f}/s, {}\n",
                  prefill["tokens"].get<std::int64_t>(), prefill["tokens_per_second"].get<double>(),
                  done.ids.size(), decode["tokens_per_second"].get<double>(), llm.backend().name());
  if (o.profile)
    for (const auto& row : profile_of(llm.backend()))
      out += fmt::format("{:20} {:8} {:10.1f} us {:6.1f} %\n", row["operation"].get<std::string>(),
                         row["count"].get<std::int64_t>(), row["microseconds"].get<double>(),
                         100 * row["share"].get<double>());
  write_out(out);
  return kClean;
}

}  // namespace cgp::cli
