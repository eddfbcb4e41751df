// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/collective/communicator.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/collective/exchange.h"
#include "cgp/runtime/ipc/shared_memory.h"

namespace cgp::kernels {
namespace {

using text::cat;

constexpr std::size_t kMemories = 4;
constexpr TableWord kTables[kMemories] = {kStagingTable, kSignalTable, kLowLatencyTable, kFlagTable};

[[noreturn]] void refuse(std::string rule, std::string why, std::string hint = {}) {
  throw ArgumentError({cat("Communicator: ", rule), {}, std::move(why), std::move(hint)});
}

// What a process says of itself. Plain bytes: all processes run the same program.
struct Hello {
  char magic[16] = "cgp-ranks-1";
  std::uint64_t bytes = 0;
  int size = 0, rank = 0;
  long process = 0;
  char host[64] = {}, arch[16] = {}, pci[32] = {};
  char problem[256] = {};  // why this rank cannot go on
  runtime::SharedMemory memory[kMemories];
};
void put(std::span<char> to, std::string_view text) {
  std::memset(to.data(), 0, to.size());
  std::memcpy(to.data(), text.data(), std::min(text.size(), to.size() - 1));
}

std::vector<Hello> exchange(const Processes& p, const Hello& own) {
  const auto got = p.all_gather(std::as_bytes(std::span(&own, 1)));
  if (int(got.size()) != p.size)
    refuse("all_gather gives the bytes of every rank", cat(got.size(), " of ", p.size));
  std::vector<Hello> all(got.size());
  for (std::size_t r = 0; r < got.size(); ++r) {
    if (got[r].size() != sizeof(Hello))
      refuse("all processes run the same version",
             cat("rank ", r, " sent ", got[r].size(), " bytes, not ", sizeof(Hello)));
    std::memcpy(static_cast<void*>(&all[r]), got[r].data(), sizeof(Hello));
    if (std::memcmp(all[r].magic, own.magic, sizeof own.magic))
      refuse("all processes run the same version", cat("rank ", r, " has another one"));
  }
  return all;
}

// After an exchange: the first rank that cannot go on, on every rank.
void agree(const std::vector<Hello>& all) {
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].problem[0])
      throw Unsupported({cat("Communicator: rank ", r, " cannot take part"), {}, all[r].problem, {}});
}

void end_process(int rank) {
  std::fprintf(
      stderr,
      "cgp: the process of rank %d has ended. This process ends too: its kernels may be waiting for that "
      "rank.\n",
      rank);
  std::fflush(stderr);
  std::_Exit(70);
}

}  // namespace

struct Communicator::Memory {
  runtime::Buffer<std::byte> staging;
  runtime::Buffer<std::uint32_t> signals;
  runtime::Buffer<std::uint64_t> low_latency;
  runtime::Buffer<std::uint32_t> flags;
};
struct Communicator::Opened {
  std::vector<runtime::OpenedMemory> memory;
};

Communicator::Communicator(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator::Rank Communicator::own_rank(const runtime::Device& d, std::uint64_t ranks) const {
  auto m = std::make_shared<Memory>(
      Memory{d.alloc<std::byte>(2 * slot_bytes_, "staging"), d.zeros<std::uint32_t>(kSignalWords, "signals"),
             d.zeros<std::uint64_t>(2 * ranks * kLowLatencyElements, "low-latency values"),
             d.zeros<std::uint32_t>(ranks * kFlags, "flags")});
  d.sync();
  return {
      .device = d,
      .arch = d.info().arch,
      .addresses = {m->staging.address(), m->signals.address(), m->low_latency.address(), m->flags.address()},
      .memory = std::move(m),
      .opened = {},
      .table = {}};
}

void Communicator::make_table(Rank& of) const {
  std::vector<std::uint64_t> words(kTableWords);
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    for (std::size_t m = 0; m < kMemories; ++m) words[kTables[m] + i] = ranks_[i].addresses[m];
  of.table = of.device.upload<std::uint64_t>(words, "addresses of the ranks");
  of.device.sync();
}

Communicator::Communicator(std::vector<runtime::Device> devices, std::uint64_t bytes, Devices which) {
  const std::size_t n = devices.size();
  if (n < 1 || n > kMostRanks) refuse(cat("1 to ", kMostRanks, " devices"), cat("there are ", n));
  for (std::size_t i = 0; i < n; ++i) {
    if (!devices[i]) refuse("each rank has a device", cat("rank ", i, " has none"));
    for (std::size_t j = 0; j < i; ++j) {
      if (!(devices[i] == devices[j])) continue;
      if (which == Devices::different)
        refuse("each rank has a device of its own", cat("ranks ", j, " and ", i, " share one"));
      sharing_ = true;
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      if (!(devices[i] == devices[j])) devices[i].enable_peer(devices[j]);
  slot_bytes_ = bytes / 2 / (256 * n) * (256 * n);  // the same parts for all ranks
  for (const auto& d : devices) ranks_.push_back(own_rank(d, n));
  for (Rank& r : ranks_) make_table(r);
}

Communicator::Communicator(runtime::Device device, Processes p, std::uint64_t bytes, Devices which) {
  if (!device) refuse("each rank has a device", "there is none");
  if (p.size < 1 || p.size > kMostRanks)
    refuse(cat("1 to ", kMostRanks, " processes"), cat("there are ", p.size));
  if (p.rank < 0 || p.rank >= p.size)
    refuse("a rank is one of the processes", cat("rank ", p.rank, " of ", p.size));
  if (!p.all_gather) refuse("all_gather is given", "there is none");
  const auto n = std::uint64_t(p.size);
  slot_bytes_ = bytes / 2 / (256 * n) * (256 * n);

  // First what they are, so that all refuse the same; then their memory.
  Hello own;
  own.bytes = bytes, own.size = p.size, own.rank = p.rank, own.process = long(::getpid());
  put(own.host, text::trim(read_file("/proc/sys/kernel/random/boot_id")));
  put(own.arch, device.info().arch);
  put(own.pci, device.info().pci_bus_id.value_or(""));
  auto all = exchange(p, own);
  for (int r = 0; r < p.size; ++r) {
    const Hello& h = all[std::size_t(r)];
    if (h.rank != r || h.size != p.size)
      refuse("all_gather gives the bytes of every rank, by rank",
             cat("place ", r, " has those of rank ", h.rank, " of ", h.size));
    if (h.bytes != bytes)
      refuse("all ranks ask for the same staging memory",
             cat("rank ", r, ": ", h.bytes, " bytes, rank ", p.rank, ": ", bytes));
    if (std::strcmp(h.host, own.host))
      throw Unsupported({"Communicator: all processes run on one host",
                         {},
                         cat("ranks ", r, " and ", p.rank, " are on different ones"),
                         "use NCCL between hosts"});
    for (int q = 0; q < r; ++q) {
      const Hello& o = all[std::size_t(q)];
      if (h.process == o.process)
        refuse("each rank is a process of its own", cat("ranks ", q, " and ", r, " are process ", h.process),
               "give Communicator the devices, for ranks of one process");
      if (which == Devices::different && h.pci[0] && !std::strcmp(h.pci, o.pci))
        refuse("each rank has a device of its own", cat("ranks ", q, " and ", r, " share ", h.pci));
    }
  }
  Rank mine;
  try {
    mine = own_rank(device, n);
    for (std::size_t m = 0; m < kMemories; ++m) own.memory[m] = runtime::share(device, mine.addresses[m]);
  } catch (const Error& e) {
    put(own.problem, e.what());
  }
  all = exchange(p, own);
  agree(all);
  for (int r = 0; r < p.size; ++r) {
    if (r == p.rank) {
      ranks_.push_back(std::move(mine));
      continue;
    }
    Rank other{.device = {},
               .arch = all[std::size_t(r)].arch,
               .addresses = {},
               .memory = {},
               .opened = {},
               .table = {}};
    other.opened = std::make_shared<Opened>();
    try {
      for (const auto& m : all[std::size_t(r)].memory) {
        other.opened->memory.emplace_back(device, m);
        other.addresses.push_back(other.opened->memory.back().address());
      }
    } catch (const Error& e) {
      put(own.problem, cat("the memory of rank ", r, ": ", e.what()));
      other.addresses.resize(kMemories);
    }
    ranks_.push_back(std::move(other));
  }
  make_table(ranks_[std::size_t(p.rank)]);
  agree(exchange(p, own));
  watch_ =
      std::make_unique<runtime::PeerWatch>(p.rank, p.size, p.all_gather, p.on_lost ? p.on_lost : end_process);
}

std::uint32_t Communicator::blocks(std::uint32_t most) const {
  return sharing_ ? std::max(1u, most / std::uint32_t(size())) : most;
}

}  // namespace cgp::kernels
