// SPDX-License-Identifier: Apache-2.0
// Communicator between processes, on the stand-in libcuda: what they agree on, what they refuse, and that a lost one is noticed. Kernels
// between processes run where there is a GPU (python/tests/test_distributed.py).
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/kernels/collective/communicator.h"
#include "cgp/kernels/collective/exchange.h"

using namespace cgp;
using namespace cgp::kernels;
using Devices = Communicator::Devices;

namespace {

constexpr int kMost = 4;
constexpr std::uint64_t kBytes = 1 << 16;

// Memory that forked processes have in common, and MPI_Allgather on it.
struct Board {
  std::atomic<int> came{0}, left{0};
  std::size_t bytes[kMost];
  std::byte text[kMost][4096];
};

std::vector<std::vector<std::byte>> all_gather(Board& b, int rank, int size, int round,
                                               std::span<const std::byte> own) {
  const auto wait = [&](std::atomic<int>& count) {
    while (count < size * round) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  std::memcpy(b.text[rank], own.data(), own.size());
  b.bytes[rank] = own.size();
  ++b.came;
  wait(b.came);
  std::vector<std::vector<std::byte>> all;
  for (int r = 0; r < size; ++r) all.emplace_back(b.text[r], b.text[r] + b.bytes[r]);
  ++b.left;
  wait(b.left);
  return all;
}

struct Rank {
  Processes processes;
  std::string device = "cuda:0";
  std::uint64_t bytes = kBytes;
  Devices which = Devices::may_repeat;
  Communicator open() const { return Communicator(runtime::Device::open(device), processes, bytes, which); }
};

/// The exit codes of `size` processes; body(Rank&) gives each one's, 99 stands for an exception.
template <class Body>
std::vector<int> run(int size, Body&& body) {
  auto* board =
      new (::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board;
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 99;
      ::setenv("CGP_LIBCUDA", CGP_FAKE_LIBCUDA, 1);
      ::alarm(60);
      try {
        int round = 0;
        Rank rank{.processes = {.rank = r, .size = size, .all_gather = [&](std::span<const std::byte> own) {
                                  return all_gather(*board, r, size, ++round, own);
                                }}};
        code = body(rank);
      } catch (const std::exception& e) {
        std::fprintf(stderr, "rank %d: %s\n", r, e.what());
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  std::vector<int> codes;
  for (pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
  ::munmap(board, sizeof(Board));
  return codes;
}
using Codes = std::vector<int>;

template <class E>
int refuses(const Rank& r, const std::string& part) {
  try {
    (void)r.open();
  } catch (const E& e) {
    if (std::string(e.what()).find(part) != std::string::npos) return 7;
    std::fprintf(stderr, "%s\n", e.what());
  }
  return 8;
}

}  // namespace

TEST(processes, each_has_the_addresses_of_all) {
  const auto codes = run(3, [](Rank& r) {
    std::atomic<int> lost{0};
    r.processes.on_lost = [&](int) { ++lost; };
    {
      const Communicator all = r.open();
      std::vector<std::uint64_t> table(kTableWords);
      runtime::Slice<const std::uint64_t> on_device = all.table(r.processes.rank);
      std::memcpy(table.data(), reinterpret_cast<const void*>(std::uintptr_t(on_device.address())),
                  kTableWords * 8);
      for (std::uint32_t q = 0; q < 3; ++q)
        for (TableWord t : {kStagingTable, kSignalTable, kLowLatencyTable, kFlagTable})
          if (!table[t + q]) return 1;
      if (all.size() != 3 || all.arch(0) != "sm_90a" || table[3]) return 2;
      if (all.device((r.processes.rank + 1) % 3)) return 3;
    }
    return lost ? 4 : 0;
  });
  EXPECT_EQ(codes, (Codes{0, 0, 0}));
}

TEST(processes, one_that_ends_is_noticed_by_the_others) {
  const auto codes = run(3, [](Rank& r) {
    std::atomic<int> lost{-1};
    r.processes.on_lost = [&](int rank) { lost = rank; };
    const Communicator all = r.open();
    if (r.processes.rank == 1) ::_exit(11);
    for (int i = 0; i < 5000 && lost < 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return lost == 1 ? 12 : 13;
  });
  EXPECT_EQ(codes, (Codes{12, 11, 12}));
  const auto alone = run(2, [](Rank& r) {
    const Communicator all = r.open();
    if (r.processes.rank == 0) ::_exit(11);
    std::this_thread::sleep_for(std::chrono::seconds(20));
    return 13;
  });
  EXPECT_EQ(alone, (Codes{11, 70})) << "nobody waits for ever";
}

TEST(processes, all_refuse_what_one_cannot_do) {
  EXPECT_EQ(run(2,
                [](Rank& r) {
                  if (r.processes.rank == 1) r.bytes *= 2;
                  return refuses<ArgumentError>(r, "same staging memory");
                }),
            (Codes{7, 7}));
  EXPECT_EQ(run(2,
                [](Rank& r) {
                  if (r.processes.rank == 1) r.device = "emu:sm_90a";
                  return refuses<Unsupported>(r, "rank 1 cannot take part");
                }),
            (Codes{7, 7}));
  EXPECT_EQ(run(2,
                [](Rank& r) {
                  r.which = Devices::different;
                  return refuses<ArgumentError>(r, "ranks 0 and 1 share");
                }),
            (Codes{7, 7}));
  EXPECT_EQ(run(1,
                [](Rank& r) {
                  r.processes.size = 17;
                  return refuses<ArgumentError>(r, "1 to 16 processes");
                }),
            (Codes{7}));
}
