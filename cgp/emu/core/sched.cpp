// SPDX-License-Identifier: Apache-2.0
// Blocks and clusters: residency, round robin between warps, and what "nothing can run" means.
#include <algorithm>
#include <thread>

#include "cgp/base/text.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/machine_impl.h"
#include "cgp/emu/race/race.h"
#include "cgp/emu/tensor/tensor_memory.h"

namespace cgp::emu {

using text::cat;

namespace {
constexpr std::uint64_t kWarpQuantum = 4096;
constexpr std::uint64_t kClusterSlice = 400'000;
constexpr int kSoftRounds = 8;
// Passes of a cluster that has asynchronous operations in flight, after which one completes although warps
// run: they may be polling for it. More of them when little in the pass looks like polling.
constexpr int kAsyncRounds = 16, kBusyAsyncRounds = 256;
// What a pass of nothing but waits with a time limit takes.
constexpr std::uint64_t kSoftTime = 20'000;
// Instructions of a warp before the next gets a turn, when warps run as far as they can.
constexpr std::uint64_t kLongQuantum = 65'536, kPollQuantum = 1024;
// The same for a cluster that polled when it last ran: what it waits for comes from others.
constexpr std::uint64_t kFairPollQuantum = 512;
// Under AsyncPolicy::random: passes until an operation reads, and from there until it completes.
constexpr std::uint64_t kReadDelay = 4, kCompleteDelay = 12;
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
  w->base[1] = reinterpret_cast<std::byte*>(launch.devices[cta.cluster->device].pools[cta.rank].data());
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
  if (launch.reserved_bytes) {
    std::memset(c->shared.get() + launch.reserved_offset, 0, launch.reserved_bytes);
    if (!c->shared_init.empty())
      for (std::uint32_t at = 0; at < launch.reserved_bytes; at += 64)
        c->shared_init[(launch.reserved_offset + at) / 64] = ~std::uint64_t(0);
  }
  c->threads = std::uint32_t(launch.launch.block.count());
  for (std::uint32_t i = 0; i < launch.warps_per_cta; ++i)
    c->warps.push_back(make_warp(launch, worker, *c, i));
  return c;
}

namespace {
std::unique_ptr<Cluster> make_cluster(LaunchState& launch, Worker& worker, std::uint32_t device,
                                      std::uint64_t linear) {
  auto c = std::make_unique<Cluster>();
  c->device = device;
  const Dim3 g = launch.cluster_grid;
  c->shape = launch.launch.cluster;
  c->id = {std::uint32_t(linear % g.x), std::uint32_t(linear / g.x % g.y), std::uint32_t(linear / g.x / g.y)};
  c->worker = &worker;
  const std::uint64_t number = device * launch.clusters + linear;
  c->async.policy = launch.options.async;
  c->async.random = launch.options.seed * 0x9e3779b97f4a7c15ull + number + 1;
  c->random = launch.options.schedule_seed * 0x9e3779b97f4a7c15ull + number + 1;
  for (std::uint32_t r = 0; r < c->shape.count(); ++r) c->ctas.push_back(make_cta(launch, worker, *c, r));
  if (launch.race) race::attach(*c);
  return c;
}

void retire_finished(Cta& cta, Counters& totals) {
  if (cta.done || cta.exited < cta.threads) return;
  cta.done = true;
  std::uint64_t steps = 0;
  for (const auto& w : cta.warps) steps += w->steps;
  ++totals.blocks, totals.block_steps += steps;
  totals.busiest_block_steps = std::max(totals.busiest_block_steps, steps);
  check_remote_accesses(cta);
  check_bulk_sources_at_exit(cta);
  race::check_copies_at_exit(cta);
  check_tensor_memory_at_exit(cta);
  for (auto& w : cta.warps) {
    w->frames.clear();
    w->spare_frames.clear();
    w->local.reset();
  }
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

std::uint64_t next_random(std::uint64_t& state) {
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return state >> 33;
}

// The warps of one pass in the order of the schedule.
void order_warps(Cluster& c, SchedulePolicy schedule, std::vector<Warp*>& order) {
  order.clear();
  for (auto& cta : c.ctas)
    if (!cta->done)
      for (auto& w : cta->warps)
        if (w->live) order.push_back(w.get());
  if (schedule == SchedulePolicy::adversarial) std::reverse(order.begin(), order.end());
  if (schedule == SchedulePolicy::random)
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(c) % i]);
}

std::uint64_t quantum(Cluster& c, SchedulePolicy schedule, bool polling) {
  if (schedule == SchedulePolicy::random) return 1ull << draw(c) % 13;
  if (schedule == SchedulePolicy::adversarial) return polling ? kPollQuantum : kLongQuantum;
  return c.polled ? kFairPollQuantum : kWarpQuantum;
}

// Values that came from nowhere may keep a loop from ending: such a program is not followed for long, and
// less so when invalid accesses, each of which takes its time, go on and on.
constexpr std::uint64_t kDerailedSteps = std::uint64_t(1) << 22, kSomeSteps = std::uint64_t(1) << 16,
                        kManyAccesses = std::uint64_t(1) << 16;

bool derailed(LaunchState& launch, std::uint64_t steps) {
  std::lock_guard lock(launch.mutex);
  std::uint64_t invalid = 0;
  for (const Finding& f : launch.findings)
    for (const std::string_view family : {"oob.", "uninit.", "lifetime.", "misaligned"})
      if (f.cls.compare(0, family.size(), family) == 0) invalid += f.count;
  return invalid > (steps > kDerailedSteps ? 0 : kManyAccesses);
}

void limit_steps(Cluster& c, LaunchState& launch, const Warp& w) {
  if (w.steps > launch.options.step_limit)
    report_deadlock(c, cat("a warp has executed ", w.steps, " instructions (Options::step_limit)"));
  if (w.steps > kSomeSteps && derailed(launch, w.steps))
    report_deadlock(c,
                    cat("a warp has executed ", w.steps, " instructions of a program with invalid accesses"));
}

Outcome run_cluster(Cluster& c, LaunchState& launch, Worker& worker) {
  std::uint64_t left = kClusterSlice;
  const SchedulePolicy schedule = launch.options.schedule;
  std::vector<Warp*> order;
  bool polling = false;
  worker.enter(c.device);
  while (left > 0 && !launch.stop.load(std::memory_order_relaxed)) {
    std::uint64_t progress = 0;
    const std::uint64_t polls = worker.polls;
    order_warps(c, schedule, order);
    for (Warp* w : order) {
      if (!w->live) continue;
      progress += run_warp(*w, quantum(c, schedule, polling));
      limit_steps(c, launch, *w);
    }
    for (auto& cta : c.ctas) retire_finished(*cta, worker.totals);
    c.async.tick();
    if (finished(c)) {
      while (c.async.advance()) {
      }
      return Outcome::done;
    }
    if (progress) {
      c.soft_rounds = 0;
      left -= std::min(left, progress);
      polling = (worker.polls - polls) * kPollShare > progress;
      if (c.async.pending() && ++c.async_rounds >= (polling ? kAsyncRounds : kBusyAsyncRounds)) {
        c.async_rounds = 0;
        c.async.advance();
      } else if (polling) {
        ++c.slices;
        c.polled = true;
        return Outcome::polls;
      }
      c.polled = false;
      continue;
    }
    if (c.async.advance()) continue;
    bool any = false;  // an exit or an arrival in the pass may have released somebody
    for (auto& cta : c.ctas)
      for (auto& w : cta->warps) any = any || runnable(*w);
    if (any) continue;
    if (++c.soft_rounds <= kSoftRounds && give_up_soft_waits(c)) {
      launch.skipped.fetch_add(kSoftTime, std::memory_order_relaxed);
      continue;
    }
    report_deadlock(c, "nothing can run any more");
  }
  ++c.slices;
  return Outcome::more;
}

void work(LaunchState& launch, Worker& worker) {
  auto& resident = worker.resident;
  auto admit_of = [&](std::uint32_t device) {
    DevicePart& part = launch.devices[device];
    const std::uint64_t in = part.resident.fetch_add(1);
    if (in >= launch.resident_limit) {
      part.resident.fetch_sub(1);
      return false;
    }
    const std::uint64_t next = part.next_cluster.fetch_add(1);
    if (next >= launch.clusters) {
      part.resident.fetch_sub(1);
      return false;
    }
    resident.push_back(make_cluster(launch, worker, device, next));
    note_blocks(worker, SpinBoard::moving);
    return true;
  };
  auto admit = [&] {  // devices take turns
    const auto count = std::uint32_t(launch.devices.size());
    for (std::uint32_t tried = 0; tried < count; ++tried) {
      const std::uint32_t device = worker.next_device;
      worker.next_device = (device + 1) % count;
      if (admit_of(device)) return true;
    }
    return false;
  };
  auto all_started = [&] {
    return std::all_of(launch.devices.begin(), launch.devices.end(),
                       [&](const DevicePart& d) { return d.next_cluster.load() >= launch.clusters; });
  };
  while (!launch.stop.load(std::memory_order_relaxed)) {
    if (resident.empty() && !admit()) {
      note_blocks(worker, SpinBoard::without_blocks);
      if (all_started()) return;
      std::this_thread::yield();
      continue;
    }
    if (seen_stuck(worker)) {
      if (!admit()) std::this_thread::yield();
      check_spinning(worker);
      continue;
    }
    if (launch.options.schedule == SchedulePolicy::random) {
      std::swap(resident.front(), resident[next_random(worker.random) % resident.size()]);
    } else if (launch.options.schedule == SchedulePolicy::adversarial) {  // the last one first
      resident.push_front(std::move(resident.back()));
      resident.pop_back();
    }
    auto cluster = std::move(resident.front());
    resident.pop_front();
    const Outcome outcome = run_cluster(*cluster, launch, worker);
    if (outcome == Outcome::done) {
      for (auto& cta : cluster->ctas) worker.spare_shared.push_back(std::move(cta->shared));
      launch.devices[cluster->device].resident.fetch_sub(1);
      note_blocks(worker, SpinBoard::moving);
      continue;
    }
    const bool long_running = cluster->slices > kLongSlices;
    if (launch.options.schedule == SchedulePolicy::adversarial)
      resident.push_front(std::move(cluster));
    else
      resident.push_back(std::move(cluster));
    // It may wait for a block that has not started: let another one in before it runs again.
    if (outcome == Outcome::polls || long_running) admit();
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

std::uint64_t draw(Cluster& c) { return next_random(c.random); }

// ---------------------------------------------------------------- asynchronous operations
namespace {
void read_once(AsyncOp& op) {
  if (!op.was_read) op.read();
  op.was_read = true;
}
}  // namespace

std::uint64_t AsyncQueue::draw() { return next_random(random); }

void AsyncQueue::submit(std::unique_ptr<AsyncOp> op) {
  if (policy == AsyncPolicy::eager) {
    read_once(*op);
    op->complete();
    return;
  }
  op->poison();
  if (policy == AsyncPolicy::random) {
    op->read_at = now_ + draw() % kReadDelay;
    op->complete_at = op->read_at + draw() % kCompleteDelay;
  }
  queue_.push_back(std::move(op));
  if (policy == AsyncPolicy::random) tick_due();
}

std::unique_ptr<AsyncOp> AsyncQueue::take(std::size_t index) {
  auto op = std::move(queue_[index]);
  queue_.erase(queue_.begin() + std::ptrdiff_t(index));
  return op;
}

// late: the newest first, the order that surprises code which relies on the completion of another operation.
void AsyncQueue::force(const std::function<bool(const AsyncOp&)>& covers) {
  std::vector<AsyncOp*> wanted;
  for (const auto& op : queue_)
    if (covers(*op)) wanted.push_back(op.get());
  if (policy == AsyncPolicy::late) std::reverse(wanted.begin(), wanted.end());
  for (AsyncOp* op : wanted) {  // one may complete others
    std::size_t i = 0;
    while (i < queue_.size() && queue_[i].get() != op) ++i;
    if (i == queue_.size()) continue;
    const auto mine = take(i);
    read_once(*mine);
    mine->complete();
  }
}

void AsyncQueue::force_read(const std::function<bool(const AsyncOp&)>& covers) {
  for (const auto& op : queue_)
    if (covers(*op)) read_once(*op);
}

bool AsyncQueue::advance() {
  if (queue_.empty()) return false;
  const std::size_t pick =
      policy == AsyncPolicy::random ? std::size_t(draw() % queue_.size()) : queue_.size() - 1;
  const auto op = take(pick);
  read_once(*op);
  op->complete();
  return true;
}

void AsyncQueue::tick() {
  if (policy != AsyncPolicy::random) return;
  ++now_;
  tick_due();
}

void AsyncQueue::tick_due() {
  for (std::size_t i = 0; i < queue_.size();) {
    AsyncOp& op = *queue_[i];
    if (op.read_at <= now_) read_once(op);
    if (op.complete_at > now_) {
      ++i;
      continue;
    }
    const auto mine = take(i);
    mine->complete();
    i = 0;  // it may have completed others
  }
}

}  // namespace cgp::emu
