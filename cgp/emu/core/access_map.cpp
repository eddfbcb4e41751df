// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cgp/emu/core/access_map_impl.h"

namespace cgp::emu {
namespace {
constexpr std::uint64_t kMaxCells = 4096;
constexpr std::uint64_t kSector = 32, kBulkUnit = 16;

AccessMap make_map(std::string buffer, std::uint64_t address, std::uint64_t bytes, std::uint32_t smallest) {
  AccessMap m;
  m.buffer = std::move(buffer);
  m.address = address;
  m.bytes = bytes;
  m.cell_bytes = smallest;
  while ((bytes + m.cell_bytes - 1) / m.cell_bytes > kMaxCells) m.cell_bytes *= 2;
  m.cells.resize(std::size_t((bytes + m.cell_bytes - 1) / m.cell_bytes));
  return m;
}

AccessMap::Cell* cell_at(AccessMap& m, std::uint64_t offset) {
  const std::uint64_t i = offset / m.cell_bytes;
  return i < m.cells.size() ? &m.cells[std::size_t(i)] : nullptr;
}

enum class Kind : std::uint8_t { read, write, atomic };
void add(AccessMap& m, std::uint64_t offset, Kind kind, std::uint64_t times = 1) {
  if (AccessMap::Cell* c = cell_at(m, offset))
    (kind == Kind::read ? c->reads : kind == Kind::write ? c->writes : c->atomics) += times;
}

bool touched(const AccessMap& m) {
  return std::any_of(m.cells.begin(), m.cells.end(),
                     [](const AccessMap::Cell& c) { return c.reads | c.writes | c.atomics | c.sectors; });
}

void add(AccessMap& to, const AccessMap& from) {
  for (std::size_t i = 0; i < to.cells.size(); ++i) {
    AccessMap::Cell &a = to.cells[i], b = from.cells[i];
    a.reads += b.reads;
    a.writes += b.writes;
    a.atomics += b.atomics;
    a.sectors += b.sectors;
  }
}
}  // namespace

Worker::Worker() = default;
Worker::~Worker() = default;

void Worker::enter(std::uint32_t number) {
  if (heap && device == number) return;
  device = number;
  heap = launch->devices[number].machine->heap.get();
  for (CachedRange& c : cache) c = {};  // what one device may use, another may not
  if (accesses) accesses->use(heap);
}

AccessRecorder::AccessRecorder(const LaunchState& launch)
    : shared_(make_map("shared memory", 0, launch.shared_bytes, 4)) {
  shared_.shared = true;
}

AccessMap* AccessRecorder::map_of(std::uint64_t address) {
  if (last_ && address - last_->address < last_->bytes) return last_;
  const Allocation* a = heap_->at_or_below(address);
  if (!a || !a->contains(address, 1)) return nullptr;
  auto it = maps_.find(a);
  if (it == maps_.end()) it = maps_.emplace(a, make_map(a->name, a->base, a->size, kSector)).first;
  return last_ = &it->second;
}

void AccessRecorder::global(GlobalKind kind, std::uint32_t bytes, const std::uint64_t* addr, Mask lanes) {
  const Kind k = kind == GlobalKind::load    ? Kind::read
                 : kind == GlobalKind::store ? Kind::write
                                             : Kind::atomic;
  std::array<std::uint64_t, kLanes * 2> sector;
  std::size_t n = 0;
  for_lanes(lanes, [&](int l) {
    if (AccessMap* m = map_of(addr[l])) add(*m, addr[l] - m->address, k);
    const std::uint64_t first = addr[l] / kSector, last = (addr[l] + bytes - 1) / kSector;
    sector[n++] = first;
    if (last != first) sector[n++] = last;
  });
  std::sort(sector.begin(), sector.begin() + std::ptrdiff_t(n));
  n = std::size_t(std::unique(sector.begin(), sector.begin() + std::ptrdiff_t(n)) - sector.begin());
  for (std::size_t i = 0; i < n; ++i) {
    // An allocation may start inside its first sector.
    AccessMap* m = map_of(sector[i] * kSector + kSector - 1);
    if (!m) m = map_of(sector[i] * kSector);
    if (!m) continue;
    const std::uint64_t at = std::max(sector[i] * kSector, m->address) - m->address;
    if (AccessMap::Cell* c = cell_at(*m, at)) ++c->sectors;
  }
}

void AccessRecorder::shared(SharedKind kind, std::uint32_t bytes, const std::uint32_t* offset, Mask lanes) {
  const Kind k = kind == SharedKind::atomic                                      ? Kind::atomic
                 : kind == SharedKind::store || kind == SharedKind::matrix_store ? Kind::write
                                                                                 : Kind::read;
  for_lanes(lanes, [&](int l) {
    const std::uint32_t step = std::min(shared_.cell_bytes, bytes);
    for (std::uint32_t at = 0; at < bytes; at += step) add(shared_, offset[l] + at, k);
  });
}

void AccessRecorder::bulk(bool store, std::uint64_t address, std::uint64_t bytes) {
  AccessMap* m = map_of(address);
  if (!m) return;
  for (std::uint64_t a = address; a < address + bytes; a += kBulkUnit)
    add(*m, a - m->address, store ? Kind::write : Kind::read);
  for (std::uint64_t s = address / kSector; s <= (address + bytes - 1) / kSector; ++s)
    if (AccessMap::Cell* c = cell_at(*m, std::max(s * kSector, m->address) - m->address)) ++c->sectors;
}

std::vector<AccessMap> collect_accesses(const LaunchState& launch,
                                        const std::vector<std::unique_ptr<Worker>>& workers) {
  std::vector<AccessMap> out;
  if (!launch.options.access_map) return out;
  std::map<std::uint64_t, AccessMap> by_address;
  std::optional<AccessMap> shared;
  for (const auto& w : workers) {
    if (!w->accesses) continue;
    for (const auto& [allocation, m] : w->accesses->maps_) {
      auto [it, added] = by_address.try_emplace(m.address, m);
      if (!added) add(it->second, m);
    }
    if (shared)
      add(*shared, w->accesses->shared_);
    else
      shared = w->accesses->shared_;
  }
  for (auto& [address, m] : by_address)
    if (touched(m)) out.push_back(std::move(m));
  if (shared && touched(*shared)) out.push_back(std::move(*shared));
  return out;
}

}  // namespace cgp::emu
