// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/lora/lora.h"

#include "cgp/base/text.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/lora/lora_product.h"

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

void lora_linear(runtime::Stream& s, const LoraProblem& p, bool transposed, const LoraLinear& at) {
  const LoraChecker check("lora_linear", p);
  const auto weight = [&](std::string_view name, const View& v, std::uint64_t depth, std::uint64_t columns) {
    check(name, v, depth, columns, false);
  };
  check("x", at.x, p.m, p.k, false), weight("weight", at.weight, p.k, p.n), check("y", at.y, p.m, p.n, true);
  if (p.r == 0) return product(s, p.type, p.m, p.n, p.k, {at.x}, {at.weight, transposed}, at.y);
  weight("a", at.a, p.k, p.r), weight("b", at.b, p.r, p.n), check("t", at.t, p.m, p.r, true);
  const LoraDown down{.type = p.type,
                      .m = p.m,
                      .k = p.k,
                      .r = p.r,
                      .scale = float(p.scale),
                      .x = at.x.address,
                      .a = at.a.address,
                      .t = at.t.address};
  if (transposed && reject(down, s.device().info()).empty())
    lora_down(s, down);
  else
    product(s, p.type, p.m, p.r, p.k, {at.x}, {at.a, transposed}, at.t, p.scale);
  const LoraProduct one{.type = p.type,
                        .m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .r = p.r,
                        .transposed = transposed,
                        .x = at.x.address,
                        .w = at.weight.address,
                        .t = at.t.address,
                        .b = at.b.address,
                        .y = at.y.address,
                        .pdl = true};
  if (reject(one, s.device().info()).empty()) return lora_product(s, one);
  product(s, p.type, p.m, p.n, p.k, {at.x}, {at.weight, transposed}, at.y);
  product(s, p.type, p.m, p.n, p.r, {at.t}, {at.b, transposed}, at.y, 1, 1);
}

void lora_forward(runtime::Stream& s, const LoraProblem& p, const LoraForward& at) {
  lora_linear(s, p, true, {at.x, at.weight, at.a, at.b, at.t, at.y});
}

void lora_backward(runtime::Stream& s, const LoraProblem& p, const LoraBackward& at) {
  const LoraChecker check("lora_backward", p);
  check("dy", at.dy, p.m, p.n, false);
  if (p.r > 0) {
    check("x", at.x, p.m, p.k, false), check("t", at.t, p.m, p.r, false), check("dt", at.dt, p.m, p.r, true);
    check("a", at.a, p.r, p.k, false), check("b", at.b, p.n, p.r, false);
    check("da", at.da, p.r, p.k, true), check("db", at.db, p.n, p.r, true);
  }
  if (at.dx.given) {
    LoraProblem back = p;
    back.n = p.k, back.k = p.n;
    lora_linear(s, back, false, {at.dy, at.weight, at.b, at.a, at.dt, at.dx});
  } else if (p.r > 0) {
    product(s, p.type, p.m, p.r, p.n, {at.dy}, {at.b}, at.dt, p.scale);
  }
  if (p.r == 0) return;
  const double beta = at.accumulate ? 1 : 0;
  product(s, p.type, p.n, p.r, p.m, {at.dy, true}, {at.t}, at.db, 1, beta);
  product(s, p.type, p.r, p.k, p.m, {at.dt, true}, {at.x}, at.da, 1, beta);
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
