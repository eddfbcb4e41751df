// SPDX-License-Identifier: Apache-2.0
// Blocks and clusters: residency, round robin between warps, and what "nothing can run" means.
#include <algorithm>
#include <thread>

#include "cgp/base/text.h"
#include "cgp/emu/machine_impl.h"
#include "cgp/emu/tensor_memory.h"

namespace cgp::emu {

using text::cat;

namespace {
constexpr std::uint64_t kWarpQuantum = 4096;
constexpr std::uint64_t kClusterSlice = 400'000;
constexpr int kSoftRounds = 8;
// Rounds of a cluster that has asynchronous operations in flight, after which one completes although warps
// run: they may be polling for it.
constexpr int kAsyncRounds = 16;
// A cluster polls when more than one instruction in so many is a strong access, an atomic or a nanosleep.
constexpr std::uint64_t kPollShare = 64;
// Slices of a cluster that does not poll, after which other clusters run beside it all the same.
constexpr std::uint64_t kLongSlices = 8;

std::unique_ptr<Warp> make_warp(LaunchState& launch, Worker& worker, Cta& cta, std::uint32_t index) {
  auto w = std::make_unique<Warp>();
  const Dim3 block = launch.launch.block;
  const std::uint32_t threads = std::uint32_t(block.count());
  w->index = index;
  w->cta = &cta;
  w->worker = &worker;
  w->checks = launch.options.checks.bits();
  w->base[1] = reinterpret_cast<std::byte*>(launch.pools[cta.rank].data());
  for (std::uint32_t l = 0; l < kLanes; ++l) {
    const std::uint32_t t = index * kLanes + l;
    if (t < threads) w->live |= lane_bit(int(l));
    w->tid.x[l] = t % block.x;
    w->tid.y[l] = t / block.x % block.y;
    w->tid.z[l] = t / block.x / block.y;
  }
  w->active = w->live;
  Frame* f = push_frame(*w, *launch.entry, nullptr, nullptr);
  Fragment start;
  start.pc = launch.entry->begin;
  start.frame = f;
  start.lanes = w->live;
  w->others.push_back(start);
  return w;
}
}  // namespace

std::unique_ptr<Cta> make_cta(LaunchState& launch, Worker& worker, Cluster& cluster, std::uint32_t rank) {
  auto c = std::make_unique<Cta>();
  const Dim3 shape = cluster.shape;
  const Dim3 in{rank % shape.x, rank / shape.x % shape.y, rank / shape.x / shape.y};
  const Dim3 grid = launch.launch.grid;
  c->cluster = &cluster;
  c->rank = rank;
  c->id = {cluster.id.x * shape.x + in.x, cluster.id.y * shape.y + in.y, cluster.id.z * shape.z + in.z};
  c->linear = c->id.x + std::uint64_t(grid.x) * (c->id.y + std::uint64_t(grid.y) * c->id.z);
  c->shared_bytes = launch.shared_bytes;
  if (!worker.spare_shared.empty()) {
    c->shared = std::move(worker.spare_shared.back());
    worker.spare_shared.pop_back();
  } else {
    c->shared.reset(new std::byte[std::size_t(launch.shared_bytes) + 64]);
  }
  // Junk that no test mistakes for zero: reading it is a bug that must show.
  std::memset(c->shared.get(), 0xcd, launch.shared_bytes);
  if (launch.options.checks.has(Check::uninit)) c->shared_init.assign(launch.shared_bytes / 64 + 2, 0);
  c->threads = std::uint32_t(launch.launch.block.count());
  for (std::uint32_t i = 0; i < launch.warps_per_cta; ++i)
    c->warps.push_back(make_warp(launch, worker, *c, i));
  return c;
}

namespace {
std::unique_ptr<Cluster> make_cluster(LaunchState& launch, Worker& worker, std::uint64_t linear) {
  auto c = std::make_unique<Cluster>();
  const Dim3 g = launch.cluster_grid;
  c->shape = launch.launch.cluster;
  c->id = {std::uint32_t(linear % g.x), std::uint32_t(linear / g.x % g.y), std::uint32_t(linear / g.x / g.y)};
  c->worker = &worker;
  c->async.policy = launch.options.async;
  c->async.random = launch.options.seed * 0x9e3779b97f4a7c15ull + linear + 1;
  for (std::uint32_t r = 0; r < c->shape.count(); ++r) c->ctas.push_back(make_cta(launch, worker, *c, r));
  return c;
}

void retire_finished(Cta& cta, Worker& worker) {
  if (cta.done || cta.exited < cta.threads) return;
  cta.done = true;
  check_tensor_memory_at_exit(cta);
  for (auto& w : cta.warps) {
    w->frames.clear();
    w->spare_frames.clear();
    w->local.reset();
  }
  (void)worker;
}

bool finished(const Cluster& c) {
  return std::all_of(c.ctas.begin(), c.ctas.end(), [](const auto& cta) { return cta->done; });
}

}  // namespace

// Resumes every wait that may be given up. False if there is none.
bool give_up_soft_waits(Cluster& c) {
  bool any = false;
  for (auto& cta : c.ctas)
    for (auto& w : cta->warps)
      for (Fragment& f : w->others)
        if (f.state == State::wait && f.soft) {
          f.state = State::runnable;
          any = true;
        }
  return any;
}

namespace {
enum class Outcome { done, more, polls };

Outcome run_cluster(Cluster& c, LaunchState& launch, Worker& worker) {
  std::uint64_t left = kClusterSlice;
  int rounds = 0;
  while (left > 0 && !launch.stop.load(std::memory_order_relaxed)) {
    std::uint64_t progress = 0;
    const std::uint64_t polls = worker.polls;
    for (auto& cta : c.ctas) {
      if (cta->done) continue;
      for (auto& w : cta->warps) {
        if (!w->live) continue;
        progress += run_warp(*w, kWarpQuantum);
        if (w->steps > launch.options.step_limit) {
          report_deadlock(c, cat("a warp has executed ", w->steps, " instructions (Options::step_limit)"));
        }
      }
      retire_finished(*cta, worker);
    }
    if (finished(c)) return Outcome::done;
    if (progress) {
      c.soft_rounds = 0;
      left -= std::min(left, progress);
      if (c.async.pending() && ++rounds >= kAsyncRounds) {
        rounds = 0;
        c.async.advance();
      } else if ((worker.polls - polls) * kPollShare > progress) {
        ++c.slices;
        return Outcome::polls;
      }
      continue;
    }
    if (c.async.advance()) continue;
    bool any = false;  // an exit or an arrival in the pass may have released somebody
    for (auto& cta : c.ctas)
      for (auto& w : cta->warps) any = any || runnable(*w);
    if (any) continue;
    if (++c.soft_rounds <= kSoftRounds && give_up_soft_waits(c)) continue;
    report_deadlock(c, "nothing can run any more");
  }
  ++c.slices;
  return Outcome::more;
}

void work(LaunchState& launch, Worker& worker) {
  auto& resident = worker.resident;
  auto admit = [&] {
    const std::uint64_t in = launch.resident.fetch_add(1);
    if (in >= launch.resident_limit) {
      launch.resident.fetch_sub(1);
      return false;
    }
    const std::uint64_t next = launch.next_cluster.fetch_add(1);
    if (next >= launch.clusters) {
      launch.resident.fetch_sub(1);
      return false;
    }
    resident.push_back(make_cluster(launch, worker, next));
    note_blocks(worker, SpinBoard::moving);
    return true;
  };
  while (!launch.stop.load(std::memory_order_relaxed)) {
    if (resident.empty() && !admit()) {
      note_blocks(worker, SpinBoard::without_blocks);
      if (launch.next_cluster.load() >= launch.clusters) return;
      std::this_thread::yield();
      continue;
    }
    auto cluster = std::move(resident.front());
    resident.pop_front();
    const Outcome outcome = run_cluster(*cluster, launch, worker);
    if (outcome == Outcome::done) {
      for (auto& cta : cluster->ctas) worker.spare_shared.push_back(std::move(cta->shared));
      launch.resident.fetch_sub(1);
      launch.finished.fetch_add(1);
      note_blocks(worker, SpinBoard::moving);
      continue;
    }
    resident.push_back(std::move(cluster));
    // It may wait for a block that has not started: let another one in before it runs again.
    if (outcome == Outcome::polls || resident.back()->slices > kLongSlices) admit();
    check_spinning(worker);
  }
}
}  // namespace

void run_launch(LaunchState& launch, Worker& worker) {
  try {
    work(launch, worker);
  } catch (const StopLaunch&) {
    launch.stop = true;
  } catch (...) {
    std::lock_guard lock(launch.mutex);
    if (!launch.fault) launch.fault = std::current_exception();
    launch.stop = true;
  }
}

// ---------------------------------------------------------------- asynchronous operations
void AsyncQueue::submit(std::unique_ptr<AsyncOp> op) {
  if (policy == AsyncPolicy::eager) {
    op->read();
    op->complete();
    return;
  }
  queue_.push_back(std::move(op));
}

void AsyncQueue::force(const std::function<bool(const AsyncOp&)>& covers) {
  for (std::size_t i = 0; i < queue_.size();) {
    if (!covers(*queue_[i])) {
      ++i;
      continue;
    }
    auto op = std::move(queue_[i]);
    queue_.erase(queue_.begin() + std::ptrdiff_t(i));
    if (!op->was_read) op->read();
    op->complete();
  }
}

bool AsyncQueue::advance() {
  if (queue_.empty()) return false;
  // late: the newest first, the order that surprises code which relies on another operation's completion
  std::size_t pick = queue_.size() - 1;
  if (policy == AsyncPolicy::random) {
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    pick = std::size_t((random >> 33) % queue_.size());
  }
  auto op = std::move(queue_[pick]);
  queue_.erase(queue_.begin() + std::ptrdiff_t(pick));
  if (!op->was_read) op->read();
  op->complete();
  return true;
}

}  // namespace cgp::emu
