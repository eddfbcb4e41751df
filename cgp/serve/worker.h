// SPDX-License-Identifier: Apache-2.0
#pragma once
// The thread that runs the model: the engine's scheduler with a queue before and after it.
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cgp/engine/llm.h"

namespace cgp::serve {

/// What a step has given a choice of a job.
struct Update {
  std::uint64_t job = 0;
  int choice = 0;
  std::string text;
  std::vector<model::Sampled> tokens;
  std::optional<engine::Completion> done;  ///< the last update of the choice
  bool refused = false;                    ///< the engine did not take the request; done->error says why
};

class Worker {
 public:
  /// `llm` must outlive it, and its scheduler is the worker's alone. `wake` is called on the worker's thread once there are
  /// updates where there were none.
  Worker(engine::LLM& llm, std::function<void()> wake);
  /// What runs is dropped.
  ~Worker();

  void submit(std::uint64_t job, std::vector<engine::Request> requests);
  /// Runs `task` between two steps; its text is that of the job's only update, what it throws the error.
  void compute(std::uint64_t job, std::function<std::string()> task);
  /// Choices that still run end with FinishReason::cancelled.
  void cancel(std::uint64_t job);
  /// All since the last call.
  std::vector<Update> updates();

  struct State {
    std::atomic<std::int64_t> running{0}, waiting{0}, pages{0}, free_pages{0};
  };
  const State& state() const { return state_; }

 private:
  struct Command {
    std::uint64_t job = 0;
    std::vector<engine::Request> requests;  ///< none, and no task: cancel
    std::function<std::string()> task = {};
  };
  void send(Command command);
  void run();
  void begin(Command& command);
  void publish();

  engine::LLM& llm_;
  std::function<void()> wake_;
  State state_;
  // Of the thread alone: what is not handed out yet, by the scheduler's number; negative: it never came that far.
  std::unordered_map<engine::RequestId, Update> active_;
  engine::RequestId never_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> commands_;
  std::vector<Update> updates_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cgp::serve
