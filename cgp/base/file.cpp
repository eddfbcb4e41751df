// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp {
namespace {

struct Close {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, Close>;

[[noreturn]] void fail(const char* what, const std::string& path) {
  throw Error({text::cat("cannot ", what, " ", path), {}, std::strerror(errno), {}});
}

}  // namespace

std::string read_file(const std::string& path) {
  File f(std::fopen(path.c_str(), "rb"));
  if (!f) fail("read", path);
  std::string out;
  char buf[1 << 16];
  while (std::size_t n = std::fread(buf, 1, sizeof buf, f.get())) out.append(buf, n);
  if (std::ferror(f.get())) fail("read", path);
  return out;
}

void write_file(const std::string& path, std::string_view content) {
  static std::atomic<unsigned> serial{0};
  const std::string temporary = text::cat(path, ".tmp", ::getpid(), ".", serial++);
  File f(std::fopen(temporary.c_str(), "wb"));
  if (!f) fail("write", path);
  const bool ok =
      std::fwrite(content.data(), 1, content.size(), f.get()) == content.size() && std::fflush(f.get()) == 0;
  f.reset();
  if (!ok || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail("write", path);
  }
}

}  // namespace cgp
