// SPDX-License-Identifier: Apache-2.0
#include "cgp/serve/worker.h"

#include <utility>

#include "cgp/base/error.h"

namespace cgp::serve {

Worker::Worker(engine::LLM& llm, std::function<void()> wake)
    : llm_(llm), wake_(std::move(wake)), thread_([this] { run(); }) {}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Worker::send(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  changed_.notify_one();
}

void Worker::submit(std::uint64_t job, std::vector<engine::Request> requests) {
  send({job, std::move(requests)});
}
void Worker::compute(std::uint64_t job, std::function<std::string()> task) {
  send({job, {}, std::move(task)});
}
void Worker::cancel(std::uint64_t job) { send({job, {}}); }

std::vector<Update> Worker::updates() {
  const std::lock_guard lock(mutex_);
  return std::exchange(updates_, {});
}

void Worker::begin(Command& command) {
  const auto fail = [](Update& update, const std::exception& e) {
    update.done->reason = engine::FinishReason::error;
    update.done->error = e.what();
  };
  if (command.task) {
    Update& update = active_[--never_];
    update.job = command.job;
    update.done.emplace();
    try {
      update.text = command.task();
    } catch (const std::exception& e) {
      fail(update, e);
    }
  } else if (command.requests.empty()) {
    for (const auto& [id, update] : active_)
      if (update.job == command.job) llm_.scheduler().cancel(id);
  }
  for (std::size_t i = 0; i < command.requests.size(); ++i) {
    engine::Request& r = command.requests[i];
    // Tokens come in step(), when the number is known.
    const auto id = std::make_shared<engine::RequestId>(0);
    r.on_text = [this, id](std::string_view text) {
      active_.at(*id).text += text;
      return true;
    };
    r.on_token = [this, id](const model::Sampled& token) { active_.at(*id).tokens.push_back(token); };
    Update update;
    update.job = command.job, update.choice = int(i);
    try {
      *id = llm_.scheduler().submit(std::move(r));
    } catch (const Error& e) {
      *id = --never_;
      update.done.emplace();
      update.refused = true;
      fail(update, e);
    }
    active_.emplace(*id, std::move(update));
  }
}

/// Hands out what the step gave.
void Worker::publish() {
  std::vector<Update> out;
  for (auto at = active_.begin(); at != active_.end();) {
    Update& pending = at->second;
    if (!pending.done) pending.done = llm_.scheduler().take(at->first);
    const bool ends = pending.done.has_value();
    if (ends || !pending.text.empty() || !pending.tokens.empty()) {
      Update next;
      next.job = pending.job, next.choice = pending.choice;
      out.push_back(std::exchange(pending, std::move(next)));
    }
    at = ends ? active_.erase(at) : std::next(at);
  }
  const engine::Scheduler& s = llm_.scheduler();
  state_.running = s.running(), state_.waiting = s.waiting();
  state_.pages = s.cache().total_pages(), state_.free_pages = s.cache().available_pages();
  if (out.empty()) return;
  bool first;
  {
    const std::lock_guard lock(mutex_);
    first = updates_.empty();
    for (Update& u : out) updates_.push_back(std::move(u));
  }
  if (first) wake_();
}

void Worker::run() {
  for (bool busy = false;;) {
    std::vector<Command> commands;
    {
      std::unique_lock lock(mutex_);
      if (!busy) changed_.wait(lock, [this] { return stop_ || !commands_.empty(); });
      if (stop_) return;
      commands.swap(commands_);
    }
    for (Command& c : commands) begin(c);
    try {
      busy = llm_.scheduler().step();
    } catch (const std::exception& e) {
      // The backend failed: every request that it had ends with the reason.
      busy = false;
      for (auto& [id, update] : active_) {
        if (update.done) continue;
        llm_.scheduler().cancel(id);
        update.done = llm_.scheduler().take(id).value_or(engine::Completion{});
        update.done->reason = engine::FinishReason::error;
        update.done->error = e.what();
      }
    }
    publish();
  }
}

}  // namespace cgp::serve
