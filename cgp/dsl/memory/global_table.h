// SPDX-License-Identifier: Apache-2.0
#pragma once
// Tables of constants in global memory: for indices that differ between the threads of a warp, where constant memory
// would serve one after the other.
#include "cgp/dsl/memory/ptr.h"

namespace cgp::dsl {

/// `values` in global memory of the module. A name says what the table holds: the same name twice is the same table.
template <class T, class H>
Ptr<global, const T> global_table(Kernel& k, std::string name, const std::vector<H>& values,
                                  Here at = Here::now()) {
  if (values.empty()) throw BuildError("a table has at least one element", at);
  std::vector<std::uint8_t> bytes;
  for (const H& h : values) {
    const std::uint64_t pattern = literal_of<T>(h).bits();
    for (int b = 0; b < Elem<T>::bytes; ++b) bytes.push_back(std::uint8_t(pattern >> 8 * b));
  }
  return Ptr<global, const T>(
      Val<u64>(record_impl::variable(k, ptx::Space::global, memory_mod(T::mod, T::bits), values.size(), 16,
                                     std::move(bytes), std::move(name), at)),
      0, true);
}

}  // namespace cgp::dsl
