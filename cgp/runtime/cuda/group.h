// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <list>

namespace cgp::runtime {

class Queue;

/// The work that GPUs' streams were given inside one launch_together(). It is submitted when all of it is known: loading a
/// module may wait for the kernels that run, and a kernel that waits for its peers' would then wait for ever.
class CudaGroup {
 public:
  /// Of the calling thread; nullptr: work is submitted at once.
  static CudaGroup* of_issuer();
  enum class Host : bool { goes_on, waits };  ///< while the work is submitted
  void keep(Queue& queue, std::function<void()> work, Host host = Host::goes_on);
  /// The queue goes: what it was given is submitted now.
  void flush(Queue& queue);
  /// Each stream's work in its order; what the host waits for comes when nothing else can be submitted.
  void submit();

  /// Makes a group the calling thread's.
  class Issuing {
   public:
    explicit Issuing(CudaGroup& g);
    ~Issuing();
    Issuing(const Issuing&) = delete;
    Issuing& operator=(const Issuing&) = delete;
  };

 private:
  struct Kept {
    Queue* queue = nullptr;
    std::function<void()> work;
    Host host = Host::goes_on;
  };
  std::list<Kept> work_;
};

}  // namespace cgp::runtime
