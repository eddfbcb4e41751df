// SPDX-License-Identifier: Apache-2.0
// libFuzzer entry: clang++ -fsanitize=fuzzer,address,undefined. Anything but a module or a ParseError is a
// bug.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "cgp/ptx/parse.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cgp::ptx;
  try {
    const Module m = parse({reinterpret_cast<const char*>(data), size});
    if (!difference(m, parse(print(m))).empty()) std::abort();
    check(m);
  } catch (const cgp::ParseError&) {
  }
  return 0;
}
