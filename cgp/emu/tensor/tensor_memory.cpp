// SPDX-License-Identifier: Apache-2.0
#include "cgp/emu/tensor/tensor_memory.h"

#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {
using text::cat;

TensorMemory::TensorMemory()
    : cells(std::size_t(kDataLanes * kColumns), 0xcdcdcdcdu),
      written(std::size_t(kDataLanes * kColumns / 64), 0) {
  owner.fill(-1);
}

int TensorMemory::find_room(std::uint32_t columns) const {
  const std::size_t need = columns / kGranule;
  std::size_t run = 0;
  for (std::size_t i = 0; i < owner.size(); ++i) {
    run = owner[i] < 0 ? run + 1 : 0;
    if (run == need) return int((i + 1 - need) * kGranule);
  }
  return -1;
}

void TensorMemory::take(std::uint32_t first, std::uint32_t columns, const Op* by, std::uint32_t warp) {
  std::fill_n(owner.begin() + first / kGranule, columns / kGranule, int(allocations.size()));
  allocations.push_back({first, columns, by, warp, nullptr});
  // What an earlier owner left is not data of this one.
  for (int lane = 0; lane < kDataLanes; ++lane) {
    std::fill_n(row(lane, int(first)), columns, 0xcdcdcdcdu);
    mark(lane, int(first), int(columns), false);
  }
}

void TensorMemory::release(Allocation& a, const Op* by) {
  std::fill_n(owner.begin() + a.first / kGranule, a.columns / kGranule, -1);
  a.freed_by = by;
}

const TensorMemory::Allocation* TensorMemory::at(std::uint32_t column) const {
  if (column >= kColumns) return nullptr;
  if (const int i = owner[column / kGranule]; i >= 0) return &allocations[std::size_t(i)];
  for (std::size_t i = allocations.size(); i-- > 0;)
    if (column >= allocations[i].first && column < allocations[i].first + allocations[i].columns)
      return &allocations[i];
  return nullptr;
}

TensorMemory::Allocation* TensorMemory::live_at(std::uint32_t first) {
  if (first >= kColumns || owner[first / kGranule] < 0) return nullptr;
  Allocation& a = allocations[std::size_t(owner[first / kGranule])];
  return a.first == first ? &a : nullptr;
}

std::uint32_t TensorMemory::free_columns() const {
  return std::uint32_t(std::count(owner.begin(), owner.end(), -1)) * kGranule;
}

bool TensorMemory::all_written(int lane, int column, int count) const {
  for (int c = column; c < column + count;) {
    const auto i = std::size_t(lane * kColumns + c);
    const int n = std::min(count - (c - column), 64 - int(i % 64));
    const std::uint64_t m = (n == 64 ? ~0ull : (1ull << n) - 1) << (i % 64);
    if ((written[i / 64] & m) != m) return false;
    c += n;
  }
  return true;
}

void TensorMemory::mark(int lane, int column, int count, bool is) {
  for (int c = column; c < column + count;) {
    const auto i = std::size_t(lane * kColumns + c);
    const int n = std::min(count - (c - column), 64 - int(i % 64));
    const std::uint64_t m = (n == 64 ? ~0ull : (1ull << n) - 1) << (i % 64);
    written[i / 64] = is ? written[i / 64] | m : written[i / 64] & ~m;
    c += n;
  }
}

namespace {
constexpr std::uint32_t kMemorySlot = std::uint32_t(ptx::Family::tcgen05);

std::string line_of(const Cta& cta, const Op* op) {
  return line_text(*cta.cluster->worker->launch->program, op->inst);
}
}  // namespace

TensorMemory& tensor_memory(Cta& cta) { return state_of<TensorMemory>(cta, kMemorySlot); }

bool check_tensor_range(const Issuer& by, Cta& cta, int lane, int lanes, int column, int columns,
                        std::string_view what) {
  const auto report = [&](Check check, std::string_view cls, std::string message, std::string hint, int at) {
    by.warp->report(check, cls, *by.op, lane_bit(by.lane),
                    cat(what, " lanes ", lane, " to ", lane + lanes - 1, ", columns ", column, " to ",
                        column + columns - 1, " of Tensor Memory",
                        cta.rank == by.warp->cta->rank ? "" : cat(" of CTA rank ", cta.rank), ": ", message),
                    std::move(hint), std::uint64_t(lane) << 16 | std::uint64_t(at), "tensor memory", at);
    return false;
  };
  if (lane < 0 || lane + lanes > TensorMemory::kDataLanes)
    return report(Check::bounds, "oob.tensor", "it has 128 lanes",
                  "bits 31-16 of an address are the lane, bits 15-0 the column", column);
  if (column < 0 || column + columns > TensorMemory::kColumns)
    return report(Check::bounds, "oob.tensor", "it has 512 columns",
                  "bits 31-16 of an address are the lane, bits 15-0 the column", column);
  const TensorMemory& m = tensor_memory(cta);
  for (int c = column; c < column + columns; c = (c / TensorMemory::kGranule + 1) * TensorMemory::kGranule) {
    if (m.owner[std::size_t(c / TensorMemory::kGranule)] >= 0) continue;
    const TensorMemory::Allocation* a = m.at(std::uint32_t(c));
    if (a && a->freed_by)
      return report(Check::lifetime, "lifetime.tensor",
                    cat("column ", c, " was freed by tcgen05.dealloc at ", line_of(cta, a->freed_by)),
                    "free Tensor Memory after the last access, with a barrier between them", c);
    return report(Check::bounds, "oob.tensor", cat("column ", c, " is not allocated"),
                  "use columns of the address that tcgen05.alloc wrote to shared memory", c);
  }
  return true;
}

void report_unwritten_tensor(const Issuer& by, const Cta& cta, int lane, int column, std::string_view what) {
  by.warp->report(
      Check::uninit, "uninit.tensor", *by.op, lane_bit(by.lane),
      cat(what, " lane ", lane, ", column ", column, " of Tensor Memory",
          cta.rank == by.warp->cta->rank ? "" : cat(" of CTA rank ", cta.rank), ", which was never written"),
      "the first tcgen05.mma of a tile overwrites D (enable-input-d false); wait for copies and stores into "
      "Tensor Memory",
      std::uint64_t(lane) << 16 | std::uint64_t(column), "tensor memory", column);
}

void check_tensor_memory_at_exit(Cta& cta) {
  const auto it = cta.state.find(kMemorySlot);
  if (it == cta.state.end()) return;
  const auto& m = *static_cast<const TensorMemory*>(it->second.get());
  for (const TensorMemory::Allocation& a : m.allocations) {
    if (a.freed_by) continue;
    cta.warps[a.warp]->report(
        Check::lifetime, "lifetime.tensor", *a.by, 1,
        cat("the block exits with columns ", a.first, " to ", a.first + a.columns - 1,
            " of Tensor Memory still allocated"),
        "the warp that allocates calls tcgen05.dealloc before it exits; otherwise blocks that follow on the "
        "multiprocessor wait for ever",
        a.first, "tensor memory", a.first);
  }
}

}  // namespace cgp::emu
