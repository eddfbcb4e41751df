// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/cuda/group.h"

#include <algorithm>
#include <vector>

namespace cgp::runtime {
namespace {
thread_local CudaGroup* issuing = nullptr;
}  // namespace

CudaGroup* CudaGroup::of_issuer() { return issuing; }
CudaGroup::Issuing::Issuing(CudaGroup& g) { issuing = &g; }
CudaGroup::Issuing::~Issuing() { issuing = nullptr; }

void CudaGroup::keep(Queue& queue, std::function<void()> work, Host host) {
  work_.push_back({&queue, std::move(work), host});
}

void CudaGroup::flush(Queue& queue) {
  std::list<Kept> own;
  for (auto it = work_.begin(); it != work_.end();) {
    const auto next = std::next(it);
    if (it->queue == &queue) own.splice(own.end(), work_, it);
    it = next;
  }
  for (const Kept& k : own) k.work();
}

void CudaGroup::submit() {
  while (!work_.empty()) {
    std::vector<const Queue*> behind;  // streams whose next work the host waits for
    std::list<Kept> waits;
    for (auto it = work_.begin(); it != work_.end();) {
      const auto next = std::next(it);
      if (std::find(behind.begin(), behind.end(), it->queue) == behind.end()) {
        if (it->host == Host::waits) {
          behind.push_back(it->queue);
          waits.splice(waits.end(), work_, it);
        } else {
          it->work();
          work_.erase(it);
        }
      }
      it = next;
    }
    for (const Kept& k : waits) k.work();
  }
}

}  // namespace cgp::runtime
