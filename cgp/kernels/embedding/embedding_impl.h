// SPDX-License-Identifier: Apache-2.0
#pragma once
// What both directions share: reading an index, checks of arguments, threads of a row.
#include "cgp/dsl/kernel.h"
#include "cgp/kernels/common/view.h"

namespace cgp::kernels::embedding_impl {

inline constexpr std::uint32_t kThreads = 256;

/// Index i as 64 bits (negative ones are huge); all ones where there is none to read.
inline dsl::Val<dsl::u64> load_index(bool wide, const dsl::In<dsl::b8>& indices, const dsl::Val<dsl::u64>& i,
                                     const dsl::Val<dsl::pred>& inside) {
  using namespace dsl;
  if (wide) return bits<u64>(indices.as<const s64>().ld_if<1>(inside, i, Val<s64>(-1))[0]);
  return bits<u64>(to<s64>(indices.as<const s32>().ld_if<1>(inside, i, Val<s32>(-1))[0]));
}

/// log2 of the threads that share a row of `accesses`: at most kThreads.
inline std::uint32_t lanes_shift(std::uint64_t accesses) {
  std::uint32_t shift = 0;
  while (shift < 8 && (1ull << shift) < accesses) ++shift;
  return shift;
}

inline void check_sizes(const row::Checker& check, std::uint64_t rows, std::uint64_t vocab,
                        std::uint64_t cols) {
  if (rows && cols && !vocab) check.fail("vocab", "must be at least 1", "vocab = 0");
}
inline void check_indices(const row::Checker& check, const View& indices, const View& error_flag,
                          std::uint64_t rows) {
  check.present("indices", indices, {DType::s32, DType::s64}, false);
  check.vector("indices", indices, rows);
  if (error_flag.given)
    check.present("error_flag", error_flag, {DType::u32}, true), check.vector("error_flag", error_flag, 1);
}
inline row::Layout check_rows(const row::Checker& check, std::string_view argument, const View& v,
                              std::uint64_t rows, std::uint64_t cols, const row::Layout& layout) {
  if (layout.inner > 1) check.fail(argument, "cannot have its rows in groups", "inner > 1");
  return check.rows(argument, v, rows, cols, layout);
}

}  // namespace cgp::kernels::embedding_impl
