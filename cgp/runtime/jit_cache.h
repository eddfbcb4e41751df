// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machine code kept on disk between processes, so that PTX is compiled once per driver. Entries are written
// under a temporary name and renamed; each carries a checksum, and one that does not verify is ignored and
// rewritten. The cache never makes a program fail: what cannot be stored is logged once.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cgp::runtime {

struct CacheKey {
  std::string_view ptx;
  std::string_view arch;  ///< of the device: "sm_90a"
  int driver_version = 0;
};

class JitCache {
 public:
  /// CGP_CACHE_DIR if set ("off" disables), else $XDG_CACHE_HOME/cgp, else ~/.cache/cgp; disabled if none is
  /// known.
  static JitCache from_environment();
  /// An empty folder name disables the cache. The folder is made when something is stored.
  explicit JitCache(std::string folder) : folder_(std::move(folder)) {}

  bool enabled() const { return !folder_.empty(); }
  const std::string& folder() const { return folder_; }
  std::optional<std::string> find(const CacheKey& key) const;
  void store(const CacheKey& key, std::string_view cubin) const;
  std::string path(const CacheKey& key) const;

 private:
  std::string folder_;
};

}  // namespace cgp::runtime
