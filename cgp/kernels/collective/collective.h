// SPDX-License-Identifier: Apache-2.0
#pragma once
// Collectives between the GPUs of one host, by kernels that read the memory of their peers: what NCCL calls AllReduce
// (sum), AllGather, ReduceScatter, Broadcast and AllToAll, and a barrier.
//
//   Communicator all(devices);                              // once; peer access is enabled
//   runtime::launch_together([&] {                          // on GPUs a plain call; the emulator needs it
//     for (int r = 0; r < all.size(); ++r) all_reduce(stream[r], all, r, x[r], y[r]);
//   });
//
// Every rank makes the same calls in the same order, each on a stream of its own device; calls of one rank must not
// run at the same time. Sums are in f32, in the order of the ranks: all ranks get the same bits, and the same ones each
// time. The calls may be captured in graphs: what changes from call to call is counted on the devices.
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/collective/communicator.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels {

enum class AllReduce : std::uint8_t {
  choose,    ///< two_shot for more than 512 KiB between more than two ranks (not measured)
  one_shot,  ///< every rank reads all of every rank: one exchange of signals
  two_shot,  ///< every rank sums its share, then reads the others' sums: fewer bytes, two exchanges
};

/// out = the sum of x over the ranks; f32, f16 or bf16, equal lengths. out may be x.
void all_reduce(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out,
                AllReduce how = AllReduce::choose);
/// out[r * n + i] = x[i] of rank r, n = elements of x. Any type. x may be this rank's part of out.
void all_gather(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out);
/// out[i] = the sum over the ranks of x[rank * n + i], n = elements of out; f32, f16 or bf16.
void reduce_scatter(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out);
/// x of all ranks becomes x of `root`. Any type.
void broadcast(runtime::Stream& s, const Communicator& all, int rank, int root, const View& x);
/// out[r * n + i] = x[rank * n + i] of rank r, n = elements of x / ranks. Any type.
void all_to_all(runtime::Stream& s, const Communicator& all, int rank, const View& x, const View& out);
/// What comes behind it on a rank's stream runs once all ranks have come to it.
void barrier(runtime::Stream& s, const Communicator& all, int rank);

/// What ships, for tests that assemble.
KernelEntry collective_entry();

}  // namespace cgp::kernels
