// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/jit_cache.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/hash.h"
#include "cgp/base/text.h"
#include "cgp/runtime/backend_impl.h"

namespace cgp::runtime {
namespace {

struct Header {
  char magic[8];
  std::uint64_t ptx_bytes, cubin_bytes, driver_version, check_a, check_b;
};
constexpr char kMagic[8] = {'C', 'G', 'P', 'C', 'U', 'B', '0', '1'};

Header header_of(const CacheKey& key, std::string_view cubin) {
  Hash128 h;
  h.add(key.arch);
  h.add(cubin);
  Header out{{}, key.ptx.size(), cubin.size(), std::uint64_t(key.driver_version), h.a, h.b};
  std::memcpy(out.magic, kMagic, sizeof kMagic);
  return out;
}

}  // namespace

JitCache JitCache::from_environment() {
  const auto env = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  if (std::string dir = env("CGP_CACHE_DIR"); !dir.empty())
    return JitCache(dir == "off" ? std::string() : dir);
  if (std::string xdg = env("XDG_CACHE_HOME"); !xdg.empty()) return JitCache(xdg + "/cgp");
  if (std::string home = env("HOME"); !home.empty()) return JitCache(home + "/.cache/cgp");
  return JitCache(std::string());
}

std::string JitCache::path(const CacheKey& key) const {
  Hash128 h;
  h.add(key.ptx);
  h.add(key.arch);
  h.add(text::cat(key.driver_version));
  const auto digits = [](std::uint64_t v) {
    std::string s = text::hex(v).substr(2);
    return std::string(16 - s.size(), '0') + s;
  };
  return text::cat(folder_, "/", digits(h.a), digits(h.b), ".cubin");
}

std::optional<std::string> JitCache::find(const CacheKey& key) const {
  if (!enabled()) return std::nullopt;
  const std::string file = path(key);
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  std::string content;
  try {
    content = read_file(file);
  } catch (const Error& e) {
    log(text::cat("cubin cache: ", e.what()));
    return std::nullopt;
  }
  if (content.size() < sizeof(Header)) return std::nullopt;
  const std::string_view cubin = std::string_view(content).substr(sizeof(Header));
  const Header want = header_of(key, cubin);
  if (std::memcmp(content.data(), &want, sizeof want) != 0) return std::nullopt;  // damaged: built again
  return std::string(cubin);
}

void JitCache::store(const CacheKey& key, std::string_view cubin) const {
  if (!enabled()) return;
  try {
    std::filesystem::create_directories(folder_);
    const Header h = header_of(key, cubin);
    std::string content(reinterpret_cast<const char*>(&h), sizeof h);
    content.append(cubin);
    write_file(path(key), content);
  } catch (const std::exception& e) {
    static bool told = false;
    if (!told) log(text::cat("cubin cache: ", e.what(), "; kernels are compiled in every process"));
    told = true;
  }
}

}  // namespace cgp::runtime
