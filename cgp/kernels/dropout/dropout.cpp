// SPDX-License-Identifier: Apache-2.0
// Dropout on the element skeleton (row/element_kernel.h). Parameters: seed, offset, threshold, bits of the
// scale.
#include "cgp/kernels/dropout/dropout.h"

#include <bit>
#include <cmath>

#include "cgp/base/text.h"
#include "cgp/kernels/catalog/tensor_case.h"
#include "cgp/kernels/common/philox.h"
#include "cgp/kernels/dropout/dropout_ref.h"

namespace cgp::kernels {
namespace {

using namespace dsl;
using row::Floats;

class Op : public row::ElementOp {
 public:
  std::vector<Floats> apply(Kernel&, const std::vector<Floats>& in, const Floats&, const Val<u64>& index,
                            const std::vector<Val<u64>>& parameters) const override {
    const auto threshold = to<u32>(parameters[2]);
    const auto scale = bits<f32>(to<u32>(parameters[3]));
    const auto keep = [&](const Val<f32>& x, const Val<u32>& word) {
      return select(word < threshold, Val<f32>(0.f), x * scale);
    };
    Floats out;
    if (in[0].size() == 1) {  // any element of its four
      const auto w = philox(index >> 2, parameters[0], parameters[1]);
      const auto which = to<u32>(index) & 3;
      out.push_back(
          keep(in[0][0], select(which < 2, select(which == 0, w[0], w[1]), select(which == 2, w[2], w[3]))));
      return {out};
    }
    for (std::size_t e = 0; e < in[0].size(); e += 4) {
      const auto w = philox((index + std::uint64_t(e)) >> 2, parameters[0], parameters[1]);
      for (std::size_t i = 0; i < 4; ++i) out.push_back(keep(in[0][e + i], w[i]));
    }
    return {out};
  }
};

// Dropped below it; p = 1 drops all by the scale.
std::uint32_t threshold(double p) { return std::uint32_t(std::min(std::round(p * 0x1p32), 0x1p32 - 1)); }
float scale(double p) { return p < 1 ? float(1 / (1 - p)) : 0.f; }

row::ElementProblem problem(const Dropout& d) {
  row::ElementProblem p;
  p.name = "dropout", p.op = std::make_shared<Op>();
  if (!(d.p >= 0 && d.p <= 1))
    row::Checker{"dropout"}.fail("p", "must be from 0 to 1", text::cat("p = ", d.p));
  p.inputs = {{"x", d.x}}, p.outputs = {{"y", d.y}};
  p.input_layouts = {d.x_layout}, p.output_layouts = {d.y_layout};
  p.rows = d.rows, p.cols = d.cols;
  p.parameters = {d.seed, d.offset, threshold(d.p), std::bit_cast<std::uint32_t>(scale(d.p))};
  return p;
}

}  // namespace

void dropout(runtime::Stream& s, const Dropout& d) { row::run_elements(s, problem(d)); }

KernelEntry dropout_entry() {
  KernelEntry e;
  e.name = "dropout", e.summary = "y = x / (1 - p) or 0, by Philox4x32-10";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"rows", "1024", "rows"},
               {"cols", "4096", "columns"},
               {"p", "0.5", "probability of dropping"},
               {"seed", "1", "key"},
               {"offset", "0", "upper half of the counter"}};
  e.inputs = {"x"};
  const auto of = [](DType t, std::uint64_t cols) {
    Dropout d;
    d.x = d.y = View::stand_in(t);
    d.rows = 4, d.cols = cols;
    return problem(d);
  };
  e.images = [of](std::string_view arch) {
    std::vector<Variant> all;
    for (DType t : {DType::bf16, DType::f16, DType::f32})
      for (std::uint64_t cols : {64, 7})
        for (auto& v : row::element_variants(of(t, cols))) all.push_back(std::move(v));
    return images(all, arch);
  };
  e.prepare = [](const runtime::Device& dev, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    Dropout d;
    const auto [t, rows, cols] = row::row_shape(o, given, "x");
    d.rows = rows, d.cols = cols, d.p = o.real("p"), d.seed = o.size("seed"), d.offset = o.size("offset");
    auto c = std::make_unique<row::TensorCase>(dev);
    d.x = c->input("x", input_or_random(given, "x", t, {d.rows, d.cols}, seed));
    d.y = c->output("y", t, {d.rows, d.cols});
    c->runs(row::element_variants(problem(d)), "element by element");
    c->run = [d](runtime::Stream& s) { dropout(s, d); };
    c->oracle = [d, t](const row::TensorCase& in) {
      row::Expected y{"y", {}, {}};
      const auto& x = in.host("x");
      for (std::uint64_t i = 0; i < x.size(); ++i) {
        const auto words = philox_ref({std::uint32_t(i / 4), std::uint32_t(i / 4 >> 32),
                                       std::uint32_t(d.offset), std::uint32_t(d.offset >> 32)},
                                      {std::uint32_t(d.seed), std::uint32_t(d.seed >> 32)});
        const bool drop = d.p == 1 || words[i % 4] < std::uint64_t(std::llround(d.p * 0x1p32));
        const double want = drop ? 0 : x.at(i) / (1 - d.p);
        y.want.push_back(want);
        y.tolerance.push_back(std::fabs(want) * (unit_roundoff(t) + 3 * unit_roundoff(DType::f32)) +
                              (drop ? 0 : 0x1p-24));
      }
      return std::vector<row::Expected>{y};
    };
    return c;
  };
  return e;
}

}  // namespace cgp::kernels
