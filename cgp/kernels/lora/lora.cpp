// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/lora/lora.h"

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"

namespace cgp::kernels {
namespace {

struct Operand {
  const View& view;
  bool transposed = false;
};
/// c [m, n] = alpha * op(a) op(b) + beta * c.
void product(runtime::Stream& s, DType type, std::uint64_t m, std::uint64_t n, std::uint64_t k,
             const Operand& a, const Operand& b, const View& c, double alpha = 1, double beta = 0) {
  GemmProblem g;
  g.type = type, g.m = m, g.n = n, g.k = k;
  g.trans_a = a.transposed, g.trans_b = b.transposed;
  g.alpha = float(alpha), g.beta = float(beta);
  const auto array = [&](const View& v) { return DeviceArray{v.address, v.elements, type}; };
  gemm(s, g, array(a.view), array(b.view), array(c));
}

class LoraChecker {
 public:
  explicit LoraChecker(std::string_view op, const LoraProblem& p) : c_{op}, p_(p) {
    if (p.r > p.n || p.r > p.k)
      c_.fail("r", "must be at most n and k", text::cat("r = ", p.r, ", n = ", p.n, ", k = ", p.k),
              "an adapter of a higher rank is no smaller than the weight");
    if (p.type != DType::f32 && p.type != DType::f16 && p.type != DType::bf16)
      c_.fail("type", "must be f32, f16 or bf16", text::cat("it is ", name(p.type)));
  }
  void operator()(std::string_view argument, const View& v, std::uint64_t rows, std::uint64_t cols,
                  bool out) const {
    c_.present(argument, v, {p_.type}, out);
    c_.vector(argument, v, rows * cols);
  }

 private:
  row::Checker c_;
  const LoraProblem& p_;
};

}  // namespace

void lora_forward(runtime::Stream& s, const LoraProblem& p, const LoraForward& at) {
  const LoraChecker check("lora_forward", p);
  check("x", at.x, p.m, p.k, false), check("weight", at.weight, p.n, p.k, false),
      check("y", at.y, p.m, p.n, true);
  product(s, p.type, p.m, p.n, p.k, {at.x}, {at.weight, true}, at.y);
  if (p.r == 0) return;
  check("a", at.a, p.r, p.k, false), check("b", at.b, p.n, p.r, false), check("t", at.t, p.m, p.r, true);
  product(s, p.type, p.m, p.r, p.k, {at.x}, {at.a, true}, at.t);
  product(s, p.type, p.m, p.n, p.r, {at.t}, {at.b, true}, at.y, p.scale, 1);
}

void lora_backward(runtime::Stream& s, const LoraProblem& p, const LoraBackward& at) {
  const LoraChecker check("lora_backward", p);
  check("dy", at.dy, p.m, p.n, false);
  if (at.dx.given) {
    check("weight", at.weight, p.n, p.k, false), check("dx", at.dx, p.m, p.k, true);
    product(s, p.type, p.m, p.k, p.n, {at.dy}, {at.weight}, at.dx);
  }
  if (p.r == 0) return;
  check("x", at.x, p.m, p.k, false), check("t", at.t, p.m, p.r, false), check("dt", at.dt, p.m, p.r, true);
  check("a", at.a, p.r, p.k, false), check("b", at.b, p.n, p.r, false);
  check("da", at.da, p.r, p.k, true), check("db", at.db, p.n, p.r, true);
  const double beta = at.accumulate ? 1 : 0;
  product(s, p.type, p.m, p.r, p.n, {at.dy}, {at.b}, at.dt, p.scale);
  product(s, p.type, p.n, p.r, p.m, {at.dy, true}, {at.t}, at.db, p.scale, beta);
  product(s, p.type, p.r, p.k, p.m, {at.dt, true}, {at.x}, at.da, 1, beta);
  if (at.dx.given) product(s, p.type, p.m, p.k, p.r, {at.dt}, {at.a}, at.dx, 1, 1);
}

void lora_merge(runtime::Stream& s, const LoraProblem& p, const View& weight, const View& a, const View& b,
                double sign) {
  const LoraChecker check("lora_merge", p);
  check("weight", weight, p.n, p.k, true);
  if (p.r == 0) return;
  check("a", a, p.r, p.k, false), check("b", b, p.n, p.r, false);
  product(s, p.type, p.n, p.k, p.r, {b}, {a}, weight, sign * p.scale, 1);
}

}  // namespace cgp::kernels
