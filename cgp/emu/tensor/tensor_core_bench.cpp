// SPDX-License-Identifier: Apache-2.0
// Host time of one emulated matrix instruction, exact and f32.
#include <cstdio>
#include <ctime>

#include "cgp/base/float16.h"
#include "cgp/emu/tensor/tensor_core.h"

using namespace cgp;
using namespace cgp::emu;

static void time_shape(const char* name, int rows, int columns, int k, ptx::Mod type, MatrixUnit unit) {
  for (bool portable : {false, true})
    for (MatrixPrecision precision : {MatrixPrecision::exact, MatrixPrecision::f32}) {
      MatrixCore::use_portable(portable);
      MatrixOperands m;
      m.resize(rows, columns, k);
      for (int i = 0; i < rows * k; ++i)
        m.a_bits(i / k, i % k) = type == ptx::Mod::e4m3 ? 0x38u + unsigned(i % 9) : bfloat16(i % 7 - 3).bits;
      for (int i = 0; i < columns * k; ++i)
        m.b_bits(i % k, i / k) = type == ptx::Mod::e4m3 ? 0x38u + unsigned(i % 5) : bfloat16(i % 5 - 2).bits;
      for (int i = 0; i < rows * columns; ++i) m.d(i / columns, i % columns) = 0.5f;
      const FusedRule rule = fused_rule(unit, type, Generation::hopper, false);
      const std::clock_t start = std::clock();  // processor time: the machine may be busy
      const int n = rows * columns > 1000 ? 500 : 20000;
      for (int i = 0; i < n; ++i) MatrixCore::multiply(m, type, type, rule, precision);
      const double t = 1e6 * double(std::clock() - start) / CLOCKS_PER_SEC;
      std::printf("%-18s %-8s %-5s %8.3f us\n", name, std::string(MatrixCore::vector_code()).c_str(),
                  precision == MatrixPrecision::exact ? "exact" : "f32", t / n);
    }
}

int main() {
  time_shape("wgmma m64n256k16", 64, 256, 16, ptx::Mod::bf16, MatrixUnit::wgmma);
  time_shape("wgmma m64n256k32", 64, 256, 32, ptx::Mod::e4m3, MatrixUnit::wgmma);
  time_shape("mma m16n8k16", 8, 16, 16, ptx::Mod::bf16, MatrixUnit::mma);
}
