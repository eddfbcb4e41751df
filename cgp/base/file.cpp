// SPDX-License-Identifier: Apache-2.0
#include "cgp/base/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
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

/// All of it; false with errno otherwise.
bool put(const std::string& path, std::string_view content) {
  File f(std::fopen(path.c_str(), "wb"));
  if (!f) return false;
  const bool written =
      std::fwrite(content.data(), 1, content.size(), f.get()) == content.size() && std::fflush(f.get()) == 0;
  const int reason = errno;
  const bool closed = std::fclose(f.release()) == 0;
  if (!written) errno = reason;
  return written && closed;
}

/// What a link leads to, so that the link stays; a path that leads nowhere yet as it is.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (!real) return path;
  std::string out = real;
  std::free(real);
  return out;
}

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

std::string write_problem(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    if (S_ISDIR(info.st_mode)) return std::strerror(EISDIR);
    return ::access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);
  }
  const auto slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  return !path.empty() && ::access(folder.c_str(), W_OK | X_OK) == 0 ? ""
                                                                     : std::strerror(errno ? errno : ENOENT);
}

void write_file(const std::string& path, std::string_view content) {
  const std::string target = resolved(path);
  struct stat info {};
  if (::stat(target.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    if (!put(target, content)) fail("write", path);
    return;
  }
  static std::atomic<unsigned> serial{0};
  const std::string temporary = text::cat(target, ".tmp", ::getpid(), ".", serial++);
  if (!put(temporary, content) || std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int reason = errno;
    std::remove(temporary.c_str());
    errno = reason;
    fail("write", path);
  }
}

}  // namespace cgp
