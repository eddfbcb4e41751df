// SPDX-License-Identifier: Apache-2.0
#pragma once
// The backend of one of several devices that share a model. A step in pieces, so that kernels which wait for each other are issued
// together: start() on all ranks; then queue() on all inside one runtime::launch_together(), or queue_own() and
// queue_collective() in turns; then finish() on all.
#include <memory>
#include <span>

#include "cgp/engine/backend.h"
#include "cgp/kernels/collective/communicator.h"
#include "cgp/model/source/source.h"

namespace cgp::engine {

class DeviceRank : public Backend {
 public:
  /// Of a batch that check() took, which lives until finish(). greedy: the tokens of the greatest logits are wanted.
  virtual void start(const Batch& batch, bool greedy) = 0;
  virtual void queue() = 0;
  /// What comes before the next AllReduce; false: there is none, the step is queued whole.
  virtual bool queue_own() = 0;
  virtual void queue_collective() = 0;
  virtual void wait() = 0;
  /// Waits. Of the rank's own logits; `greatest`: those of out.greedy, NaN where one is.
  virtual void finish(const Outputs& out, std::span<float> greatest) = 0;
};

/// `program` is the rank's part (tensor_parallel/share.h); `all` outlives it. Throws as make_device_backend().
std::unique_ptr<DeviceRank> make_device_rank(Program program, std::shared_ptr<const model::Source> file,
                                             const kernels::Communicator& all, int rank,
                                             const BackendOptions& options);

}  // namespace cgp::engine
