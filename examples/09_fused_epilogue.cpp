// SPDX-License-Identifier: Apache-2.0
// Rung 9: an epilogue of your own, fused into the library's fastest GEMM.
//   The sums of a product are in registers when it ends: what follows elementwise (a bias, an activation, a
//   cast) is free there and costs a pass over memory anywhere else. An epilogue is a C++ function over values
//   of the DSL, recorded into the kernel; its parameters become the kernel's.
#include <algorithm>

#include "cgp/kernels/gemm/api/gemm.h"
#include "examples/example.h"

namespace {

using cgp::kernels::EpiloguePoint;
namespace epilogue = cgp::kernels::epilogue;
namespace dsl = cgp::dsl;

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 80);
  example::Gemm g(device);
  std::vector<float> host_bias = example::small_integers<float>(g.n, 3);
  const auto bias = device.upload<float>(host_bias);
  auto c = device.zeros<cgp::bfloat16>(g.m * g.n);

  // Five lines: what it is called, what it does to an element, what it takes. Parameters are scalars (Val) or
  // arrays (In); at.of_column(p) loads p[column] once for all rows that a thread holds.
  const auto leaky = epilogue::map(
      "leaky",
      [](const EpiloguePoint&, dsl::Val<dsl::f32> x, dsl::Val<dsl::f32> slope) {
        return dsl::select(x > 0.f, x, x * slope);
      },
      0.125f);

  cgp::kernels::GemmProblem p{.type = cgp::DType::bf16, .trans_b = true, .m = g.m, .n = g.n, .k = g.k};
  p.epilogue = epilogue::bias(bias) | leaky;
  cgp::kernels::gemm(device.stream(), p, g.a, g.b, c);
  example::show(device, "bias and leaky ReLU");

  const auto got = c.to_vector();
  for (std::size_t i = 0; i < g.m; ++i)
    for (std::size_t j = 0; j < g.n; ++j) {
      float want = host_bias[j];
      for (std::size_t k = 0; k < g.k; ++k)
        want += float(g.host_a[i * g.k + k]) * float(g.host_b[j * g.k + k]);
      want = float(cgp::bfloat16(want > 0 ? want : want * 0.125f));
      if (float(got[i * g.n + j]) != want) {
        std::printf("C[%zu, %zu] is %g, should be %g\n", i, j, double(float(got[i * g.n + j])), double(want));
        return false;
      }
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run, "emu:sm_90a"); }
