// SPDX-License-Identifier: Apache-2.0
// launch_together(). On the emulator work is kept by stream and run in rounds of one kernel for each device.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/runtime/cuda/group.h"
#include "cgp/runtime/emu_device_impl.h"
#include "cgp/runtime/launch_together.h"

namespace cgp::runtime {
namespace {
thread_local EmuGroup* issuing = nullptr;  // between the first and the last line of `issue`
thread_local EmuGroup* running = nullptr;  // while kept work is done
}  // namespace

EmuGroup* EmuGroup::of_issuer() { return issuing; }
EmuGroup* EmuGroup::of_runner() { return running; }

void EmuGroup::keep(Queue& queue, std::function<void()> work, Fail fail) {
  auto it = std::find_if(streams_.begin(), streams_.end(), [&](const Kept& k) { return k.queue == &queue; });
  if (it == streams_.end()) it = streams_.insert(it, Kept{&queue, {}, std::move(fail), {}});
  it->work.push_back(std::move(work));
}

void EmuGroup::hold(EmuLaunch launch) { held_ = std::move(launch); }

void EmuGroup::drop(Queue& queue) {
  if (std::erase_if(streams_, [&](const Kept& k) { return k.queue == &queue; }))
    log("a stream was destroyed inside launch_together(): its work is not done");
}

// Up to the next kernel, which is held.
void EmuGroup::advance(Kept& stream) {
  while (!stream.work.empty() && !stream.next) {
    const auto work = std::move(stream.work.front());
    stream.work.pop_front();
    held_.reset();
    try {
      work();
    } catch (...) {
      stream.fail(std::current_exception());
    }
    stream.next = std::exchange(held_, std::nullopt);
  }
}

void EmuGroup::run() {
  struct Running {
    explicit Running(EmuGroup* g) { running = g; }
    ~Running() { running = nullptr; }
  };
  for (;;) {
    std::vector<EmuLaunch> round;
    {
      const Running scope(this);
      for (Kept& k : streams_) {
        advance(k);
        if (k.next) round.push_back(*k.next);
      }
    }
    if (round.empty()) return;
    try {
      EmuBackend::run_together(round);
    } catch (const Error& e) {
      if (dynamic_cast<const ArgumentError*>(&e) || dynamic_cast<const Unsupported*>(&e)) throw;
      for (const Kept& k : streams_)
        if (k.next) k.fail(std::current_exception());
    }
    for (Kept& k : streams_) k.next.reset();
  }
}

void launch_together(const std::function<void()>& issue) {
  if (issuing) return issue();
  EmuGroup group;
  CudaGroup of_gpus;
  struct Issuing {
    explicit Issuing(EmuGroup* g) { issuing = g; }
    ~Issuing() { issuing = nullptr; }
  };
  {
    const Issuing scope(&group);
    const CudaGroup::Issuing scope_of_gpus(of_gpus);
    issue();
  }
  of_gpus.submit();
  group.run();
}

}  // namespace cgp::runtime
