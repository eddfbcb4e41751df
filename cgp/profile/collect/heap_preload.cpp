// SPDX-License-Identifier: Apache-2.0
// libcgp_heap.so: loaded before a program's libraries (LD_PRELOAD), it counts what malloc and its relatives give, by the callers,
// and writes one file at the end. It takes no memory from the heap that it watches, and links nothing but the C library.
//   CGP_HEAP_OUT  file, to which ".PID" is added
//
// The file, one line each, numbers in decimal, addresses in hexadecimal:
//   M begin end offset path                                        executable memory of a file
//   S blocks bytes left_blocks left_bytes peak_bytes lifetime_ns addresses...   what one chain of callers allocated
//   T peak_bytes frees dropped                                     of the process
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <unwind.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

constexpr int kFrames = 10;
constexpr std::size_t kSites = 1 << 15;

struct Site {
  std::uintptr_t frames[kFrames];
  std::uint64_t blocks, bytes, left_blocks, left_bytes, peak_bytes, lifetime_ns;
  bool used;
};
struct Block {
  std::uintptr_t address;  // 0: free, 1: was used
  std::uint64_t bytes, born_ns;
  std::uint32_t site;
};

pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
Site* sites = nullptr;
Block* blocks = nullptr;
std::size_t room = 0, filled = 0;  // of blocks
std::uint64_t live = 0, peak = 0, at_snapshot = 0, frees = 0, dropped = 0;
bool rising = false, written = false;
char out_name[4096];
bool ready = false;
// initial-exec: the first access of a thread must not allocate
thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

template <class T>
T* mapped(std::size_t count) {
  void* at = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<T*>(at);
}

std::uint64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return std::uint64_t(t.tv_sec) * 1'000'000'000 + std::uint64_t(t.tv_nsec);
}

std::size_t hashed(std::uint64_t v) {
  v *= 0x9e3779b97f4a7c15ull;
  return std::size_t(v ^ (v >> 29));
}

struct Chain {
  std::uintptr_t frames[kFrames] = {};
  int count = -2;  // this function and the hook
};
_Unwind_Reason_Code walk(_Unwind_Context* context, void* into) {
  auto* chain = static_cast<Chain*>(into);
  if (chain->count >= 0) chain->frames[chain->count] = _Unwind_GetIP(context);
  return ++chain->count < kFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

std::uint32_t site_of(const Chain& chain) {
  std::uint64_t key = 1469598103934665603ull;
  for (auto f : chain.frames) key = (key ^ f) * 1099511628211ull;
  for (std::size_t i = hashed(key) % kSites, n = 0; n < kSites - 1; i = (i + 1) % kSites, ++n) {
    if (!sites[i].used) {
      if (n > 4096) break;
      sites[i].used = true;
      std::memcpy(sites[i].frames, chain.frames, sizeof chain.frames);
      return std::uint32_t(i);
    }
    if (std::memcmp(sites[i].frames, chain.frames, sizeof chain.frames) == 0) return std::uint32_t(i);
  }
  return kSites - 1;  // too many: they share one without callers
}

bool grow() {
  const std::size_t before = room;
  Block* old = blocks;
  room = room ? room * 2 : 1 << 16;
  Block* fresh = mapped<Block>(room);
  if (!fresh) {
    room = before;
    return false;
  }
  filled = 0;
  for (std::size_t i = 0; i < before; ++i) {
    if (old[i].address <= 1) continue;
    std::size_t at = hashed(old[i].address) & (room - 1);
    while (fresh[at].address) at = (at + 1) & (room - 1);
    fresh[at] = old[i], ++filled;
  }
  blocks = fresh;
  if (old) munmap(old, before * sizeof(Block));
  return true;
}

/// What each site had when most lived: taken when memory is freed for the first time after a peak that is 1 % higher.
void snapshot() {
  rising = false;
  if (peak < at_snapshot + at_snapshot / 100) return;
  at_snapshot = peak;
  for (std::size_t i = 0; i < kSites; ++i) sites[i].peak_bytes = sites[i].left_bytes;
}

void born(void* p, std::size_t bytes) {
  if (!p || !ready || inside) return;
  inside = true;
  const int saved = errno;
  Chain chain;
  _Unwind_Backtrace(walk, &chain);
  pthread_mutex_lock(&mutex);
  if (filled * 2 >= room && !grow()) {
    ++dropped;
  } else {
    Site& s = sites[site_of(chain)];
    ++s.blocks, s.bytes += bytes, ++s.left_blocks, s.left_bytes += bytes;
    live += bytes;
    if (live > peak) peak = live, rising = true;
    const auto address = reinterpret_cast<std::uintptr_t>(p);
    std::size_t at = hashed(address) & (room - 1);
    while (blocks[at].address > 1) at = (at + 1) & (room - 1);
    filled += blocks[at].address == 0;
    blocks[at] = {address, bytes, now_ns(), std::uint32_t(&s - sites)};
  }
  pthread_mutex_unlock(&mutex);
  errno = saved;
  inside = false;
}

void died(void* p) {
  if (!p || !ready || inside) return;
  inside = true;
  const int saved = errno;
  pthread_mutex_lock(&mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  for (std::size_t at = hashed(address) & (room - 1); room && blocks[at].address;
       at = (at + 1) & (room - 1)) {
    if (blocks[at].address != address) continue;
    if (rising) snapshot();
    Site& s = sites[blocks[at].site];
    --s.left_blocks, s.left_bytes -= blocks[at].bytes, s.lifetime_ns += now_ns() - blocks[at].born_ns;
    live -= blocks[at].bytes, ++frees;
    blocks[at].address = 1;
    break;
  }
  pthread_mutex_unlock(&mutex);
  errno = saved;
  inside = false;
}

void write_file() {
  if (!ready || written) return;
  inside = written = true;
  if (rising) snapshot();
  char name[4128];
  std::snprintf(name, sizeof name, "%s.%d", out_name, int(getpid()));
  const int file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (file < 0 || maps < 0) return;
  // stdio would allocate: lines are put together here
  static char text[1 << 16];
  std::size_t have = 0;
  char line[4608];
  for (ssize_t got; (got = read(maps, text + have, sizeof text - have - 1)) > 0;) {
    have += std::size_t(got);
    text[have] = 0;
    char* begin = text;
    for (char* end; (end = std::strchr(begin, '\n')); begin = end + 1) {
      *end = 0;
      unsigned long from = 0, to = 0, offset = 0;
      char mode[8] = {};
      int path = 0;
      if (std::sscanf(begin, "%lx-%lx %7s %lx %*s %*s %n", &from, &to, mode, &offset, &path) < 4 ||
          mode[2] != 'x')
        continue;
      if (path == 0 || begin[path] != '/') continue;
      const int n = std::snprintf(line, sizeof line, "M %lx %lx %lx %s\n", from, to, offset, begin + path);
      if (write(file, line, std::size_t(n)) != n) break;
    }
    have = std::size_t(text + have - begin);
    std::memmove(text, begin, have);
  }
  close(maps);
  for (std::size_t i = 0; i < kSites; ++i) {
    const Site& s = sites[i];
    if (s.blocks == 0) continue;
    int n = std::snprintf(
        line, sizeof line, "S %llu %llu %llu %llu %llu %llu", static_cast<unsigned long long>(s.blocks),
        static_cast<unsigned long long>(s.bytes), static_cast<unsigned long long>(s.left_blocks),
        static_cast<unsigned long long>(s.left_bytes), static_cast<unsigned long long>(s.peak_bytes),
        static_cast<unsigned long long>(s.lifetime_ns));
    for (auto f : s.frames)
      if (f)
        n += std::snprintf(line + n, sizeof line - std::size_t(n), " %lx", static_cast<unsigned long>(f));
    line[n++] = '\n';
    if (write(file, line, std::size_t(n)) != n) break;
  }
  const int n =
      std::snprintf(line, sizeof line, "T %llu %llu %llu\n", static_cast<unsigned long long>(peak),
                    static_cast<unsigned long long>(frees), static_cast<unsigned long long>(dropped));
  if (write(file, line, std::size_t(n)) != n) unlink(name);
  close(file);
}

/// A child that was forked counts from then on.
void in_child() {
  pthread_mutex_init(&mutex, nullptr);
  for (std::size_t i = 0; i < kSites; ++i) {
    Site& s = sites[i];
    s.blocks = s.bytes = s.left_blocks = s.left_bytes = s.peak_bytes = s.lifetime_ns = 0;
  }
  if (blocks) std::memset(static_cast<void*>(blocks), 0, room * sizeof(Block));
  filled = 0, live = peak = at_snapshot = frees = dropped = 0;
}

__attribute__((constructor)) void begin() {
  const char* out = std::getenv("CGP_HEAP_OUT");
  if (!out || !*out || std::strlen(out) >= sizeof out_name) return;
  std::strcpy(out_name, out);
  sites = mapped<Site>(kSites);
  if (!sites || !grow()) return;
  pthread_atfork([] { pthread_mutex_lock(&mutex); }, [] { pthread_mutex_unlock(&mutex); }, in_child);
  ready = true;
}
__attribute__((destructor)) void end() { write_file(); }

}  // namespace

#define CGP_HOOK extern "C" __attribute__((visibility("default"), noinline))

CGP_HOOK void* malloc(size_t n) {
  void* p = __libc_malloc(n);
  born(p, n);
  return p;
}
CGP_HOOK void* calloc(size_t n, size_t each) {
  void* p = __libc_calloc(n, each);
  born(p, n * each);
  return p;
}
CGP_HOOK void* realloc(void* old, size_t n) {
  died(old);
  void* p = __libc_realloc(old, n);
  born(p, n);
  return p;
}
CGP_HOOK void* memalign(size_t alignment, size_t n) {
  void* p = __libc_memalign(alignment, n);
  born(p, n);
  return p;
}
CGP_HOOK void* aligned_alloc(size_t alignment, size_t n) {
  void* p = __libc_memalign(alignment, n);
  born(p, n);
  return p;
}
CGP_HOOK int posix_memalign(void** into, size_t alignment, size_t n) {
  if (alignment < sizeof(void*) || (alignment & (alignment - 1))) return EINVAL;
  void* p = __libc_memalign(alignment, n);
  if (!p) return ENOMEM;
  *into = p;
  born(p, n);
  return 0;
}
CGP_HOOK void free(void* p) {
  died(p);
  __libc_free(p);
}
CGP_HOOK __attribute__((noreturn)) void _exit(int code) {
  write_file();
  for (;;) syscall(SYS_exit_group, code);
}
