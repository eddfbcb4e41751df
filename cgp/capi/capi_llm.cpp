// SPDX-License-Identifier: Apache-2.0
// Language models.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/capi/handles.h"
#include "cgp/engine/chat.h"

struct cgp_llm {
  struct Request {
    std::shared_ptr<std::string> text;  // that came since it was last asked for
    int logprob_columns;
  };
  cgp::engine::LLM llm;
  std::map<cgp::engine::RequestId, Request> requests{};  // that were not taken

  // What the last call returned
  std::vector<std::int32_t> ids{};
  std::string text{}, backend{};
  cgp::engine::Completion completion{};
  std::vector<cgp_llm_logprob> logprobs{};
};

namespace cgp::capi {
namespace {

using engine::LoadOptions;
using text::cat;

LoadOptions load_options(const cgp_llm_options* given) {
  const cgp_llm_options o = known(given, {}, "cgp_llm_options");
  LoadOptions l;
  if (o.context < 0 || o.sequences < 0 || o.chunk < 0 || o.lookup_tokens < 0 || o.threads < 0 ||
      o.draft_tokens < 0 || o.tensor_parallel < 0)
    throw ArgumentError(
        "llm_load: context, sequences, chunk, lookup_tokens, threads, draft_tokens and "
        "tensor_parallel must not be negative");
  if (o.draft_tokens && !o.draft)
    throw ArgumentError(cat("llm_load: draft_tokens ", o.draft_tokens, " without a draft"));
  if (o.device) l.device = o.device;
  l.context = o.context, l.lookup_tokens = o.lookup_tokens, l.threads = o.threads;
  if (o.sequences) l.sequences = o.sequences;
  if (o.chunk) l.chunk = o.chunk;
  if (o.draft) l.draft = o.draft;
  if (o.draft_tokens) l.draft_tokens = o.draft_tokens;
  l.batch_invariant = o.batch_invariant != 0;
  if (o.tensor_parallel) l.tensor_parallel = o.tensor_parallel;
  switch (o.cache_dtype) {
    case 0:
    case CGP_F16:
      l.cache = engine::CacheType::f16;
      break;
    case CGP_BF16:
      l.cache = engine::CacheType::bf16;
      break;
    case CGP_F32:
      l.cache = engine::CacheType::f32;
      break;
    default:
      throw ArgumentError(cat("llm_load: cache_dtype ", o.cache_dtype, " is none of f16, bf16 and f32"));
  }
  switch (o.activations) {
    case 0:
      break;
    case 32:
      l.activations = engine::ActivationType::f32;
      break;
    case 16:
      l.activations = engine::ActivationType::int16;
      break;
    case 8:
      l.activations = engine::ActivationType::int8;
      break;
    default:
      throw ArgumentError(
          cat("llm_load: activations have 0 (chosen), 8, 16 or 32 bits, not ", o.activations));
  }
  return l;
}

/// 0 stands for 1: no effect.
double or_one(double v) { return v == 0 ? 1 : v; }

engine::Request request_of(const cgp_llm_request* given) {
  engine::Request r;
  if (!given) return r;
  const cgp_llm_request o = known(given, {}, "cgp_llm_request");
  if (o.max_tokens) r.max_tokens = o.max_tokens;
  auto& s = r.sampling;
  s.temperature = o.temperature, s.top_k = o.top_k, s.top_p = or_one(o.top_p), s.min_p = o.min_p;
  s.typical_p = or_one(o.typical_p), s.repetition_penalty = or_one(o.repetition_penalty);
  s.frequency_penalty = o.frequency_penalty, s.presence_penalty = o.presence_penalty;
  s.penalty_window = o.penalty_window, s.seed = o.seed, s.top_logprobs = o.top_logprobs;
  r.logprobs = o.logprobs || o.top_logprobs, r.ignore_end = o.ignore_end != 0;
  if (o.stop_count) require(o.stops, "stops");
  for (std::uint64_t i = 0; i < o.stop_count; ++i) {
    require(o.stops[i], "a stop string");
    r.stops.emplace_back(o.stops[i]);
  }
  if (o.bias_count) require(o.bias_ids, "bias_ids"), require(o.bias, "bias");
  for (std::uint64_t i = 0; i < o.bias_count; ++i) s.logit_bias.emplace_back(o.bias_ids[i], o.bias[i]);
  return r;
}

cgp_llm::Request& known_request(cgp_llm& m, std::int64_t id) {
  const auto at = m.requests.find(id);
  if (at == m.requests.end()) throw ArgumentError(cat("there is no request ", id, ", or it was taken"));
  return at->second;
}

/// The members that the caller knows.
template <class T>
void give(T* out, const T& value) {
  const std::size_t size = std::min(out->size, sizeof value);
  std::memcpy(out, &value, size);
  out->size = size;
}

void give_ids(cgp_llm& m, std::vector<std::int32_t> ids, const std::int32_t** out, std::uint64_t* count) {
  m.ids = std::move(ids);
  *out = m.ids.data(), *count = m.ids.size();
}

void set_completion(cgp_llm& m, int columns, cgp_llm_completion& out) {
  const engine::Completion& c = m.completion;
  out.ids = c.ids.data(), out.count = c.ids.size(), out.text = c.text.data(), out.text_bytes = c.text.size();
  out.finish_reason = engine::name(c.reason).data();
  out.stop = c.stop.c_str(), out.error = c.error.c_str();
  out.prompt_tokens = c.prompt_tokens, out.reused_tokens = c.reused_tokens;
  out.drafted_tokens = c.drafted_tokens, out.accepted_tokens = c.accepted_tokens;
  out.prefill_seconds = c.prefill_seconds, out.decode_seconds = c.decode_seconds;
  m.logprobs.assign(c.tokens.size() * std::size_t(columns), {-1, 0});
  for (std::size_t i = 0; i < c.tokens.size() && columns; ++i) {
    auto* row = m.logprobs.data() + i * std::size_t(columns);
    row[0] = {c.tokens[i].token, c.tokens[i].logprob};
    for (std::size_t t = 0; t < c.tokens[i].top.size() && int(t) + 1 < columns; ++t)
      row[t + 1] = {c.tokens[i].top[t].first, c.tokens[i].top[t].second};
  }
  out.logprobs = m.logprobs.data(), out.logprob_columns = std::uint64_t(columns);
}

}  // namespace
}  // namespace cgp::capi

using namespace cgp;
using namespace cgp::capi;

cgp_status cgp_llm_load(const char* path, const cgp_llm_options* options, cgp_llm** out) {
  return guarded([&] {
    require(path, "path"), require(out, "out");
    *out = std::make_unique<cgp_llm>(cgp_llm{engine::LLM::load(path, load_options(options))}).release();
  });
}
void cgp_llm_free(cgp_llm* llm) { delete llm; }

cgp_status cgp_llm_get_info(cgp_llm* llm, cgp_llm_info* out) {
  return guarded([&] {
    require(llm, "llm"), require(out, "out");
    const auto& program = llm->llm.backend().program();
    cgp_llm_info i{};
    llm->backend = llm->llm.backend().name();
    llm->text = llm->llm.file().find_string("general.name").value_or("");
    i.architecture = program.architecture.c_str(), i.name = llm->text.c_str(),
    i.backend = llm->backend.c_str();
    i.context = program.context;
    i.vocabulary = program.values[std::size_t(program.logits)].width;
    i.memory_bytes = std::uint64_t(llm->llm.backend().memory().total());
    i.has_chat_template = !llm->llm.tokenizer().chat_template().empty();
    give(out, i);
  });
}

cgp_status cgp_llm_encode(cgp_llm* llm, const char* text, std::uint64_t bytes, std::int32_t parse_special,
                          const std::int32_t** ids, std::uint64_t* count) {
  return guarded([&] {
    require(llm, "llm"), require(ids, "ids"), require(count, "count");
    if (bytes) require(text, "text");
    give_ids(*llm, llm->llm.encode({text, std::size_t(bytes)}, parse_special != 0), ids, count);
  });
}

cgp_status cgp_llm_decode(cgp_llm* llm, const std::int32_t* ids, std::uint64_t count,
                          std::int32_t skip_special, const char** text, std::uint64_t* bytes) {
  return guarded([&] {
    require(llm, "llm"), require(text, "text"), require(bytes, "bytes");
    if (count) require(ids, "ids");
    llm->text = llm->llm.tokenizer().decode({ids, std::size_t(count)}, skip_special != 0);
    *text = llm->text.data(), *bytes = llm->text.size();
  });
}

cgp_status cgp_llm_chat_prompt(cgp_llm* llm, const char* const* roles, const char* const* contents,
                               std::uint64_t messages, const std::int32_t** ids, std::uint64_t* count) {
  return guarded([&] {
    require(llm, "llm"), require(ids, "ids"), require(count, "count");
    std::vector<engine::Message> all;
    for (std::uint64_t i = 0; i < messages; ++i) {
      require(roles, "roles"), require(contents, "contents");
      require(roles[i], "a role"), require(contents[i], "a message");
      all.push_back({roles[i], contents[i]});
    }
    give_ids(*llm, engine::chat_prompt(llm->llm.tokenizer(), all), ids, count);
  });
}

cgp_status cgp_llm_submit(cgp_llm* llm, const std::int32_t* prompt, std::uint64_t count,
                          const cgp_llm_request* request, std::int64_t* id) {
  return guarded([&] {
    require(llm, "llm"), require(id, "id");
    if (count) require(prompt, "prompt");
    engine::Request r = request_of(request);
    r.prompt.assign(prompt, prompt + count);
    cgp_llm::Request known{std::make_shared<std::string>(),
                           r.logprobs ? 1 + std::max(0, r.sampling.top_logprobs) : 0};
    r.on_text = [text = known.text](std::string_view more) {
      *text += more;
      return true;
    };
    *id = llm->llm.scheduler().submit(std::move(r));
    llm->requests.emplace(*id, std::move(known));
  });
}

cgp_status cgp_llm_step(cgp_llm* llm, std::int32_t* busy) {
  return guarded([&] {
    require(llm, "llm"), require(busy, "busy");
    *busy = llm->llm.scheduler().step();
  });
}

cgp_status cgp_llm_cancel(cgp_llm* llm, std::int64_t id) {
  return guarded([&] {
    require(llm, "llm");
    known_request(*llm, id);
    llm->llm.scheduler().cancel(id);
  });
}

cgp_status cgp_llm_text(cgp_llm* llm, std::int64_t id, const char** text, std::uint64_t* bytes) {
  return guarded([&] {
    require(llm, "llm"), require(text, "text"), require(bytes, "bytes");
    llm->text = std::exchange(*known_request(*llm, id).text, {});
    *text = llm->text.data(), *bytes = llm->text.size();
  });
}

cgp_status cgp_llm_take(cgp_llm* llm, std::int64_t id, cgp_llm_completion* out) {
  return guarded([&] {
    require(llm, "llm"), require(out, "out");
    const int columns = known_request(*llm, id).logprob_columns;
    cgp_llm_completion c{};
    if (auto ended = llm->llm.scheduler().take(id)) {
      llm->completion = std::move(*ended);
      set_completion(*llm, columns, c);
      llm->requests.erase(id);
    }
    give(out, c);
  });
}

cgp_status cgp_llm_perplexity(cgp_llm* llm, const char* text, std::uint64_t bytes, std::int64_t chunk,
                              double* value, double* error) {
  return guarded([&] {
    require(llm, "llm"), require(value, "value"), require(error, "error");
    if (bytes) require(text, "text");
    const auto& scheduler = llm->llm.scheduler();
    if (scheduler.waiting() || scheduler.running())
      throw ArgumentError(
          "llm_perplexity: requests are at work; run cgp_llm_step() until it is not busy, or cancel them");
    const auto p = llm->llm.perplexity({text, std::size_t(bytes)}, chunk);
    *value = p.value, *error = p.error;
  });
}
