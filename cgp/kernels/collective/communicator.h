// SPDX-License-Identifier: Apache-2.0
#pragma once
// The GPUs of one host that exchange data, and memory on each that all of them use. One process has all of them, or each
// process has one (torchrun, mpirun).
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cgp/runtime/buffer.h"
#include "cgp/runtime/ipc/peer_watch.h"

namespace cgp::kernels {

inline constexpr int kMostRanks = 16;

/// The processes of one host, each of which has one rank.
struct Processes {
  int rank = 0, size = 1;
  runtime::AllGatherBytes all_gather;  ///< called four times by the constructor, and then no more
  /// Another process has ended without destroying its Communicator; called on a thread of the Communicator's. Not given: a line
  /// on stderr, and this process ends with code 70, since its kernels may be waiting for the lost GPU.
  std::function<void(int rank)> on_lost = {};
};

class Communicator {
 public:
  /// may_repeat: ranks that share a GPU, to try code for several GPUs on one. In one process, each is on a stream of its own; their
  /// kernels must be on the GPU at the same time, so each gets a part of its multiprocessors. Not on the emulator, where
  /// devices cost nothing.
  enum class Devices : bool { different, may_repeat };
  /// 1 to 16 devices of this process, of one kind. `bytes`: of staging memory a rank; what is longer goes in pieces. Throws
  /// ArgumentError for a wrong list, Unsupported where two devices cannot use each other's memory.
  explicit Communicator(std::vector<runtime::Device> devices, std::uint64_t bytes = 64ull << 20,
                        Devices which = Devices::different);
  /// This process's part; all processes call it with the same bytes. launch_together() is not needed then. Throws ArgumentError for
  /// arguments that do not agree, Unsupported where memory cannot be shared between processes, on every rank.
  Communicator(runtime::Device device, Processes processes, std::uint64_t bytes = 64ull << 20,
               Devices which = Devices::different);
  Communicator(Communicator&&) noexcept;
  ~Communicator();

  int size() const { return int(ranks_.size()); }
  const runtime::Device& device(int rank) const { return at(rank).device; }  ///< none: of another process
  const std::string& arch(int rank) const { return at(rank).arch; }          ///< "sm_90a"
  /// Of staging memory that one call may fill: half of what was asked for.
  std::uint64_t slot_bytes() const { return slot_bytes_; }
  bool sharing() const { return sharing_; }  ///< some ranks of this process share a GPU
  /// Of `most` blocks of a launch those that a rank may have: a part of them where ranks share a GPU.
  std::uint32_t blocks(std::uint32_t most) const;
  /// Addresses that kernels read (exchange.h). Of a rank of this process.
  std::uint64_t staging_address(int rank) const { return at(rank).addresses[0]; }
  runtime::Slice<const std::uint64_t> table(int rank) const { return at(rank).table.all(); }

 private:
  struct Memory;  // of a rank of this process
  struct Opened;  // of a rank of another process
  struct Rank {
    runtime::Device device;
    std::string arch;
    std::vector<std::uint64_t> addresses;  // of staging memory, signals, low-latency values and flags
    std::shared_ptr<Memory> memory;
    std::shared_ptr<Opened> opened;
    runtime::Buffer<std::uint64_t> table;
  };
  const Rank& at(int rank) const { return ranks_[std::size_t(rank)]; }
  Rank own_rank(const runtime::Device& device, std::uint64_t ranks) const;
  void make_table(Rank& of) const;
  std::uint64_t slot_bytes_ = 0;
  bool sharing_ = false;
  std::vector<Rank> ranks_;
  std::unique_ptr<runtime::PeerWatch> watch_;
};

}  // namespace cgp::kernels
