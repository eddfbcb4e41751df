// SPDX-License-Identifier: Apache-2.0
// Cross-entropy in the catalogue.
#include <algorithm>

#include "cgp/kernels/cross_entropy/cross_entropy_ref.h"

namespace cgp::kernels {
namespace {

using row::Expected, row::TensorCase;

std::unique_ptr<Case> prepare(const runtime::Device& d, const Options& o,
                              const std::vector<NamedArray>& given, std::uint64_t seed) {
  const auto [type, rows, cols] = row::row_shape(o, given, "logits");
  auto c = std::make_unique<TensorCase>(d);
  CrossEntropy e;
  e.rows = rows, e.cols = cols, e.label_smoothing = float(o.real("smoothing")), e.z_loss = float(o.real("z"));
  e.logits = c->input("logits", input_or_random(given, "logits", type, {rows, cols}, seed));
  HostArray targets(DType::s64, {rows});
  if (const HostArray* t = find_input(given, "targets")) {
    targets = input_or_random(given, "targets", t->dtype, {rows}, seed);
  } else {
    const auto random = random_array(DType::u32, {rows}, seed + 1);
    for (std::uint64_t r = 0; r < rows; ++r)
      targets.set(r, r % 5 == 3 ? -100
                                : double((std::uint64_t(random.at(r)) * 2654435761u + r * 40503u) %
                                         std::max<std::uint64_t>(cols, 1)));
  }
  row::expect_indices("cross_entropy", "targets", targets, cols, e.ignore_index);
  e.targets = c->input("targets", std::move(targets));
  HostArray scale(DType::f32, {1});
  scale.set(0, 0.25);
  e.scale = c->input("scale", std::move(scale));
  e.loss = c->output("loss", DType::f32, {rows}), e.lse = c->output("lse", DType::f32, {rows});
  if (o.flag("gradient")) e.dlogits = c->output("dlogits", type, {rows, cols});
  std::string why;
  const auto v = cross_entropy_variant(e, d.info(), &why);
  c->runs({v}, why);
  c->flops = double(rows * cols) * 8;
  c->run = [e](runtime::Stream& s) { cross_entropy(s, e); };
  c->oracle = [e, type](const TensorCase& t) {
    const auto want = cross_entropy_ref(t.host("logits").as_doubles(), t.host("targets").as_doubles(), e.rows,
                                        e.cols, double(e.ignore_index), double(e.label_smoothing),
                                        double(e.z_loss), t.host("scale").at(0), type);
    std::vector<Expected> all{{"loss", want.loss, want.loss_tolerance},
                              {"lse", want.lse, want.lse_tolerance}};
    if (e.dlogits.given) all.push_back({"dlogits", want.dlogits, want.dlogits_tolerance});
    return all;
  };
  return c;
}

std::vector<runtime::KernelImage> ships(std::string_view arch) {
  std::vector<Variant> all;
  runtime::DeviceInfo device;
  for (DType t : {DType::bf16, DType::f16, DType::f32})
    for (bool smooth : {false, true}) {
      row::RowNeeds n;
      n.inputs = n.outputs = {t}, n.fold_size = smooth ? 3 : 2, n.registers = smooth ? 32 : 0,
      n.expensive = true;
      auto configs = row::shipped_configs(n, arch);
      n.registers += 8;  // of the loss
      for (const auto& c : row::shipped_shifted_configs(n, arch)) configs.push_back(c);
      const auto step = row::image_step(arch, t, smooth);
      for (std::size_t i = 0; i < configs.size(); i += step) {
        CrossEntropy e;
        e.logits = e.dlogits = View::stand_in(t), e.targets = View::stand_in(DType::s64),
        e.loss = View::stand_in(DType::f32);
        e.rows = e.cols = 1, e.config = configs[i], e.label_smoothing = smooth ? 0.1f : 0;
        all.push_back(cross_entropy_variant(e, device, nullptr));
      }
    }
  return images(all, arch);
}

}  // namespace

KernelEntry cross_entropy_entry() {
  KernelEntry e;
  e.name = "cross_entropy";
  e.summary = "loss of logits against targets, and its gradient in the same launch";
  e.options = {{"dtype", "bf16", "f32, f16 or bf16"},
               {"rows", "1024", "rows"},
               {"cols", "32000", "classes"},
               {"smoothing", "0", "label smoothing, 0 to 1"},
               {"z", "0", "factor of the squared lse"},
               {"gradient", "1", "write dlogits too"}};
  e.inputs = {"logits", "targets"};
  e.images = ships;
  e.prepare = prepare;
  return e;
}

}  // namespace cgp::kernels
