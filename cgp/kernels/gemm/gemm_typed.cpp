// SPDX-License-Identifier: Apache-2.0
// gemm of mixed types, with factors and epilogues: which kernel, and its launch.
#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/gemm/gemm.h"

namespace cgp::kernels {
namespace {

using runtime::Arg;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

void launch_any(runtime::Stream& s, const Variant& v, const GemmProblem& p, const GemmAddresses& o,
                const Epilogue& whole) {
  const auto fn = load(s.device(), v);
  const auto tn = ceil_div(p.columns(), 16);
  auto grid = runtime::grid_for(ceil_div(p.m, 16) * tn, 1);
  for (std::uint64_t first = 0; first < p.batch; first += 65535) {
    grid.z = std::uint32_t(std::min<std::uint64_t>(65535, p.batch - first));
    std::vector<Arg> args{runtime::arg(p.m),
                          runtime::arg(p.n),
                          runtime::arg(p.k),
                          runtime::arg(p.trans_a ? 1 : p.lda),
                          runtime::arg(p.trans_a ? p.lda : 1),
                          runtime::arg(p.trans_b ? 1 : p.ldb),
                          runtime::arg(p.trans_b ? p.ldb : 1),
                          runtime::arg(p.ldc),
                          runtime::arg(p.stride_a),
                          runtime::arg(p.stride_b),
                          runtime::arg(p.stride_c),
                          runtime::arg(std::uint32_t(tn)),
                          runtime::arg(first),
                          Arg::address(o.a),
                          Arg::address(o.b),
                          Arg::address(o.c)};
    if (p.scaling == GemmScaling::block)
      args.insert(args.end(), {Arg::address(o.scale_a), Arg::address(o.scale_b)});
    for (const auto& a : whole.arguments(p)) args.push_back(a);
    fn.launch(s, runtime::Launch{.grid = grid}, args);
  }
}

}  // namespace

GemmChoice select_typed_gemm(const GemmProblem& q, const GemmAddresses& at, const runtime::DeviceInfo&) {
  const GemmProblem p = q.dense();
  return {GemmKind::any, gemm_any(p, epilogue::of_problem(p, at)),
          "types, factors or an epilogue that no faster kernel takes"};
}

void run_typed_gemm(runtime::Stream& s, const GemmChoice& choice, const GemmProblem& p,
                    const GemmAddresses& at) {
  p.epilogue.before(s, p);
  launch_any(s, choice.variant, p, at, epilogue::of_problem(p, at));
}

}  // namespace cgp::kernels
