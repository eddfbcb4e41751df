// SPDX-License-Identifier: Apache-2.0
// Mistakes between devices, planted in an exchange of three rounds: each is named by its class under one of two schedules at
// least, and the exchange without one is silent under both.
#include <gtest/gtest.h>

#include "cgp/base/error.h"
#include "cgp/dsl/kernel.h"
#include "cgp/emu/emu.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/launch/kernel_args.h"
#include "cgp/runtime/launch_together.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kRanks = 2, kThreads = 64, kRounds = 3;

enum class Bug {
  none,
  release_of_the_gpu,
  acquire_of_the_gpu,
  relaxed_signal,
  relaxed_poll,
  plain_signal,
  no_barrier_before_the_signal,
  no_barrier_behind_the_wait,
  no_wait,
  wait_by_some_threads,
  signal_to_one_rank,
  wait_for_the_own_signal,
  signal_to_itself,
  same_number_each_round,
  one_slot,
  slot_of_the_next_round,
  fence_of_the_gpu,
  fence_of_the_block,
  fence_behind_the_signal,
  address_of_no_rank,
  all_into_one_slot,
  a_rank_leaves,
  read_only_loads,
  counter_of_the_gpu,
  signal_before_the_data,
  one_signal_too_few,
  no_peer,
  freed,
  kCount
};

template <template <class> class V>
struct ExchangeArgs {
  V<In<u64>> table;  ///< data of each rank, then signals of each
  V<Out<u32>> out;
  V<u32> rank;
};

// Each rank writes its words of the round, tells the others, waits for theirs and adds up all ranks' words.
void exchange_kernel(Kernel& k, Bug bug, ExchangeArgs<DeviceArg> p) {
  k.block(int(kThreads));
  const auto is = [&](Bug b) { return b == bug; };
  const auto data = [&](const Val<u32>& rank) { return Ptr<global, u32>(p.table.ld(rank)); };
  const auto signals = [&](const Val<u32>& rank) { return Ptr<global, u32>(p.table.ld(rank + kRanks)); };
  if (is(Bug::a_rank_leaves)) k.exit_if(p.rank == 1u);
  const auto own_signals = signals(p.rank);
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t call = is(Bug::same_number_each_round) ? 1 : round + 1;
    const std::uint32_t slot = is(Bug::one_slot) ? 0 : round % 2 * kThreads;
    const auto put = [&] {
      const auto to = is(Bug::all_into_one_slot) ? data(Val<u32>(0u)) : data(p.rank);
      to.st(k.tid() + slot, p.rank * 1000u + k.tid() + round);
    };
    const auto tell = [&] {
      k.if_(k.tid() < (is(Bug::signal_to_one_rank) ? 1u : kRanks), [&] {
        const auto to = is(Bug::signal_to_itself) ? own_signals : signals(k.tid());
        if (is(Bug::fence_of_the_gpu)) fence<acq_rel, gpu>(k);
        if (is(Bug::fence_of_the_block)) fence<acq_rel, cta>(k);
        if (is(Bug::release_of_the_gpu))
          to.st<release, gpu>(p.rank, call);
        else if (is(Bug::plain_signal))
          to.st(p.rank, call);
        else if (is(Bug::counter_of_the_gpu))
          red<release, gpu, op::add>(to, p.rank, Val<u32>(1u));
        else if (is(Bug::relaxed_signal) || is(Bug::fence_of_the_gpu) || is(Bug::fence_of_the_block) ||
                 is(Bug::fence_behind_the_signal))
          to.st<relaxed, sys>(p.rank, call);
        else
          to.st<release, sys>(p.rank, call);
        if (is(Bug::fence_behind_the_signal)) fence<acq_rel, sys>(k);
      });
    };
    const auto wait = [&](const Val<u32>& from) {
      const auto poll = [&] {
        if (is(Bug::acquire_of_the_gpu)) return own_signals.ld<acquire, gpu>(from);
        if (is(Bug::relaxed_poll)) return own_signals.ld<relaxed, sys>(from);
        return own_signals.ld<acquire, sys>(from);
      };
      const std::uint32_t wanted = call + (is(Bug::one_signal_too_few) ? 1 : 0);
      (void)k.while_(
          poll(), [&](const Val<u32>& seen) { return seen < wanted; },
          [&](const Val<u32>&) { return poll(); });
    };
    if (is(Bug::signal_before_the_data)) tell();
    put();
    if (!is(Bug::no_barrier_before_the_signal)) k.sync();
    if (!is(Bug::signal_before_the_data)) tell();
    if (is(Bug::wait_by_some_threads))
      k.if_(k.tid() < 32u, [&] {
        for (std::uint32_t r = 0; r < kRanks; ++r) wait(Val<u32>(r));
      });
    else if (!is(Bug::no_wait))
      k.if_(k.tid() < (is(Bug::relaxed_poll) ? kThreads : kRanks), [&] {
        if (is(Bug::relaxed_poll))  // by all threads: no barrier stands in for the fence
          for (std::uint32_t r = 0; r < kRanks; ++r) wait(Val<u32>(r));
        else
          wait(is(Bug::wait_for_the_own_signal) ? p.rank : k.tid());
      });
    if (!is(Bug::no_barrier_behind_the_wait) && !is(Bug::wait_by_some_threads) && !is(Bug::relaxed_poll))
      k.sync();
    std::vector<Val<u32>> sum{Val<u32>(0u)};
    for (std::uint32_t r = 0; r < kRanks; ++r) {
      const std::uint32_t at = is(Bug::address_of_no_rank) ? r + 2 * kRanks : r;
      const std::uint32_t from = is(Bug::slot_of_the_next_round) ? (round + 1) % 2 * kThreads : slot;
      const auto words = data(Val<u32>(at));
      sum.push_back(sum.back() +
                    (is(Bug::read_only_loads) ? words.ld<nc>(k.tid() + from) : words.ld(k.tid() + from)));
    }
    p.out.st(k.tid() + round * kThreads, sum.back());
  }
}

struct Outcome {
  std::string cls;  ///< of the first finding; empty: none
  std::string text;
  std::vector<std::uint32_t> out;
};

Outcome run(Bug bug, emu::SchedulePolicy schedule) {
  std::vector<runtime::Device> device;
  std::vector<runtime::Buffer<std::uint32_t>> data, signals, out;
  std::vector<runtime::Buffer<std::uint64_t>> tables;
  for (std::uint32_t r = 0; r < kRanks; ++r) {
    device.push_back(runtime::Device::open("emu:sm_90a"));
    emu::Options o;
    o.schedule = schedule;
    device[r].set_emulator_options(o);
    device[r].set_findings(runtime::Device::Findings::collect);
    data.push_back(device[r].alloc<std::uint32_t>(2 * kThreads, "data"));
    signals.push_back(device[r].zeros<std::uint32_t>(kRanks, "signals"));
    out.push_back(device[r].alloc<std::uint32_t>(kRounds * kThreads, "out"));
  }
  if (bug != Bug::no_peer)
    for (std::uint32_t r = 0; r < kRanks; ++r) device[r].enable_peer(device[1 - r]);
  std::vector<std::uint64_t> table(4 * kRanks);
  for (std::uint32_t r = 0; r < kRanks; ++r)
    table[r] = data[r].address(), table[kRanks + r] = signals[r].address();
  for (std::uint32_t r = 0; r < kRanks; ++r) tables.push_back(device[r].upload<std::uint64_t>(table));
  if (bug == Bug::freed) data[1] = {};
  const Variant v = variant(text::cat("exchange_", int(bug)), 80, exchange_kernel, bug);
  runtime::launch_together([&] {
    for (std::uint32_t r = 0; r < kRanks; ++r)
      launch::launch_kernel(device[r].stream(), load(device[r], v), runtime::Dim3{1},
                            ExchangeArgs<launch::HostArg>{
                                .table = runtime::arg(tables[r]), .out = runtime::arg(out[r]), .rank = r});
  });
  Outcome got;
  const auto& result = *device[0].last_result().result;
  for (const emu::Finding& f : result.findings) {
    if (got.cls.empty()) got.cls = f.cls;
    got.text += emu::describe(f);
  }
  if (result.findings.empty()) got.out = out[1].to_vector();
  return got;
}

struct Expected {
  Bug bug;
  const char* name;
  std::string cls;  ///< of the first finding; one of these
};
const Expected kExpected[] = {
    {Bug::none, "none", ""},
    {Bug::release_of_the_gpu, "release_of_the_gpu", "race.scope"},
    {Bug::acquire_of_the_gpu, "acquire_of_the_gpu", "race.scope"},
    {Bug::relaxed_signal, "relaxed_signal", "race.global"},
    {Bug::relaxed_poll, "relaxed_poll", "race.global"},
    {Bug::plain_signal, "plain_signal", "race.global"},
    {Bug::no_barrier_before_the_signal, "no_barrier_before_the_signal", "race.global"},
    {Bug::no_barrier_behind_the_wait, "no_barrier_behind_the_wait", "race.global"},
    {Bug::no_wait, "no_wait", "race.global"},
    {Bug::wait_by_some_threads, "wait_by_some_threads", "race.global"},
    {Bug::signal_to_one_rank, "signal_to_one_rank", "deadlock"},
    {Bug::wait_for_the_own_signal, "wait_for_the_own_signal", "race.global"},
    {Bug::signal_to_itself, "signal_to_itself", "deadlock"},
    {Bug::same_number_each_round, "same_number_each_round", "race.global"},
    {Bug::one_slot, "one_slot", "race.global"},
    {Bug::slot_of_the_next_round, "slot_of_the_next_round", "uninit.global race.global"},
    {Bug::fence_of_the_gpu, "fence_of_the_gpu", "race.scope"},
    {Bug::fence_of_the_block, "fence_of_the_block", "race.scope"},
    {Bug::fence_behind_the_signal, "fence_behind_the_signal", "race.global"},
    {Bug::address_of_no_rank, "address_of_no_rank", "oob.global"},
    {Bug::all_into_one_slot, "all_into_one_slot", "race.global"},
    {Bug::a_rank_leaves, "a_rank_leaves", "deadlock"},
    {Bug::read_only_loads, "read_only_loads", "race.proxy"},
    {Bug::counter_of_the_gpu, "counter_of_the_gpu", "race.scope"},
    {Bug::signal_before_the_data, "signal_before_the_data", "race.global"},
    {Bug::one_signal_too_few, "one_signal_too_few", "deadlock"},
    {Bug::no_peer, "no_peer", "oob.global"},
    {Bug::freed, "freed", "lifetime.global"},
};
static_assert(std::size(kExpected) == std::size_t(Bug::kCount));

}  // namespace

TEST(bugs_between_devices, are_named_by_their_class) {
  for (const Expected& e : kExpected) {
    bool named = false;
    for (auto schedule : {emu::SchedulePolicy::fair, emu::SchedulePolicy::adversarial}) {
      const Outcome r = run(e.bug, schedule);
      named = named || !r.cls.empty();
      EXPECT_TRUE(r.cls.empty() || e.cls.find(r.cls) != std::string::npos) << e.name << "\n" << r.text;
      for (std::uint32_t i = 0; e.bug == Bug::none && i < kThreads; ++i)
        EXPECT_EQ(r.out.at(2 * kThreads + i), 1000 + 2 * i + 4);
    }
    EXPECT_EQ(named, e.bug != Bug::none) << e.name;
  }
}

}  // namespace cgp::kernels
