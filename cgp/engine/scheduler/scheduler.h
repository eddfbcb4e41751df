// SPDX-License-Identifier: Apache-2.0
#pragma once
// Continuous batching (Yu et al.: Orca, 2022) over a paged cache (Kwon et al.: PagedAttention, 2023): each step takes one token of every
// sequence that generates and fills the rest of its rows with parts of prompts. Where pages run out, the request that came
// last gives up its own and is computed again later: nothing is lost. Not for several threads at once.
#include <chrono>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "cgp/engine/backend.h"
#include "cgp/engine/cache/page_cache.h"
#include "cgp/engine/scheduler/drafter.h"
#include "cgp/engine/scheduler/request.h"
#include "cgp/model/sampling/stop_strings.h"
#include "cgp/model/tokenizer/tokenizer.h"

namespace cgp::engine {

using RequestId = std::int64_t;

struct SchedulerOptions {
  std::int64_t chunk = 0;  ///< rows of prompts in a step, at most; 0: as many as the backend takes
  /// The same of a step that generates, too: what sequences wait for their next token. 0: chunk.
  std::int64_t prompt_rows = 0;
  /// Prompt lookup (Saxena, 2023): up to so many tokens that followed the last ones earlier in the text are tried at once, and
  /// kept as far as they are what the sampler draws: results do not change. 0: off.
  std::int64_t lookup_tokens = 0;
  /// Runs a smaller model of the same vocabulary (drafter.h), which must outlive the scheduler: where the lookup finds nothing, up
  /// to draft_tokens of its tokens are tried, and kept in the same way. Null: off.
  Backend* draft = nullptr;
  std::int64_t draft_tokens = 4;
};

class Scheduler {
 public:
  /// Both must outlive it. Without a tokenizer there is no text, and no token ends generation.
  Scheduler(Backend& backend, const model::Tokenizer* tokenizer, SchedulerOptions options = {});
  ~Scheduler();

  /// Throws ArgumentError that names what is wrong: an empty prompt, one that leaves no room in the context, a request that the
  /// whole cache cannot hold, a token that is none, bad sampling options.
  RequestId submit(Request request);
  /// At once; nothing happens where it has ended or never was.
  void cancel(RequestId id);
  /// One step of the backend. false: there is nothing to do.
  bool step();
  /// Moves out what has ended; empty: the request is still at work, or there is none of this number.
  std::optional<Completion> take(RequestId id);

  std::int64_t waiting() const { return std::int64_t(waiting_.size()); }
  std::int64_t running() const { return std::int64_t(running_.size()); }
  const PageCache& cache() const { return cache_; }

 private:
  struct Job;
  using Jobs = std::list<std::unique_ptr<Job>>;
  void plan();
  bool plan_rows(Job& job, std::int64_t wanted);
  bool admit();
  void preempt_last();
  void draft();
  std::int64_t draft_room(Job& job, std::int64_t most) const;
  bool look_up(Job& job) const;
  void take_outputs(std::size_t index, std::size_t first_output);
  bool accept(Job& job, const model::Sampled& sampled);
  void finish(Job& job, FinishReason reason);
  void release(Job& job);
  bool is_plain(const Request& request) const;

  Backend& backend_;
  const model::Tokenizer* tokenizer_;
  SchedulerOptions options_;
  PageCache cache_;
  std::optional<Drafter> drafter_;
  Jobs waiting_, running_;  ///< running_: by admission
  std::unordered_map<RequestId, Completion> ended_;
  RequestId next_ = 1;

  // Of the step that is planned
  std::vector<Token> tokens_;
  std::vector<BatchSequence> sequences_;
  std::vector<Job*> jobs_;  ///< of sequences_
  std::vector<std::int32_t> outputs_, greedy_;
  std::vector<float> logits_;
};

}  // namespace cgp::engine
