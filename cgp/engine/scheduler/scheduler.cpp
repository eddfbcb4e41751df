// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/scheduler/scheduler.h"

#include <algorithm>
#include <future>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::engine {

using std::int32_t;
using std::int64_t;
using text::cat;
using Clock = std::chrono::steady_clock;

struct Scheduler::Job {
  Job(RequestId number, Request r, const model::Tokenizer* tokenizer)
      : id(number),
        request(std::move(r)),
        sampler(request.sampling),
        stops(request.stops),
        known(request.prompt) {
    if (tokenizer) decoder.emplace(*tokenizer);
    for (Token t : known) sampler.accept(t);
    result.prompt_tokens = int64_t(known.size());
  }

  RequestId id;
  Request request;
  model::Sampler sampler;
  model::StopStrings stops;
  std::optional<model::StreamDecoder> decoder;
  std::vector<Token> known;  ///< the prompt and what was generated
  std::vector<Token> drafted;
  SequenceId sequence = 0;  ///< 0: it has no pages
  Completion result;
  std::optional<Clock::time_point> started, first_token;
  int64_t rows = 0;  ///< in the step that is planned
  int64_t draft_length = 2, failed_drafts = 0, skip_drafts = 0;
};

std::string_view name(FinishReason reason) {
  constexpr std::string_view names[] = {"none", "stop", "length", "cancelled", "error"};
  return names[int(reason)];
}

Scheduler::Scheduler(Backend& backend, const model::Tokenizer* tokenizer, SchedulerOptions options)
    : backend_(backend),
      tokenizer_(tokenizer),
      options_(options),
      cache_(backend.options().pages, backend.options().page_tokens) {
  if (options_.chunk < 0 || options_.prompt_rows < 0 || options_.lookup_tokens < 0 ||
      options_.draft_tokens < 0)
    throw ArgumentError(ErrorText{"rows of a step are not negative",
                                  {},
                                  cat("chunk ", options_.chunk, ", lookup_tokens ", options_.lookup_tokens,
                                      ", draft_tokens ", options_.draft_tokens),
                                  {}});
  if (options.draft) drafter_.emplace(*options.draft);
  if (options_.chunk == 0) options_.chunk = backend.options().max_rows;
  if (options_.prompt_rows == 0) options_.prompt_rows = options_.chunk;
}
Scheduler::~Scheduler() = default;

RequestId Scheduler::submit(Request r) {
  const auto refuse = [](const char* rule, std::string why) {
    throw ArgumentError(ErrorText{rule, {}, std::move(why), {}});
  };
  const int64_t context = backend_.program().context, prompt = int64_t(r.prompt.size());
  const int64_t words = backend_.program().values[std::size_t(backend_.program().logits)].width;
  if (prompt == 0) refuse("a prompt has at least one token", "it is empty");
  if (r.max_tokens < 1) refuse("at least one token is generated", cat("max_tokens is ", r.max_tokens));
  if (prompt >= context) refuse("a prompt leaves room in the context", cat(prompt, " tokens of ", context));
  for (Token t : r.prompt)
    if (t < 0 || t >= words) refuse("a token is one of the vocabulary", cat("token ", t, " of ", words));
  // The last token that is generated is not stored.
  const int64_t most = std::min(prompt + r.max_tokens - 1, context);
  if (cache_.pages_for(most) > cache_.total_pages())
    refuse("the cache holds a request",
           cat(most, " tokens, the cache has ", cache_.total_pages(), " pages of ", cache_.page_tokens()));
  if (!r.stops.empty() && !tokenizer_) refuse("stop strings need a tokenizer", "there is none");
  if (r.sampling.top_logprobs > 0) r.logprobs = true;
  r.sampling.logprobs = r.logprobs;
  waiting_.push_back(std::make_unique<Job>(next_, std::move(r), tokenizer_));
  return next_++;
}

void Scheduler::cancel(RequestId id) {
  for (Jobs* jobs : {&waiting_, &running_})
    for (auto job = jobs->begin(); job != jobs->end(); ++job)
      if ((*job)->id == id) {
        finish(**job, FinishReason::cancelled);
        jobs->erase(job);
        return;
      }
}

std::optional<Completion> Scheduler::take(RequestId id) {
  const auto found = ended_.find(id);
  if (found == ended_.end()) return std::nullopt;
  Completion out = std::move(found->second);
  ended_.erase(found);
  return out;
}

/// Without anything that needs all logits.
bool Scheduler::is_plain(const Request& r) const {
  const model::SamplingOptions& s = r.sampling;
  return s.temperature == 0 && !r.logprobs && !r.mask && s.logit_bias.empty() &&
         (s.penalty_window == 0 ||
          (s.repetition_penalty == 1 && s.frequency_penalty == 0 && s.presence_penalty == 0));
}

void Scheduler::release(Job& job) {
  if (drafter_) drafter_->forget(job.id);
  if (job.sequence) cache_.close(job.sequence);
  job.sequence = 0;
}

void Scheduler::finish(Job& job, FinishReason reason) {
  const auto now = Clock::now();
  if (job.started && !job.first_token) job.first_token = now;
  if (job.first_token) {
    job.result.prefill_seconds = std::chrono::duration<double>(*job.first_token - *job.started).count();
    job.result.decode_seconds = std::chrono::duration<double>(now - *job.first_token).count();
  }
  release(job);
  job.result.reason = reason;
  job.result.stop = job.stops.found();
  ended_.emplace(job.id, std::move(job.result));
}

/// The request that was admitted last waits again, first in line, with what it has generated.
void Scheduler::preempt_last() {
  Job& job = *running_.back();
  release(job);
  job.drafted.clear();
  ++job.result.preemptions;
  waiting_.splice(waiting_.begin(), running_, std::prev(running_.end()));
}

/// Adds up to `wanted` of the job's tokens to the step, as many as have pages. false: none has.
bool Scheduler::plan_rows(Job& job, int64_t wanted) {
  const int64_t cached = cache_.tokens(job.sequence),
                room = backend_.options().max_rows - int64_t(tokens_.size());
  const int64_t all = int64_t(job.known.size() + job.drafted.size()) - cached;
  int64_t rows = std::min({wanted, room, all});
  const auto copy = [this](int32_t from, int32_t to) { backend_.copy_page(from, to); };
  const int64_t page = cache_.page_tokens();
  if (rows > 0 && !cache_.reserve(job.sequence, rows, copy)) {
    // As many whole pages as there are, and what is left of the last one.
    rows = std::min(rows, (cache_.pages_for(cached) + cache_.available_pages()) * page - cached);
    if (rows <= 0 || !cache_.reserve(job.sequence, rows, copy)) return false;
  }
  if (rows <= 0) return false;
  job.rows = rows;
  const auto first = int32_t(tokens_.size());
  for (int64_t i = cached; i < cached + rows; ++i) {
    const auto at = std::size_t(i);
    tokens_.push_back(at < job.known.size() ? job.known[at] : job.drafted[at - job.known.size()]);
    if (at + 1 >= job.known.size()) outputs_.push_back(int32_t(tokens_.size()) - 1);
  }
  sequences_.push_back({first, int32_t(rows), int32_t(cached), {}});
  jobs_.push_back(&job);
  return true;
}

/// Begins the first of the waiting requests. false: it must wait.
bool Scheduler::admit() {
  if (waiting_.empty() ||
      int64_t(running_.size()) >= std::min(backend_.options().max_sequences, backend_.options().max_outputs))
    return false;
  Job& job = *waiting_.front();
  if (cache_.available_pages() <
      std::min<int64_t>(cache_.pages_for(int64_t(job.known.size())), cache_.total_pages())) {
    // Pages of its own prefix may be among those that are in use: only an empty machine must take it.
    if (!running_.empty()) return false;
  }
  job.sequence = cache_.open(job.known);
  if (job.result.preemptions == 0) job.result.reused_tokens = cache_.tokens(job.sequence);
  if (!job.started) job.started = Clock::now();
  running_.splice(running_.end(), waiting_, waiting_.begin());
  return true;
}

/// Tokens that are worth a try, at most `most`.
int64_t Scheduler::draft_room(Job& job, int64_t most) const {
  return std::min({most, job.draft_length, job.request.max_tokens - int64_t(job.result.ids.size()) - 1,
                   backend_.program().context - int64_t(job.known.size())});
}

/// Tokens that followed the last three earlier in the text. false: there are none.
bool Scheduler::look_up(Job& job) const {
  const auto& known = job.known;
  const auto n = int64_t(known.size()), room = draft_room(job, options_.lookup_tokens);
  constexpr int64_t kMatched = 3;
  for (int64_t at = n - 1; at >= kMatched && room > 0; --at) {
    if (!std::equal(known.end() - kMatched, known.end(), known.begin() + at - kMatched)) continue;
    job.drafted.assign(known.begin() + at, known.begin() + std::min(n, at + room));
    return true;
  }
  return false;
}

/// Tokens that may follow, of every sequence that generates.
void Scheduler::draft() {
  std::vector<Drafter::Draft> drafts;
  std::vector<Job*> writers;
  for (auto& job : running_) {
    job->drafted.clear();
    if (int64_t(job->known.size()) - cache_.tokens(job->sequence) != 1 || job->result.ids.empty()) continue;
    if (job->skip_drafts > 0) {
      --job->skip_drafts;
      continue;
    }
    if (look_up(*job) || !drafter_) continue;
    if (const int64_t room = draft_room(*job, options_.draft_tokens); room > 0) {
      drafts.push_back({job->id, job->known, room, job->sampler, is_plain(job->request)});
      writers.push_back(job.get());
    }
  }
  if (!drafts.empty()) drafter_->write(drafts);
  for (std::size_t i = 0; i < drafts.size(); ++i) writers[i]->drafted = std::move(drafts[i].tokens);
}

void Scheduler::plan() {
  const BackendOptions& o = backend_.options();
  draft();
  for (bool again = true; again;) {
    again = false;
    jobs_.clear(), sequences_.clear(), tokens_.clear(), outputs_.clear();
    // Sequences that generate go first, each with its newest token.
    int64_t outputs_left = o.max_outputs - std::min(o.max_sequences, o.max_outputs);
    for (auto& job : running_) {
      if (int64_t(job->known.size()) - cache_.tokens(job->sequence) != 1) continue;
      if (int64_t(job->drafted.size()) > outputs_left) job->drafted.clear();
      outputs_left -= int64_t(job->drafted.size());
      if (plan_rows(*job, 1 + int64_t(job->drafted.size()))) continue;
      if (int64_t(tokens_.size()) >= o.max_rows) break;
      preempt_last();
      again = true;
      break;
    }
    if (again) continue;
    int64_t chunk = std::min(tokens_.empty() ? options_.chunk : options_.prompt_rows,
                             o.max_rows - int64_t(tokens_.size()));
    const auto plan_prompt = [&](Job& job) {
      const int64_t before = int64_t(tokens_.size());
      const bool planned = chunk > 0 && plan_rows(job, chunk);
      chunk -= int64_t(tokens_.size()) - before;
      return planned;
    };
    for (auto& job : running_)
      if (int64_t(job->known.size()) - cache_.tokens(job->sequence) > 1) plan_prompt(*job);
    while (chunk > 0 && admit()) plan_prompt(*running_.back());
    if (tokens_.empty() && !running_.empty()) {
      preempt_last();
      again = true;
    }
  }
  // Pages may have moved while others were reserved: they are read when the plan is made.
  for (std::size_t i = 0; i < jobs_.size(); ++i) sequences_[i].pages = cache_.pages(jobs_[i]->sequence);
}

/// false: the request has ended.
bool Scheduler::accept(Job& job, const model::Sampled& sampled) {
  if (!job.first_token) job.first_token = Clock::now();
  const Token token = sampled.token;
  job.known.push_back(token);
  job.result.ids.push_back(token);
  if (job.request.logprobs) job.result.tokens.push_back(sampled);
  if (job.request.on_token) job.request.on_token(sampled);
  if (job.request.mask) job.request.mask->accept(token);
  const bool ends = tokenizer_ && !job.request.ignore_end && tokenizer_->ends_generation(token);
  const bool full = int64_t(job.result.ids.size()) >= job.request.max_tokens ||
                    int64_t(job.known.size()) > backend_.program().context;
  bool wanted = true;
  if (job.decoder) {
    std::string text = job.stops.push(ends ? "" : job.decoder->push(token));
    if ((ends || full) && job.stops.found().empty())
      text += job.stops.push(job.decoder->finish()) + job.stops.finish();
    job.result.text += text;
    if (!text.empty() && job.request.on_text) wanted = job.request.on_text(text);
  }
  if (!wanted)
    finish(job, FinishReason::cancelled);
  else if (ends || !job.stops.found().empty())
    finish(job, FinishReason::stop);
  else if (full)
    finish(job, FinishReason::length);
  else
    return true;
  return false;
}

/// What the step gives its job `index`, whose outputs begin at `first`. A job that has ended leaves running_.
void Scheduler::take_outputs(std::size_t index, std::size_t first) {
  Job& job = *jobs_[index];
  const auto words = std::size_t(backend_.program().values[std::size_t(backend_.program().logits)].width);
  const int64_t cached = cache_.tokens(job.sequence);
  cache_.append(job.sequence,
                std::span(tokens_).subspan(std::size_t(sequences_[index].first_row), std::size_t(job.rows)));
  const int64_t end = cached + job.rows;
  if (end < int64_t(job.known.size())) return;  // a part of a prompt
  const int64_t drafted = end - int64_t(job.known.size());
  job.result.drafted_tokens += drafted;
  bool runs = true;
  int64_t agreed = 0;
  try {
    for (int64_t i = 0; runs; ++i) {
      const std::size_t output = first + std::size_t(i);
      model::Sampled sampled;
      if (is_plain(job.request)) {
        sampled.token = greedy_[output];
        if (sampled.token < 0) throw ArgumentError(ErrorText{"logits are numbers", {}, "one is NaN", {}});
        job.sampler.accept(sampled.token);
      } else {
        sampled = job.sampler.sample(
            std::span(logits_).subspan(output * words, words),
            job.request.mask ? job.request.mask->allowed() : std::span<const std::uint32_t>());
      }
      const bool agrees = i < drafted && sampled.token == job.drafted[std::size_t(i)];
      if (agrees) ++agreed, ++job.result.accepted_tokens;
      runs = accept(job, sampled);
      if (!agrees) break;
    }
  } catch (const Error& e) {
    job.result.error = e.what();
    finish(job, FinishReason::error);
    runs = false;
  }
  if (runs && drafted > 0) {
    // Rows cost time: drafts become longer while all of them is kept, and after useless ones more and more steps go without.
    job.draft_length = agreed == drafted ? 2 * job.draft_length : agreed + 1;
    job.failed_drafts = agreed > 0 ? 0 : job.failed_drafts + 1;
    job.skip_drafts = agreed > 0 ? 0 : int64_t(1) << std::min<int64_t>(job.failed_drafts, 8);
    cache_.truncate(job.sequence, int64_t(job.known.size()) - 1);
  }
  job.drafted.clear();
  if (!runs) std::erase_if(running_, [&](const auto& other) { return other.get() == &job; });
}

bool Scheduler::step() {
  plan();
  if (tokens_.empty()) return false;
  const auto needs_mask = [this](const Job* job) {
    return job->request.mask && cache_.tokens(job->sequence) + job->rows >= int64_t(job->known.size());
  };
  const bool all_plain =
      std::all_of(jobs_.begin(), jobs_.end(), [&](Job* j) { return is_plain(j->request); });
  const auto words = std::size_t(backend_.program().values[std::size_t(backend_.program().logits)].width);
  greedy_.resize(outputs_.size());
  logits_.resize(all_plain ? 0 : outputs_.size() * words);
  // Masks of grammars are made while the backend works. What one throws is thrown again where it is used.
  std::future<void> masks;
  if (std::any_of(jobs_.begin(), jobs_.end(), needs_mask))
    masks = std::async(std::launch::async, [&] {
      for (Job* job : jobs_)
        if (needs_mask(job)) try {
            job->request.mask->allowed();
          } catch (const Error&) {
          }
    });
  backend_.run({tokens_, sequences_, outputs_}, {logits_, greedy_});
  if (masks.valid()) masks.get();
  // Outputs of each job, before any has ended.
  std::vector<std::size_t> first(jobs_.size());
  for (std::size_t i = 0, output = 0; i < jobs_.size(); ++i) {
    first[i] = output;
    while (output < outputs_.size() && outputs_[output] < sequences_[i].first_row + sequences_[i].rows)
      ++output;
  }
  for (std::size_t i = 0; i < jobs_.size(); ++i) take_outputs(i, first[i]);
  return true;
}

}  // namespace cgp::engine
