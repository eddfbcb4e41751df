// SPDX-License-Identifier: Apache-2.0
// grouped_gemm: the rows of A that an index names, copied behind each other into scratch memory, for the
// kernels whose copies cannot follow an index.
//   who      a block copies a row, 16 bytes an access
//   needs    A and its rows at multiples of 16 bytes
#include "cgp/dsl/core/arith.h"
#include "cgp/dsl/core/flow.h"
#include "cgp/dsl/memory/ptr.h"
#include "cgp/kernels/grouped_gemm/grouped_gemm.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr int kThreads = 128;

void grouped_gather_kernel(Kernel& k, In<b32> a, Out<b32> to, In<u32> index, Val<u32> a_rows,
                           Val<u32> words) {
  k.block(kThreads);
  const auto row = k.ctaid_x();
  const auto from =
      a.at(dsl::to<u64>(dsl::min(index.ld(row), a_rows - 1)) * dsl::to<u64>(words) * std::uint64_t(4));
  const auto target = to.at(dsl::to<u64>(row) * dsl::to<u64>(words) * std::uint64_t(4));
  k.loop(range(k.tid(), words, Val<u32>(kThreads)), [&](Val<u32> i) { target.st<4>(i, from.ld<4>(i)); });
}

}  // namespace

Variant grouped_gather() { return variant("grouped_gather", 75, grouped_gather_kernel); }

}  // namespace cgp::kernels
