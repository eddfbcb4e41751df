// SPDX-License-Identifier: Apache-2.0
// Device memory: allocations, and the one place where every access of a kernel is translated and checked.
#include <algorithm>

#include "cgp/base/text.h"
#include "cgp/emu/async/mbarrier.h"
#include "cgp/emu/core/dsmem_lifetime.h"
#include "cgp/emu/core/local_memory.h"
#include "cgp/emu/core/machine_impl.h"

namespace cgp::emu {

using text::cat;
using text::hex;

// ---------------------------------------------------------------- initialised bits
namespace {
template <class F>
void for_words(std::uint64_t offset, std::uint64_t n, F&& f) {
  while (n) {
    const std::uint64_t word = offset / 64, shift = offset % 64,
                        take = std::min<std::uint64_t>(n, 64 - shift);
    f(word, (take == 64 ? ~0ull : (1ull << take) - 1) << shift);
    offset += take;
    n -= take;
  }
}
}  // namespace

void Allocation::mark(std::uint64_t offset, std::uint64_t n) {
  for_words(offset, n, [&](std::uint64_t word, std::uint64_t bits) {
    if ((init[word].load(std::memory_order_relaxed) & bits) != bits)
      init[word].fetch_or(bits, std::memory_order_relaxed);
  });
}
void Allocation::unmark(std::uint64_t offset, std::uint64_t n) {
  for_words(offset, n, [&](std::uint64_t word, std::uint64_t bits) {
    init[word].fetch_and(~bits, std::memory_order_relaxed);
  });
}
bool Allocation::marked(std::uint64_t offset, std::uint64_t n) const {
  bool all = true;
  for_words(offset, n, [&](std::uint64_t word, std::uint64_t bits) {
    all = all && (init[word].load(std::memory_order_relaxed) & bits) == bits;
  });
  return all;
}

namespace {
void shared_mark(Cta& c, std::uint64_t offset, std::uint64_t n) {
  for_words(offset, n, [&](std::uint64_t word, std::uint64_t bits) { c.shared_init[word] |= bits; });
}
void shared_unmark(Cta& c, std::uint64_t offset, std::uint64_t n) {
  for_words(offset, n, [&](std::uint64_t word, std::uint64_t bits) { c.shared_init[word] &= ~bits; });
}
bool shared_marked(const Cta& c, std::uint64_t offset, std::uint64_t n) {
  bool all = true;
  for_words(offset, n, [&](std::uint64_t word, std::uint64_t bits) {
    all = all && (c.shared_init[word] & bits) == bits;
  });
  return all;
}
}  // namespace

// ---------------------------------------------------------------- the heap
namespace {
// Ranges of 4 TiB below the windows, one a device. Where there are more devices, some share one.
constexpr int kRangeBits = 42;
constexpr std::uint64_t kRanges = kSharedWindow >> kRangeBits;
struct Ranges {
  std::mutex mutex;
  std::array<std::vector<Heap*>, kRanges> heaps;
};
Ranges& ranges() {
  static Ranges all;
  return all;
}
}  // namespace

Heap::Heap() {
  Ranges& all = ranges();
  std::lock_guard lock(all.mutex);
  const auto fewest = std::min_element(all.heaps.begin(), all.heaps.end(),
                                       [](const auto& a, const auto& b) { return a.size() < b.size(); });
  fewest->push_back(this);
  range_ = std::uint64_t(fewest - all.heaps.begin());
  next_ = range_ << kRangeBits | kGlobalBase;
}

Heap::~Heap() {
  Ranges& all = ranges();
  std::lock_guard lock(all.mutex);
  std::erase(all.heaps[range_], this);
}

bool Heap::use_peer(const std::shared_ptr<Heap>& other) {
  if (other->range_ == range_) return false;
  if (std::find(peers_.begin(), peers_.end(), other) == peers_.end()) peers_.push_back(other);
  return true;
}

std::string Heap::name_elsewhere(std::uint64_t address) const {
  const std::uint64_t range = address >> kRangeBits;
  if (range == range_ || range >= kRanges) return {};
  Ranges& all = ranges();
  std::lock_guard lock(all.mutex);
  for (Heap* h : all.heaps[range])
    if (const Allocation* a = h->find(address, 1)) return a->name;
  return {};
}

bool Heap::holds(const Allocation& a) const { return a.base >> kRangeBits == range_; }

Heap* Heap::owner(std::uint64_t address) {
  const std::uint64_t range = address >> kRangeBits;
  if (range == range_) return this;
  for (const auto& p : peers_)
    if (p->range_ == range) return p.get();
  return nullptr;
}

void Heap::free_all() {
  {
    std::unique_lock lock(mutex_);
    for (const auto& a : all_)
      if (a->live.exchange(false)) graves_.push_back(a.get());
  }
  bury();
  peers_.clear();
}

std::uint64_t Heap::alloc(std::uint64_t bytes, std::string name, std::uint64_t align, bool constant) {
  std::unique_lock lock(mutex_);
  auto a = std::make_unique<Allocation>();
  align = std::max<std::uint64_t>(align, 16);
  a->base = (next_ + align - 1) / align * align;
  a->size = bytes;
  a->unnamed = name.empty();
  a->name = name.empty() ? cat("allocation ", all_.size()) : std::move(name);
  a->constant = constant;
  a->storage.reset(new std::uint64_t[bytes / 8 + 2]());
  a->host = reinterpret_cast<std::byte*>(a->storage.get());
  a->init = std::make_unique<std::atomic<std::uint64_t>[]>(bytes / 64 + 1);
  // A gap of at least 64 KiB keeps near misses out of the neighbour.
  next_ = a->base + bytes + 0x10000;
  const std::uint64_t base = a->base;
  if (next_ >> kRangeBits != range_) throw std::bad_alloc();
  all_.push_back(std::move(a));
  return base;
}

bool Heap::free(std::uint64_t address) {
  Allocation* a = at_or_below(address);
  if (!a || a->base != address) return false;
  std::unique_lock lock(mutex_);
  if (!a->live) return false;
  a->live = false;
  // Other host threads may be using it right now: the storage goes when no kernel runs.
  graves_.push_back(a);
  frees_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void Heap::bury() {
  std::unique_lock lock(mutex_);
  for (Allocation* a : graves_) {
    a->storage.reset();
    a->init.reset();
    a->host = nullptr;
  }
  graves_.clear();
}

Allocation* Heap::at_or_below(std::uint64_t address) {
  if (Heap* h = owner(address); h != this) return h ? h->at_or_below(address) : nullptr;
  std::shared_lock lock(mutex_);
  auto it =
      std::upper_bound(all_.begin(), all_.end(), address,
                       [](std::uint64_t x, const std::unique_ptr<Allocation>& a) { return x < a->base; });
  return it == all_.begin() ? nullptr : std::prev(it)->get();
}

Allocation* Heap::find(std::uint64_t address, std::uint64_t bytes) {
  Allocation* a = at_or_below(address);
  return a && a->live && a->contains(address, bytes) ? a : nullptr;
}

Allocation* Heap::nearest(std::uint64_t address) {
  if (Heap* h = owner(address); h && h != this) return h->nearest(address);
  std::shared_lock lock(mutex_);
  Allocation* best = nullptr;
  std::uint64_t best_distance = ~0ull;
  for (const auto& a : all_) {
    const std::uint64_t end = a->base + a->size;
    const std::uint64_t d = address < a->base ? a->base - address : address >= end ? address - end : 0;
    if (d < best_distance) best_distance = d, best = a.get();
  }
  return best;
}

// ---------------------------------------------------------------- addresses
void Warp::addresses(const Address& a, std::uint64_t out[kLanes]) const {
  const std::uint64_t add = std::uint64_t(a.offset) + (a.frame_local ? frame->local_base : 0);
  if (a.base32) {
    const auto* p = row<std::uint32_t>(a.base);
    for (int l = 0; l < kLanes; ++l) out[l] = std::uint32_t(p[l] + std::uint32_t(add));
  } else {
    const auto* p = row<std::uint64_t>(a.base);
    for (int l = 0; l < kLanes; ++l) out[l] = p[l] + add;
  }
}

void Warp::addresses(const Op& op, std::uint64_t out[kLanes]) const {
  Address a;
  a.base = op.a;
  a.base32 = op.flags & kBase32;
  a.frame_local = op.flags & kFrameLocal;
  a.offset = op.imm;
  addresses(a, out);
}

Cta* shared_owner(const Warp& w, std::uint32_t shared_address) {
  const std::uint32_t rank = shared_address >> kRankShift;
  if (rank == w.cta->rank) return w.cta;
  auto& all = w.cta->cluster->ctas;
  return rank < all.size() ? all[rank].get() : nullptr;
}

Where classify(const Warp& w, std::uint64_t a) {
  switch (a >> 32) {
    case kSharedWindow >> 32:
      return Where::shared_cluster;
    case kLocalWindow >> 32:
      return Where::local;
    case kParamWindow >> 32:
      return Where::param_entry;
    default:
      break;
  }
  const Allocation* x = w.worker->heap->at_or_below(a);
  if (x && x->constant && x->contains(a, 1)) return Where::constant;
  return Where::global;
}

// ---------------------------------------------------------------- one access
namespace {
struct Problem {
  std::string cls, message, hint, buffer;
  std::int64_t offset = 0;
  Check check = Check::bounds;
};

std::string verb(Access a) {
  return a == Access::read || a == Access::async_read     ? "reads"
         : a == Access::write || a == Access::async_write ? "writes"
         : a == Access::atomic                            ? "updates"
                                                          : "names";
}

Problem global_problem(Warp& w, std::uint64_t addr, std::uint64_t bytes, Access access) {
  Heap& heap = *w.worker->heap;
  Problem p;
  p.cls = "oob.global";
  Allocation* a = heap.at_or_below(addr);
  if (a && !a->live && a->contains(addr, 1)) {
    p.check = Check::lifetime;
    p.cls = "lifetime.global";
    p.buffer = a->name;
    p.offset = std::int64_t(addr - a->base);
    p.message =
        cat(verb(access), " ", bytes, " bytes at ", hex(addr), " in '", a->name, "', which was freed");
    return p;
  }
  p.message = cat(verb(access), " ", bytes, " bytes at ", hex(addr));
  if (const std::string name = heap.name_elsewhere(addr); !a && !name.empty()) {
    p.buffer = name;
    p.message += cat(" in '", name, "', which is memory of a device that is no peer of this one");
    p.hint = "Device::enable_peer (cuCtxEnablePeerAccess) on the device whose kernel makes the access";
    return p;
  }
  a = heap.nearest(addr);
  if (addr < 4096) p.hint = "the address is (nearly) null: was the pointer parameter set?";
  if (!a) {
    p.message += "; there are no allocations";
    return p;
  }
  p.buffer = a->name;
  p.offset = std::int64_t(addr - a->base);
  if (addr >= a->base) {
    const std::uint64_t end = a->base + a->size;
    p.message +=
        addr + bytes > end && addr < end
            ? cat(", of which only ", end - addr, " lie inside '", a->name, "' (", a->size, " bytes)")
            : cat(", ", addr - end, " bytes past the end of '", a->name, "' (", a->size, " bytes)");
  } else {
    p.message += cat(", ", a->base - addr, " bytes before the start of '", a->name, "'");
  }
  return p;
}

}  // namespace

std::string shared_variable(const LaunchState& launch, std::uint32_t offset, std::int64_t* inside) {
  std::string best = "shared memory";
  *inside = offset;
  const auto& vars = launch.program->shared_vars;
  for (std::size_t i = 0; i < vars.size(); ++i) {
    const std::uint32_t at = launch.layout.offset[i];
    if (at == ptx::kNone || at > offset) continue;
    if (std::int64_t(offset - at) <= *inside) {
      *inside = offset - at;
      best = launch.program->module.text(vars[i].var->name);
    }
  }
  return best;
}

std::string place_of(const Warp& w, Where where, std::uint64_t address) {
  if (where == Where::generic) where = classify(w, address);
  std::string buffer;
  std::int64_t offset = std::int64_t(address);
  if (where == Where::shared || where == Where::shared_cluster) {
    const auto low = std::uint32_t(address);
    buffer = shared_variable(*w.worker->launch, low & ((1u << kRankShift) - 1), &offset);
    const std::uint32_t rank = low >> kRankShift;
    if (rank != w.cta->rank) return cat("'", buffer, "' + ", offset, " of block rank ", rank);
  } else if (const Allocation* a = w.worker->heap->at_or_below(address); a && a->contains(address, 1)) {
    return cat(w.worker->launch->buffer_text(*a), " + ", address - a->base);
  } else {
    return hex(address);
  }
  return cat("'", buffer, "' + ", offset);
}

namespace {
Problem shared_problem(Warp& w, std::uint64_t addr, std::uint64_t bytes, Access access, Where where) {
  Problem p;
  p.cls = "oob.shared";
  const std::uint32_t offset = std::uint32_t(addr) & ((1u << kRankShift) - 1);
  const std::uint32_t rank = std::uint32_t(addr >> kRankShift);
  Cta* owner = addr >> 32 ? nullptr : shared_owner(w, std::uint32_t(addr));
  p.message = cat(verb(access), " ", bytes, " bytes of shared memory at ", hex(addr));
  p.buffer = shared_variable(*w.worker->launch, offset, &p.offset);
  if (!owner) {
    p.message += cat(": block rank ", rank, " of a cluster of ", w.cta->cluster->ctas.size());
  } else if (owner->done) {
    p.check = Check::lifetime;
    p.cls = "lifetime.dsmem";
    p.message += cat(" of the block with cluster rank ", rank, ", which has exited");
    p.hint =
        "end the kernel with barrier.cluster.arrive and wait, so that no block leaves while others read it";
  } else if (where == Where::shared && owner != w.cta) {
    p.message += cat(" of the block with cluster rank ", rank, " through .shared::cta");
    p.hint = "use .shared::cluster for another block's memory";
  } else {
    p.message += cat(": the block has ", owner->shared_bytes, " bytes");
    if (w.worker->launch->layout.dynamic)
      p.hint =
          cat("the launch gave ", w.worker->launch->launch.dynamic_smem, " bytes of dynamic shared memory");
  }
  return p;
}

void raise(Warp& w, const Op& op, int lane, std::uint64_t addr, Problem p) {
  if (!(w.checks & std::uint32_t(p.check))) {
    Finding f = make_finding(w, p.cls, op, lane_bit(lane), p.message);
    throw EmuFault(
        ErrorText{cat(p.cls, ": ", p.message),
                  cat("PTX line ", f.ptx_line, f.file.empty() ? "" : cat(", ", f.file, ":", f.line),
                      ", block (", f.block.x, ",", f.block.y, ",", f.block.z, ") thread (", f.thread.x, ",",
                      f.thread.y, ",", f.thread.z, ")"),
                  cat("'", f.instruction, "'"), p.hint});
  }
  w.report(p.check, p.cls, op, lane_bit(lane), p.message, p.hint, addr, p.buffer, p.offset);
}

void misaligned(Warp& w, const Op& op, int lane, Where where, std::uint64_t addr, std::uint64_t align) {
  Problem p;
  p.check = Check::alignment;
  p.cls = "misaligned";
  p.message = cat("the ", name(where), " address ", hex(addr), " is not a multiple of ", align);
  if (where == Where::param_entry)
    p.hint = cat("declare the parameter with this alignment (alignas(", align,
                 ") in C++, .align in PTX): the driver puts "
                 "parameters behind variables of its own");
  if (where == Where::global) {
    if (Allocation* a = w.worker->heap->nearest(addr)) {
      p.buffer = a->name;
      p.offset = std::int64_t(addr - a->base);
    }
  } else if (where == Where::shared || where == Where::shared_cluster) {
    p.buffer = shared_variable(*w.worker->launch, std::uint32_t(addr) & ((1u << kRankShift) - 1), &p.offset);
  }
  raise(w, op, lane, addr, p);
}

// Turns an address of `where` into (space, address in the space's own numbering).
Where normalise(const Warp& w, Where where, std::uint64_t& addr) {
  if (where == Where::generic) {
    where = classify(w, addr);
    if (where != Where::global && where != Where::constant) addr &= 0xffffffffu;
    if (where == Where::local && w.frame->function->ptx->entry == false) return Where::local;
  } else if ((where == Where::shared || where == Where::shared_cluster) &&
             addr >> 32 == kSharedWindow >> 32) {
    addr &= 0xffffffffu;  // cvta'd addresses are accepted as ptxas accepts them
  }
  if (where == Where::param_func) where = Where::local;
  return where;
}

std::uint32_t note_origin(Warp& w, const Op& op, std::uint64_t addr, bool shared, std::string buffer,
                          std::int64_t offset) {
  auto& all = w.worker->origins;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].op == &op) return std::uint32_t(i);
  all.push_back({&op, addr, std::move(buffer), offset, shared});
  return std::uint32_t(all.size() - 1);
}

// The cache forgets everything when the kernel frees memory.
CachedRange& cached_range(Warp& w, const Op& op) {
  Worker& worker = *w.worker;
  const std::uint64_t frees = Heap::frees();
  if (worker.frees != frees) {
    worker.frees = frees;
    for (CachedRange& c : worker.cache) c = {};
  }
  return worker.cache[op.inst];
}

std::byte* global_at(Warp& w, const Op& op, int lane, std::uint64_t addr, std::uint64_t bytes,
                     Access access) {
  CachedRange& c = cached_range(w, op);
  if (!(addr >= c.base && bytes <= c.size && addr - c.base <= c.size - bytes)) {
    Allocation* a = w.worker->heap->find(addr, bytes);
    if (!a) {
      raise(w, op, lane, addr, global_problem(w, addr, bytes, access));
      return nullptr;
    }
    if (a->constant && access != Access::read && access != Access::async_read &&
        access != Access::address_only) {
      Problem p = global_problem(w, addr, bytes, access);
      p.cls = "oob.const";
      p.message = cat(verb(access), " constant memory '", a->name, "'");
      raise(w, op, lane, addr, p);
      return nullptr;
    }
    c = {a->base, a->size, a->host, a};
  }
  const std::uint64_t offset = addr - c.base;
  if (w.checks & std::uint32_t(Check::uninit)) {
    if (access == Access::write)
      c.allocation->mark(offset, bytes);
    else if (access == Access::read || access == Access::atomic) {
      if (!c.allocation->marked(offset, bytes)) {
        note_origin(w, op, addr, false, c.allocation->name, std::int64_t(offset));
        w.unwritten |= lane_bit(lane);
      }
    }
  }
  return c.host + offset;
}

std::byte* shared_at(Warp& w, const Op& op, int lane, std::uint64_t addr, std::uint64_t bytes, Access access,
                     Where where) {
  Cta* owner = addr >> 32 ? nullptr : shared_owner(w, std::uint32_t(addr));
  const std::uint64_t offset = addr & ((1u << kRankShift) - 1);
  if (!owner || (owner != w.cta && (where == Where::shared || owner->done)) || bytes > owner->shared_bytes ||
      offset > owner->shared_bytes - bytes) {
    raise(w, op, lane, addr, shared_problem(w, addr, bytes, access, where));
    return nullptr;
  }
  if (owner != w.cta && access != Access::address_only && access < Access::async_read)
    note_remote_access(w, op, *owner, lane, std::uint32_t(offset));
  if (w.checks & std::uint32_t(Check::uninit)) {
    if (access == Access::write)
      shared_mark(*owner, offset, bytes);
    else if ((access == Access::read || access == Access::atomic) && !shared_marked(*owner, offset, bytes)) {
      if (overlaps_mbarrier(*owner, offset, bytes)) {
        w.report(Check::barrier, "mbarrier.state", op, lane_bit(lane),
                 cat("reads the bytes of the live mbarrier @", hex(offset), ": they are opaque"),
                 "mbarrier.test_wait or try_wait ask for its phase; mbarrier.inval gives the bytes back",
                 addr);
        return owner->shared.get() + offset;
      }
      std::int64_t inside = 0;
      std::string variable = shared_variable(*w.worker->launch, std::uint32_t(offset), &inside);
      note_origin(w, op, addr, true, std::move(variable), inside);
      w.unwritten |= lane_bit(lane);
    }
  }
  return owner->shared.get() + offset;
}

std::byte* local_at(Warp& w, const Op& op, int lane, std::uint64_t addr, std::uint64_t bytes, Access access) {
  const std::uint64_t top = w.frame->local_top[std::size_t(lane)];
  if (bytes > top || addr > top - bytes) {
    Problem p;
    p.cls = "oob.local";
    p.buffer = kLocalBuffer;
    p.offset = std::int64_t(addr);
    p.message = cat(verb(access), " ", bytes, " bytes of local memory at ", hex(addr),
                    ": the thread's stack has ", top, " bytes");
    raise(w, op, lane, addr, p);
    return nullptr;
  }
  if (w.checks & std::uint32_t(Check::uninit)) {
    if (access == Access::write) {
      mark_local(w, lane, addr, bytes);
    } else if (access == Access::read && !marked_local(w, lane, addr, bytes)) {
      note_origin(w, op, addr, false, std::string(kLocalBuffer), std::int64_t(addr));
      w.unwritten |= lane_bit(lane);
    }
  }
  return w.local.get() + std::size_t(lane) * w.local_stride + addr;
}

std::byte* param_at(Warp& w, const Op& op, int lane, std::uint64_t addr, std::uint64_t bytes, Access access) {
  auto& params = w.worker->launch->devices[w.cta->cluster->device].params;
  if (bytes > params.size() || addr > params.size() - bytes || access == Access::write ||
      access == Access::atomic) {
    Problem p;
    p.cls = "oob.param";
    p.message = cat(verb(access), " ", bytes, " bytes of the kernel parameters at offset ", addr,
                    ": there are ", params.size(), " bytes, read only");
    raise(w, op, lane, addr, p);
    return nullptr;
  }
  return params.data() + addr;
}

// Where the driver puts the byte at `offset` of Launch::params in the constant bank, whose own variables lie
// before the parameters: only what is declared with an alignment above 16 has one.
std::uint64_t in_constant_bank(const LaunchState& launch, std::uint64_t offset) {
  const bool hopper = launch.properties->arch.starts_with("sm_90");
  std::uint64_t at = hopper ? 0x210 : 0x380;
  const Function& f = *launch.entry;
  for (std::size_t i = 0; i < f.params.size(); ++i) {
    const std::uint64_t align = std::max(1u, f.ptx->params[i].alignment());
    at = (at + align - 1) / align * align;
    if (offset < f.params[i].offset + f.params[i].bytes) return at + offset - f.params[i].offset;
    at += f.params[i].bytes;
  }
  return at;
}

std::byte* access_at(Warp& w, const Op& op, int lane, Where where, std::uint64_t addr, std::uint64_t bytes,
                     Access access, std::uint32_t align) {
  where = normalise(w, where, addr);
  const std::uint64_t placed =
      where == Where::param_entry && align > 16 ? in_constant_bank(*w.worker->launch, addr) : addr;
  if (align > 1 && placed % align != 0) {
    misaligned(w, op, lane, where, placed, align);
    return nullptr;
  }
  switch (where) {
    case Where::shared:
    case Where::shared_cluster:
      return shared_at(w, op, lane, addr, bytes, access, where);
    case Where::local:
      return local_at(w, op, lane, addr, bytes, access);
    case Where::param_entry:
      return param_at(w, op, lane, addr, bytes, access);
    default:
      return global_at(w, op, lane, addr, bytes, access);
  }
}
}  // namespace

namespace {
// What one look at the addresses of a warp tells.
struct Extent {
  std::uint64_t low = ~0ull, span = 0;  ///< first byte, and bytes up to the last
  bool aligned = false, dense = false;  ///< dense: lane l is at low + l * bytes
};

Extent extent_of(const std::uint64_t* addr, std::uint32_t bytes, Mask lanes, std::uint32_t align) {
  Extent e;
  std::uint64_t high = 0, bits = 0;
  if (lanes == ~Mask(0)) {
    std::uint64_t apart = 0;
    for (int l = 0; l < kLanes; ++l) apart |= (addr[l] - addr[0]) ^ (std::uint64_t(l) * bytes);
    if (apart == 0)
      return {addr[0], std::uint64_t(kLanes) * bytes, ((addr[0] | bytes) & (align - 1)) == 0, true};
    for (int l = 0; l < kLanes; ++l) {
      e.low = std::min(e.low, addr[l]);
      high = std::max(high, addr[l]);
      bits |= addr[l];
    }
  } else {
    for_lanes(lanes, [&](int l) {
      e.low = std::min(e.low, addr[l]);
      high = std::max(high, addr[l]);
      bits |= addr[l];
    });
  }
  e.span = high - e.low + bytes;
  e.aligned = (bits & (align - 1)) == 0 && e.span >= bytes;  // else all of memory, and the sum has wrapped
  return e;
}

// Initialised bits of an access that lies inside one range; false when a read meets bytes never written.
template <class MarkRange, class Marked>
bool touch(const Extent& e, const std::uint64_t* addr, std::uint64_t base, std::uint32_t bytes, Mask lanes,
           bool write, MarkRange&& mark, Marked&& marked) {
  if (e.dense) {
    if (!write) return marked(e.low - base, e.span);
    mark(e.low - base, e.span);
    return true;
  }
  bool all = true;
  for_lanes(lanes, [&](int l) {
    if (write)
      mark(addr[l] - base, std::uint64_t(bytes));
    else
      all = all && marked(addr[l] - base, std::uint64_t(bytes));
  });
  return all;
}

// All lanes inside one known range: one check for the warp. False: the lanes must be looked at one by one.
bool resolve_range(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes,
                   Access access, Mask lanes, std::byte** out, std::uint32_t align) {
  const Extent e = extent_of(addr, bytes, lanes, align);
  if (!e.aligned) return false;
  const bool track = (w.checks & std::uint32_t(Check::uninit)) && access < Access::async_read;
  const bool write = access == Access::write;
  std::byte* host = nullptr;
  std::uint64_t base = 0;
  if (where == Where::global || where == Where::generic || where == Where::constant) {
    const CachedRange& c = cached_range(w, op);
    if (!(e.low >= c.base && e.span <= c.size && e.low - c.base <= c.size - e.span)) return false;
    host = c.host;
    base = c.base;
    Allocation& a = *c.allocation;
    if (track && !touch(
                     e, addr, base, bytes, lanes, write, [&](auto at, auto n) { a.mark(at, n); },
                     [&](auto at, auto n) { return a.marked(at, n); }))
      return false;
  } else if (where == Where::shared) {
    Cta& cta = *w.cta;
    base = cta.shared_base();
    if (e.low < base || e.span > cta.shared_bytes || e.low - base > cta.shared_bytes - e.span) return false;
    host = cta.shared.get();
    if (track && !touch(
                     e, addr, base, bytes, lanes, write, [&](auto at, auto n) { shared_mark(cta, at, n); },
                     [&](auto at, auto n) { return shared_marked(cta, at, n); }))
      return false;
  } else {
    return false;
  }
  const auto origin = reinterpret_cast<std::uintptr_t>(host) - base;
  for (int l = 0; l < kLanes; ++l) out[l] = reinterpret_cast<std::byte*>(origin + addr[l]);
  return true;
}
}  // namespace

Mask resolve(Warp& w, const Op& op, Where where, const std::uint64_t* addr, std::uint32_t bytes,
             Access access, Mask lanes, std::byte** out, std::uint32_t align) {
  if (!align) align = bytes;
  if (resolve_range(w, op, where, addr, bytes, access, lanes, out, align)) return lanes;
  Mask ok = 0;
  for_lanes(lanes, [&](int l) {
    out[l] = access_at(w, op, l, where, addr[l], bytes, access, align);
    if (out[l]) ok |= lane_bit(l);
  });
  return ok;
}

std::byte* resolve_one(Warp& w, const Op& op, Where where, std::uint64_t addr, std::uint64_t bytes,
                       Access access, int lane, std::uint32_t align) {
  return access_at(w, op, lane, where, addr, bytes, access, align);
}

void mark_written(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes) {
  if (!(w.checks & std::uint32_t(Check::uninit))) return;
  where = normalise(w, where, addr);
  if (where == Where::shared || where == Where::shared_cluster) {
    Cta* owner = shared_owner(w, std::uint32_t(addr));
    if (owner) shared_mark(*owner, addr & ((1u << kRankShift) - 1), bytes);
  } else if (where == Where::global) {
    if (Allocation* a = w.worker->heap->find(addr, bytes)) a->mark(addr - a->base, bytes);
  }
}

bool is_written(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes) {
  where = normalise(w, where, addr);
  if (where == Where::shared || where == Where::shared_cluster) {
    Cta* owner = shared_owner(w, std::uint32_t(addr));
    return !owner || owner->shared_init.empty() ||
           shared_marked(*owner, addr & ((1u << kRankShift) - 1), bytes);
  }
  if (where != Where::global && where != Where::constant) return true;
  Allocation* a = w.worker->heap->find(addr, bytes);
  return !a || a->marked(addr - a->base, bytes);
}

bool is_written_for(Warp& w, int lane, Where where, std::uint64_t addr, std::uint64_t bytes) {
  std::uint64_t at = addr;
  if (normalise(w, where, at) == Where::local) return partly_marked_local(w, lane, at, bytes);
  return is_written(w, where, addr, bytes);
}

void mark_unwritten(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes) {
  where = normalise(w, where, addr);
  if (where != Where::shared && where != Where::shared_cluster) return;
  if (Cta* owner = shared_owner(w, std::uint32_t(addr)); owner && !owner->shared_init.empty())
    shared_unmark(*owner, addr & ((1u << kRankShift) - 1), bytes);
}

void store_unwritten(Warp& w, Where where, std::uint64_t addr, std::uint64_t bytes, std::uint32_t origin) {
  mark_unwritten(w, where, addr, bytes);
  normalise(w, where, addr);
  Cta* owner = shared_owner(w, std::uint32_t(addr));
  const auto at = std::uint32_t(addr) & ((1u << kRankShift) - 1);
  for (std::uint64_t word = at / 4; owner && word <= (at + bytes - 1) / 4; ++word)
    owner->shared_origin[std::uint32_t(word)] = origin;
}

std::optional<std::uint32_t> stored_origin(Warp& w, Where where, std::uint64_t addr) {
  where = normalise(w, where, addr);
  if (where != Where::shared && where != Where::shared_cluster) return {};
  const Cta* owner = shared_owner(w, std::uint32_t(addr));
  if (!owner) return {};
  const auto found = owner->shared_origin.find((std::uint32_t(addr) & ((1u << kRankShift) - 1)) / 4);
  return found == owner->shared_origin.end() ? std::nullopt : std::optional(found->second);
}

std::uint32_t shared_origin(Warp& w, const Op& op, const Cta& cta, std::uint32_t at) {
  if (const auto found = cta.shared_origin.find(at / 4); found != cta.shared_origin.end())
    return found->second;
  std::int64_t inside = 0;
  std::string variable = shared_variable(*w.worker->launch, at, &inside);
  const std::uint32_t origin = note_origin(w, op, cta.shared_base() | at, true, variable, inside);
  // The check of the whole range may have noted its begin.
  w.worker->origins[origin] = {&op, cta.shared_base() | at, std::move(variable), inside, true};
  return origin;
}

}  // namespace cgp::emu
