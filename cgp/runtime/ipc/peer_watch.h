// SPDX-License-Identifier: Apache-2.0
#pragma once
// Notices when another process of this host ends without saying so: kernels that wait for its GPU would wait for ever.
//   PeerWatch watch(rank, size, all_gather, on_lost);
// Every process has a socket of each other one; the kernel closes it with its process.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace cgp::runtime {

/// Every process gives as many bytes and gets those of all, by rank: MPI_Allgather, or torch.distributed.all_gather_object.
using AllGatherBytes = std::function<std::vector<std::vector<std::byte>>(std::span<const std::byte>)>;

class PeerWatch {
 public:
  /// Called on a thread of the watch, once for each rank that is lost.
  using OnLost = std::function<void(int rank)>;
  /// Returns when all are connected. Throws Error naming the rank that cannot be reached.
  PeerWatch(int rank, int size, const AllGatherBytes& all_gather, OnLost on_lost);
  ~PeerWatch();  ///< says to the others that this process goes on without them
  PeerWatch(PeerWatch&&) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cgp::runtime
