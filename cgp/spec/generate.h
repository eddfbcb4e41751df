// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a buffer holds at first: the generators of a launch spec (docs/cli.md, "Initial contents"). Every
// random generator draws from SplitMix64, one draw per element in order, so a spec means the same bytes
// everywhere.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cgp/base/dtype.h"

namespace cgp::spec {

class Node;

struct Init {
  enum class Kind {
    zero,
    uninit,
    fill,
    values,
    iota,
    file,
    concat,
    bits,
    randint,
    grid,
    uniform,
    choice,
    perm
  };
  Kind kind = Kind::zero;
  std::uint64_t count = 0;            ///< elements; set on the parts of a concat
  std::vector<std::uint64_t> values;  ///< element bits: one for fill, the list for values and choice
  bool integral = true;               ///< iota: start and step are integers (then exact modulo 2^64)
  double start = 0, step = 1;         ///< iota
  std::uint64_t istart = 0, istep = 1;
  std::string path;         ///< file, relative to the spec's folder
  std::vector<Init> parts;  ///< concat
  std::uint64_t seed = 0;
  std::int64_t lo = 0, hi = 0;  ///< randint, grid
  double den = 1;               ///< grid
  double flo = 0, fhi = 1;      ///< uniform
  std::uint64_t mul = 1;        ///< perm
};
std::string_view name(Init::Kind k);

/// Reads an init of a spec. `count` is the number of elements of the buffer, 0 when not known.
Init parse_init(const Node& node, DType dtype, std::uint64_t count);

struct Generated {
  std::vector<std::uint8_t> bytes;
  /// Byte ranges [first, second) that stay unwritten (uninit); zero in `bytes`.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> unwritten;
};
/// `folder` is where relative files are looked up; `what` names the buffer in errors.
Generated generate(const Init& init, DType dtype, std::uint64_t count, const std::string& folder,
                   const std::string& what);

/// Stores v rounded to nearest even, integers included (and modulo 2^bits).
void store_rounded(DType t, void* base, std::size_t i, double v);

/// CRC-32 as zlib and PNG define it (polynomial 0xEDB88320 reflected).
std::uint32_t crc32(const std::uint8_t* data, std::size_t size);

}  // namespace cgp::spec
