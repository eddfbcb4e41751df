// SPDX-License-Identifier: Apache-2.0
// The emulator as a device. Work is done at once, in issue order; what goes wrong is kept and thrown by the
// next wait, so that callers meet errors where a GPU reports them.
#include "cgp/runtime/emu_device_impl.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <unordered_map>

#include "cgp/base/text.h"
#include "cgp/ptx/occupancy.h"
#include "cgp/ptx/pressure.h"

namespace cgp::runtime {
namespace {
using text::cat;

constexpr std::array<std::string_view, 7> kArchs = {"sm_90a",  "sm_80",   "sm_86", "sm_89",
                                                    "sm_100a", "sm_120a", "sm_75"};
constexpr int kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY: callers meet one code on every device

emu::Dim3 to_emu(Dim3 d) { return {d.x, d.y, d.z}; }

std::uint64_t host_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? std::uint64_t(pages) * std::uint64_t(page) / 4 * 3 : 1ull << 32;
}

DeviceInfo describe(std::string_view arch) {
  const emu::DeviceProperties p = emu::device_properties(arch);
  DeviceInfo i;
  i.spec = cat("emu:", p.arch);
  i.name = cat("PTX emulator (", p.arch, ")");
  i.kind = DeviceKind::emulator;
  i.arch = p.arch;
  const int cc = std::atoi(p.arch.c_str() + 3);
  i.cc_major = cc / 10;
  i.cc_minor = cc % 10;
  i.sm_count = p.sm_count;
  i.memory_bytes = host_memory();
  i.warp_size = p.warp_size;
  i.max_threads_per_block = p.max_threads_per_block;
  i.max_threads_per_sm = p.max_warps_per_sm * p.warp_size;
  i.max_blocks_per_sm = p.max_blocks_per_sm;
  i.max_cluster = cc >= 90 ? int(p.max_cluster) : 1;
  i.smem_per_block = p.shared_per_block;
  i.smem_per_block_optin = p.shared_per_block_optin;
  i.smem_per_sm = p.shared_per_sm;
  i.smem_reserved_per_block = cc >= 80 ? 1024 : 0;
  i.registers_per_sm = i.registers_per_block = p.registers_per_sm;
  i.cooperative_launch = true;
  i.managed_memory = true;
  i.tensor_maps = cc >= 90;
  return i;
}

std::string findings_text(const std::string& kernel, const emu::Result& r) {
  std::string s =
      cat("kernel ", kernel, ": ", r.findings.size(), r.findings.size() == 1 ? " finding" : " findings");
  for (const emu::Finding& f : r.findings) s += cat("\n", emu::describe(f));
  return s;
}

// Devices that load the same text share its program: it is decoded once, and they can run it together.
class Programs {
 public:
  std::shared_ptr<const emu::Program> load(const std::string& ptx) {
    if (auto known = find(ptx)) return known;
    auto fresh = emu::Program::load(ptx);  // outside the lock: several threads may load
    const std::lock_guard lock(mutex_);
    if (auto known = find_locked(ptx)) return known;
    std::erase_if(all_, [](const auto& entry) { return entry.second.program.expired(); });
    all_.emplace(std::hash<std::string>()(ptx), Entry{ptx, fresh});
    return fresh;
  }

 private:
  struct Entry {
    std::string ptx;
    std::weak_ptr<const emu::Program> program;
  };
  std::shared_ptr<const emu::Program> find(const std::string& ptx) {
    const std::lock_guard lock(mutex_);
    return find_locked(ptx);
  }
  std::shared_ptr<const emu::Program> find_locked(const std::string& ptx) const {
    for (auto [it, end] = all_.equal_range(std::hash<std::string>()(ptx)); it != end; ++it)
      if (it->second.ptx == ptx)
        if (auto program = it->second.program.lock()) return program;
    return nullptr;
  }
  std::mutex mutex_;
  std::unordered_multimap<std::size_t, Entry> all_;
};
std::shared_ptr<const emu::Program> load_program(const std::string& ptx) {
  static Programs all;
  return all.load(ptx);
}

class EmuEvent final : public EventState {
 public:
  double milliseconds_since(const EventState&) const override {
    throw Unsupported({"the emulator has no clock",
                       {},
                       "events order work, they do not time it",
                       "take the exact counters of Device::last_result, or time on a GPU"});
  }
  void wait() const override {}  // what was issued is done
  bool complete() const override { return true; }
  mutable std::shared_ptr<EmuCapture> capture;
};

class EmuGraph final : public GraphState {
 public:
  explicit EmuGraph(std::vector<std::function<void()>> work) : work(std::move(work)) {}
  std::size_t size() const override { return work.size(); }
  const std::vector<std::function<void()>> work;
};

class EmuQueue final : public Queue {
 public:
  explicit EmuQueue(EmuBackend& b) : b_(b) {}
  ~EmuQueue() override {
    if (pending_) try {
        std::rethrow_exception(std::exchange(pending_, nullptr));
      } catch (const std::exception& e) {
        log(cat("a stream was destroyed before this was reported: ", e.what()));
      }
    if (EmuGroup* group = EmuGroup::of_issuer()) group->drop(*this);
    b_.forget(this);
  }
  void copy_to_device(std::uint64_t dst, const void* src, std::size_t n) override {
    issue([=, &b = b_] { b.write(dst, src, n); });
  }
  void copy_to_host(void* dst, std::uint64_t src, std::size_t n) override {
    issue([=, &b = b_] { b.read(dst, src, n); });
  }
  void copy(std::uint64_t dst, std::uint64_t src, std::size_t n) override {
    issue([=, &b = b_] { b.machine_copy(dst, src, n); });
  }
  void copy_2d(const Copy2d& c) override {
    issue([c, &b = b_] {
      for (std::size_t row = 0; row < c.height; ++row) {
        const std::uint64_t d = c.dst + row * c.dst_pitch, s = c.src + row * c.src_pitch;
        if (c.host_src)
          b.write(d, static_cast<const char*>(c.host_src) + row * c.src_pitch, c.width);
        else if (c.host_dst)
          b.read(static_cast<char*>(c.host_dst) + row * c.dst_pitch, s, c.width);
        else
          b.machine_copy(d, s, c.width);
      }
    });
  }
  void fill(std::uint64_t dst, std::uint8_t value, std::size_t n) override {
    issue([=, &b = b_] { b.machine_fill(dst, value, n); });
  }
  void launch(const Code& code, const Shape& shape, std::span<const Arg> args) override {
    const auto& emu_code = static_cast<const EmuCode&>(code);
    issue([&emu_code, shape, params = emu_code.pack(args), &b = b_] { b.run(emu_code, shape, params); });
  }
  void record(EventState& e) override {
    capture();
    static_cast<EmuEvent&>(e).capture = capture_;
  }
  void wait_for(const EventState& e) override {
    if (auto c = static_cast<const EmuEvent&>(e).capture; c && !c->ended)
      capture_ = c;  // forked into the capture
  }
  void wait() override {
    if (capture()) throw ArgumentError("a stream cannot be waited for while its work is being captured");
    if (EmuGroup::of_issuer()) throw ArgumentError("nothing can be waited for inside launch_together()");
    throw_pending();
  }
  bool complete() override {
    throw_pending();
    return true;
  }
  bool capturing() override { return capture() != nullptr; }
  void begin_capture() override {
    if (capture()) throw ArgumentError("this stream is being captured already");
    capture_ = std::make_shared<EmuCapture>();
  }
  std::shared_ptr<GraphState> end_capture() override {
    auto c = std::exchange(capture_, nullptr);
    c->ended = true;
    return std::make_shared<EmuGraph>(std::move(c->work));
  }
  void abandon_capture() noexcept override {
    if (auto c = std::exchange(capture_, nullptr)) c->ended = true;
  }
  void replay(GraphState& g) override {
    auto* graph = dynamic_cast<EmuGraph*>(&g);
    if (!graph) throw ArgumentError("a graph is replayed on the device it was made for");
    for (const auto& work : graph->work) issue(work);
  }
  void throw_pending() {
    if (pending_) std::rethrow_exception(std::exchange(pending_, nullptr));
  }

 private:
  void fail(std::exception_ptr e) {
    if (!pending_) pending_ = std::move(e);
  }
  EmuCapture* capture() {
    if (capture_ && capture_->ended) capture_.reset();
    return capture_.get();
  }
  template <class F>
  void issue(F&& work) {
    if (EmuCapture* c = capture()) {
      c->work.emplace_back(std::forward<F>(work));
      return;
    }
    if (EmuGroup* group = EmuGroup::of_issuer())
      return group->keep(*this, std::forward<F>(work), [this](std::exception_ptr e) { fail(std::move(e)); });
    try {
      work();
    } catch (const ArgumentError&) {
      throw;  // the caller's mistake, known at once
    } catch (...) {
      fail(std::current_exception());
    }
  }
  EmuBackend& b_;
  std::shared_ptr<EmuCapture> capture_;
  std::exception_ptr pending_;
};

class EmuGraphBuilder final : public GraphBuilderState {
 public:
  explicit EmuGraphBuilder(EmuBackend& b) : b_(b) {}
  std::size_t kernel(const Code& code, const Shape& shape, std::span<const Arg> args,
                     std::span<const std::size_t> after) override {
    const auto& emu_code = static_cast<const EmuCode&>(code);
    return add(after,
               [&b = b_, &emu_code, shape, params = emu_code.pack(args)] { b.run(emu_code, shape, params); });
  }
  std::size_t copy(std::uint64_t dst, std::uint64_t src, std::size_t n,
                   std::span<const std::size_t> after) override {
    return add(after, [&b = b_, dst, src, n] { b.machine_copy(dst, src, n); });
  }
  std::size_t fill(std::uint64_t dst, std::uint8_t v, std::size_t n,
                   std::span<const std::size_t> after) override {
    return add(after, [&b = b_, dst, v, n] { b.machine_fill(dst, v, n); });
  }
  std::shared_ptr<GraphState> finish() override { return std::make_shared<EmuGraph>(std::move(work_)); }

 private:
  // Nodes name earlier nodes only, so the order they were added in respects every dependency.
  std::size_t add(std::span<const std::size_t> after, std::function<void()> work) {
    for (std::size_t i : after)
      if (i >= work_.size())
        throw ArgumentError({"a graph node depends on earlier nodes of its own builder",
                             {},
                             cat("node ", work_.size(), " names node ", i),
                             {}});
    work_.push_back(std::move(work));
    return work_.size() - 1;
  }
  EmuBackend& b_;
  std::vector<std::function<void()>> work_;
};

class EmuModule final : public ModuleState {
 public:
  EmuModule(std::shared_ptr<EmuBackend> b, std::string ptx)
      : b_(std::move(b)),
        ptx_(std::make_shared<const std::string>(std::move(ptx))),
        program_(load_program(*ptx_)) {
    instance_ = b_->place(program_);
  }
  ~EmuModule() override {
    codes_.clear();
    b_->unplace(instance_);
  }
  std::vector<std::string> entries() const override {
    std::vector<std::string> names;
    for (const emu::EntryInfo& e : program_->entries()) names.push_back(e.name);
    return names;
  }
  std::shared_ptr<const Code> kernel(std::string_view entry) override {
    auto it = codes_.find(entry);
    if (it == codes_.end()) {
      program_->entry(entry);  // throws with the closest names
      it = codes_
               .emplace(std::string(entry), std::make_unique<EmuCode>(*b_, image_from_ptx(*ptx_, entry),
                                                                      program_, instance_, false))
               .first;
    }
    return {shared_from_this_module(), it->second.get()};
  }
  Slice<std::byte> variable(std::string_view name) override {
    const auto s = b_->variable(instance_, name);
    if (!s) throw ArgumentError(cat("the module has no variable ", name));
    return {b_.get(), s->address, s->bytes};
  }
  std::weak_ptr<EmuModule> self;

 private:
  std::shared_ptr<EmuModule> shared_from_this_module() { return self.lock(); }
  std::shared_ptr<EmuBackend> b_;
  std::shared_ptr<const std::string> ptx_;
  std::shared_ptr<const emu::Program> program_;
  emu::InstanceHandle instance_;
  std::map<std::string, std::unique_ptr<EmuCode>, std::less<>> codes_;
};

}  // namespace

// ---------------------------------------------------------------- code
EmuCode::EmuCode(EmuBackend& b, const KernelImage& image, std::shared_ptr<const emu::Program> p,
                 emu::InstanceHandle i, bool owns)
    : Code(b, image),
      program(std::move(p)),
      instance(std::move(i)),
      entry(program->entry(image.entry)),
      owner(b),
      owns_instance(owns) {
  static_smem = entry.static_shared;
  if (!entry.unsupported.empty())
    throw Unsupported({cat("the emulator cannot run ", image.name), {}, entry.unsupported, {}});
  if (std::string why = reject_target(program->target(), b.info().arch); !why.empty())
    throw Unsupported(
        {cat("kernel ", image.name, " does not run here"), {}, why, cat("open emu:", program->target())});
  if (entry.params.size() != image.params.size())
    throw ArgumentError({cat("the image of ", image.name, " must describe the entry's parameters"),
                         {},
                         cat("it names ", image.params.size(), ", the PTX declares ", entry.params.size()),
                         {}});
  for (std::size_t k = 0; k < entry.params.size(); ++k)
    if (entry.params[k].size != image.params[k].bytes)
      throw ArgumentError({cat("the image of ", image.name, " must describe the entry's parameters"),
                           {},
                           cat("parameter ", k, " \"", image.params[k].name, "\" has ", image.params[k].bytes,
                               " bytes, in the PTX ", entry.params[k].size),
                           {}});
}
EmuCode::~EmuCode() {
  if (owns_instance) owner.unplace(instance);
}
std::vector<std::byte> EmuCode::pack(std::span<const Arg> args) const {
  std::vector<std::byte> out(entry.param_bytes);
  for (std::size_t k = 0; k < args.size(); ++k) {
    const void* from = args[k].data ? args[k].data : static_cast<const void*>(&args[k].word);
    std::memcpy(out.data() + entry.params[k].offset, from, entry.params[k].size);
  }
  return out;
}
KernelAttributes EmuCode::attributes() const {
  KernelAttributes a;
  a.static_smem = static_smem;
  a.estimated_registers = estimated_registers();
  a.max_threads_per_block = int(image.max_threads_per_block);
  a.code_arch = program->target();
  return a;
}
int EmuCode::blocks_per_sm(Dim3 block, std::uint32_t dynamic_smem) const {
  const ptx::LaunchShape shape{int(block.count()), estimated_registers(),
                               std::uint64_t(dynamic_smem) + static_smem};
  return ptx::occupancy(owner.info().cc(), shape).blocks;
}
int EmuCode::estimated_registers() const {
  const ptx::Function* f = program->module().find(image.entry);
  // Fewer than 16 never limit anything.
  return f ? std::clamp(ptx::pressure(*f).at_peak.total(), 16, 255) : 255;
}
int EmuCode::max_active_clusters(const Shape& s) const {
  return blocks_per_sm(s.block, s.dynamic_smem) * owner.info().sm_count / int(s.cluster.count());
}

// ---------------------------------------------------------------- backend
EmuBackend::EmuBackend(std::string_view arch) : machine_(std::string(arch)) { info_ = describe(arch); }
EmuBackend::~EmuBackend() { drop_children(); }

std::uint64_t EmuBackend::alloc(std::size_t bytes, std::string_view name) {
  std::lock_guard lock(mutex_);
  if (bytes > info_.memory_bytes - used_)
    throw DriverError(kOutOfMemory,
                      {"the device is out of memory",
                       info_.spec,
                       cat(text::bytes(bytes), " wanted, ", text::bytes(info_.memory_bytes - used_), " of ",
                           text::bytes(info_.memory_bytes), " free"),
                       {}});
  std::uint64_t address = 0;
  try {
    address = machine_.alloc(bytes, std::string(name));
  } catch (const std::bad_alloc&) {
    throw DriverError(kOutOfMemory,
                      {"the device is out of memory", info_.spec, cat(text::bytes(bytes), " wanted"), {}});
  }
  sizes_[address] = bytes;
  used_ += bytes;
  return address;
}
void EmuBackend::release(std::uint64_t address) noexcept {
  try {
    std::lock_guard lock(mutex_);
    machine_.free(address);
    auto it = sizes_.find(address);
    used_ -= it->second;
    sizes_.erase(it);
  } catch (const std::exception& e) {
    log(cat("freeing memory of ", info_.spec, ": ", e.what()));
  }
}
MemoryUse EmuBackend::memory() const {
  std::lock_guard lock(mutex_);
  return {info_.memory_bytes - used_, info_.memory_bytes};
}
void EmuBackend::write(std::uint64_t dst, const void* src, std::size_t n) {
  std::lock_guard lock(mutex_);
  machine_.write(dst, {static_cast<const std::byte*>(src), n});
}
void EmuBackend::read(void* dst, std::uint64_t src, std::size_t n) {
  std::lock_guard lock(mutex_);
  machine_.read(src, {static_cast<std::byte*>(dst), n});
}
void EmuBackend::machine_copy(std::uint64_t dst, std::uint64_t src, std::size_t n) {
  std::lock_guard lock(mutex_);
  machine_.copy(dst, src, n);
}
void EmuBackend::machine_fill(std::uint64_t dst, std::uint8_t value, std::size_t n) {
  std::lock_guard lock(mutex_);
  machine_.fill(dst, value, n);
}
void EmuBackend::copy_to_device(std::uint64_t dst, const void* src, std::size_t n) {
  throw_pending();
  write(dst, src, n);
}
void EmuBackend::copy_to_host(void* dst, std::uint64_t src, std::size_t n) {
  throw_pending();
  read(dst, src, n);
}
void EmuBackend::copy(std::uint64_t dst, std::uint64_t src, std::size_t n) {
  throw_pending();
  machine_copy(dst, src, n);
}
void EmuBackend::fill(std::uint64_t dst, std::uint8_t value, std::size_t n) {
  throw_pending();
  machine_fill(dst, value, n);
}
std::uint64_t EmuBackend::alloc_managed(std::size_t bytes) {
  const std::uint64_t address = alloc(bytes, {});
  machine_fill(address, 0,
               bytes);  // the host writes past the emulator's book-keeping: all of it counts as written
  return address;
}
std::byte* EmuBackend::host_pointer(std::uint64_t address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  return machine_.host_pointer(address, bytes);
}
void* EmuBackend::alloc_pinned(std::size_t bytes) { return ::operator new(bytes, std::align_val_t(4096)); }
void EmuBackend::free_pinned(void* p) noexcept { ::operator delete(p, std::align_val_t(4096)); }

std::unique_ptr<Queue> EmuBackend::make_queue() {
  auto q = std::make_unique<EmuQueue>(*this);
  std::lock_guard lock(mutex_);
  queues_.push_back(q.get());
  return q;
}
void EmuBackend::forget(Queue* q) {
  std::lock_guard lock(mutex_);
  std::erase(queues_, q);
}
void EmuBackend::throw_pending() {
  std::vector<Queue*> queues;
  {
    std::lock_guard lock(mutex_);
    queues = queues_;
  }
  for (Queue* q : queues) static_cast<EmuQueue*>(q)->throw_pending();
}
void EmuBackend::sync() { throw_pending(); }
std::shared_ptr<EventState> EmuBackend::make_event() { return std::make_shared<EmuEvent>(); }
std::unique_ptr<GraphBuilderState> EmuBackend::make_graph_builder() {
  return std::make_unique<EmuGraphBuilder>(*this);
}

emu::InstanceHandle EmuBackend::place(const std::shared_ptr<const emu::Program>& p) {
  std::lock_guard lock(mutex_);
  return machine_.load(p);
}
void EmuBackend::unplace(const emu::InstanceHandle& i) noexcept {
  try {
    std::lock_guard lock(mutex_);
    machine_.unload(i);
  } catch (const std::exception& e) {
    log(cat("unloading a module of ", info_.spec, ": ", e.what()));
  }
}
std::optional<emu::Symbol> EmuBackend::variable(const emu::InstanceHandle& i, std::string_view name) {
  std::lock_guard lock(mutex_);
  return machine_.symbol(i, name);
}
std::unique_ptr<Code> EmuBackend::make_code(const KernelImage& image) {
  auto program = load_program(*image.ptx);
  auto instance = place(program);
  return std::make_unique<EmuCode>(*this, image, std::move(program), std::move(instance), true);
}
std::shared_ptr<ModuleState> EmuBackend::load_module(std::string ptx) {
  auto m =
      std::make_shared<EmuModule>(std::static_pointer_cast<EmuBackend>(shared_from_this()), std::move(ptx));
  m->self = m;
  return m;
}

void EmuBackend::run(const EmuCode& code, const Shape& s, const std::vector<std::byte>& params) {
  EmuLaunch one{this, &code, s, params};
  if (EmuGroup* group = EmuGroup::of_runner()) return group->hold(std::move(one));
  run_together(std::span(&one, 1));
}

namespace {
void check_together(std::span<const EmuLaunch> all) {
  const auto refuse = [&](std::string why) {
    throw Unsupported({"the emulator runs one kernel with one shape together, once for each device",
                       cat("kernel ", all[0].code->image.name), std::move(why),
                       "give each launch_together() launches that wait for each other, and no others"});
  };
  for (std::size_t i = 1; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j)
      if (all[i].device == all[j].device) refuse("two streams of one device have a kernel next");
    if (all[i].code->program != all[0].code->program || all[i].code->image.entry != all[0].code->image.entry)
      refuse(cat("device ", i, " runs ", all[i].code->image.name));
    if (all[i].shape != all[0].shape) refuse(cat("device ", i, " has another grid, block or shared memory"));
  }
}
}  // namespace

void EmuBackend::run_together(std::span<const EmuLaunch> all) {
  check_together(all);
  // Memory of peers may be used: nothing else runs there meanwhile. Always locked in one order.
  std::vector<std::shared_ptr<Backend>> used;
  for (const EmuLaunch& l : all) {
    used.push_back(l.device->shared_from_this());
    for (auto& p : l.device->peers()) used.push_back(std::move(p));
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  std::vector<std::unique_lock<std::recursive_mutex>> locks;
  for (const auto& u : used) locks.emplace_back(static_cast<EmuBackend&>(*u).mutex_);

  const EmuCode& code = *all[0].code;
  const Shape& s = all[0].shape;
  emu::Launch l;
  l.entry = code.image.entry;
  l.grid = to_emu(s.grid);
  l.block = to_emu(s.block);
  l.cluster = to_emu(s.cluster);
  l.dynamic_smem = s.dynamic_smem;
  l.cooperative = s.cooperative;
  std::vector<emu::DeviceLaunch> devices;
  for (const EmuLaunch& d : all) devices.push_back({&d.device->machine_, d.code->instance, d.params});
  const EmuBackend& first = *all[0].device;
  auto result = std::make_shared<const emu::Result>(emu::launch_together(devices, l, first.options_));
  for (const EmuLaunch& d : all) {
    auto& records = d.device->records_;
    const std::size_t keep = d.device->keep_;
    if (keep && records.size() >= keep)
      records.erase(records.begin(), records.end() - std::ptrdiff_t(keep) + 1);
    records.push_back({code.image.name.empty() ? code.image.entry : code.image.name, s.grid, s.block,
                       s.cluster, s.dynamic_smem, result});
  }
  if (first.policy_ == Device::Findings::throw_at_wait && !result->clean())
    throw EmuFault(findings_text(first.records_.back().kernel, *result));
}

bool EmuBackend::can_access_peer(const Backend& other) const {
  return dynamic_cast<const EmuBackend*>(&other) != nullptr;
}
void EmuBackend::enable_peer(Backend& other) {
  if (!can_access_peer(other)) return Backend::enable_peer(other);
  if (&other == this) return;
  std::lock_guard lock(mutex_);
  machine_.enable_peer(static_cast<EmuBackend&>(other).machine_);
  note_peer(other);
}
bool EmuBackend::copy_from_peer(std::uint64_t dst, Backend& peer, std::uint64_t src, std::size_t n) {
  auto* other = dynamic_cast<EmuBackend*>(&peer);
  if (!other) return false;
  throw_pending();
  other->throw_pending();
  const std::scoped_lock lock(mutex_, other->mutex_);
  machine_.copy_from(other->machine_, dst, src, n);
  return true;
}

// ---------------------------------------------------------------- Device's emulator part
namespace {
EmuBackend& emulator(const std::shared_ptr<Backend>& b) {
  auto* e = dynamic_cast<EmuBackend*>(b.get());
  if (!e)
    throw Unsupported({"counters, findings and options are the emulator's",
                       {},
                       cat("this device is ", b ? b->info().spec : std::string("empty")),
                       "Device::open(\"emu\")"});
  return *e;
}
}  // namespace

void Device::set_emulator_options(const emu::Options& o) const { emulator(backend_).options_ = o; }
const emu::Options& Device::emulator_options() const { return emulator(backend_).options_; }
void Device::set_findings(Findings policy) const { emulator(backend_).policy_ = policy; }
void Device::keep_results(std::size_t count) const { emulator(backend_).keep_ = count; }
const std::vector<LaunchRecord>& Device::results() const { return emulator(backend_).records_; }
const LaunchRecord& Device::last_result() const {
  const auto& r = emulator(backend_).records_;
  if (r.empty()) throw ArgumentError("there is no result before the first launch");
  return r.back();
}
void Device::clear_results() const { emulator(backend_).records_.clear(); }

std::shared_ptr<Backend> open_emulator(std::string_view arch) { return std::make_shared<EmuBackend>(arch); }
std::vector<std::string_view> emulator_archs() { return {kArchs.begin(), kArchs.end()}; }

}  // namespace cgp::runtime
