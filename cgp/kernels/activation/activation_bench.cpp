// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/activation/activation.h"

#include "cgp/base/text.h"
#include "cgp/kernels/bench/operands.h"
#include "cgp/kernels/bench/rows_list_bench.h"

namespace cgp::kernels {

void bench_activations(BenchTable& b) {
  using Bytes = runtime::Buffer<std::uint8_t>;
  const auto view = [](Bytes& m, DType t) {
    return View(m.address(), m.size() / std::uint64_t(bytes(t)), t, true, m.device().backend().get());
  };
  const auto& d = b.device();
  for (DType t : {DType::bf16, DType::f32})
    for (auto [rows, cols] : {std::pair<std::uint64_t, std::uint64_t>{16384, 4096}, {8192, 14336}}) {
      const auto title = [&, r = rows, c = cols](const char* op) {
        return text::cat(op, "/", name(t), "/", r, "x", c);
      };
      bool any = false;
      for (const char* op :
           {"silu", "gelu", "gelu_tanh", "bias_gelu", "silu_backward", "swiglu", "swiglu_backward"})
        any = any || b.wanted(title(op));
      if (!any) continue;
      RandomOperands random(d);
      const std::uint64_t n = rows * cols;
      auto x = random(t, n, 1), up = random(t, n, 2), dy = random(t, n, 3), bias = random(t, cols, 4);
      Bytes y(d, x.bytes()), z(d, x.bytes());
      const double matrix = double(x.bytes());
      const auto run = [&](const char* op, int tensors, const std::function<void(runtime::Stream&)>& f) {
        if (!b.wanted(title(op))) return;
        CopyPeer copy(d, tensors * matrix);
        b.run(title(op), "", tensors * matrix, {{"cgp", f}, copy.contender()});
      };
      Activate a;
      a.x = view(x, t), a.y = view(y, t), a.rows = rows, a.cols = cols;
      for (Activation f : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
        a.activation = f;
        run(std::string(name(f)).c_str(), 2, [&](runtime::Stream& s) { activate(s, a); });
      }
      a.activation = Activation::gelu, a.bias = view(bias, t);
      run("bias_gelu", 2, [&](runtime::Stream& s) { activate(s, a); });
      ActivateBackward back;
      back.x = view(x, t), back.dy = view(dy, t), back.dx = view(y, t), back.rows = rows, back.cols = cols;
      run("silu_backward", 3, [&](runtime::Stream& s) { activate_backward(s, back); });
      Gate g;
      g.gate = view(x, t), g.up = view(up, t), g.out = view(y, t), g.rows = rows, g.cols = cols;
      run("swiglu", 3, [&](runtime::Stream& s) { gated(s, g); });
      GateBackward gb;
      gb.gate = view(x, t), gb.up = view(up, t), gb.dout = view(dy, t), gb.dgate = view(y, t),
      gb.dup = view(z, t);
      gb.rows = rows, gb.cols = cols;
      run("swiglu_backward", 5, [&](runtime::Stream& s) { gated_backward(s, gb); });
    }
}

}  // namespace cgp::kernels
