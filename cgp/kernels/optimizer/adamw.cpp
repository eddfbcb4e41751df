// SPDX-License-Identifier: Apache-2.0
// adamw: one step of the optimiser on f32.
//   who      grid-stride; thread i owns elements W*i .. W*i+W-1
//   memory   reads 4n elements, writes 3n, 16 bytes an access when all are aligned; nothing is shared
//   needs    any device
#include "cgp/kernels/optimizer/adamw.h"

#include <array>

#include "cgp/base/text.h"
#include "cgp/kernels/optimizer/adamw_ref.h"
#include "cgp/kernels/optimizer/optimizer_rule.h"
#include "cgp/launch/kernel_args.h"

namespace cgp::kernels {
namespace {

using namespace dsl;

constexpr std::uint32_t kAdamThreads = 256;

template <template <class> class V>
struct AdamWArgs {
  V<Disjoint<f32>> weight, m, v;
  V<In<f32>> gradient;
  V<u64> accesses;
  V<f32> decay;  ///< rate * decay
  V<f32> beta1, rest1, beta2, rest2;
  V<f32> rate, v_factor;  ///< rate / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
  V<f32> epsilon;
};

struct AdamWConfig {
  DType type = DType::f32;
  int width = 1;  ///< elements an access
  template <class Self, class V>
  static void visit(Self& c, V& v) {
    v.type("type", "", c.type);
    v.number("width", "v", c.width, 1);
  }
};

template <int W>
void update(Kernel& k, const AdamWArgs<DeviceArg>& p) {
  k.block(int(kAdamThreads));
  k.grid_stride(p.accesses, [&](ThreadIndex64 i) {
    const auto g = p.gradient.template ld<W>(i);
    const auto m = p.m.template ld<W>(i);
    const auto v = p.v.template ld<W>(i);
    const auto w = p.weight.template ld<W>(i);
    const Val<f32> one(1.f);
    const UpdateRates rate{.step_size = p.rate,
                           .decay = p.decay,
                           .b1 = p.beta1,
                           .one_minus_b1 = p.rest1,
                           .b2 = p.beta2,
                           .one_minus_b2 = p.rest2,
                           .epsilon = p.epsilon,
                           .root_scale = p.v_factor,
                           .gradient_rate = one,
                           .step_number = one};
    std::vector<UpdatedElement> out;
    for (int e = 0; e < W; ++e) out.push_back(updated(OptimizerRule::adamw, rate, {w[e], m[e], v[e]}, g[e]));
    const auto get = [&](auto member) {
      return RegGroup<f32, W>::generate([&](int e) { return out[std::size_t(e)].*member; });
    };
    p.m.template st<W>(i, get(&UpdatedElement::m));
    p.v.template st<W>(i, get(&UpdatedElement::v));
    p.weight.template st<W>(i, get(&UpdatedElement::w));
  });
}

void adamw_kernel(Kernel& k, AdamWConfig c, AdamWArgs<DeviceArg> p) {
  c.width == 4 ? update<4>(k, p) : update<1>(k, p);
}

std::span<const Variant> variants() {
  static const std::vector<Variant> v{config_variant("adamw", AdamWConfig{.width = 4}, 75, adamw_kernel),
                                      config_variant("adamw", AdamWConfig{}, 75, adamw_kernel)};
  return v;
}

void check(const AdamW& a) {
  const row::Checker c{"adamw"};
  const std::pair<const char*, const View*> views[] = {
      {"weight", &a.weight}, {"m", &a.m}, {"v", &a.v}, {"gradient", &a.gradient}};
  for (const auto& [name, view] : views) {
    c.present(name, *view, {DType::f32}, view != &a.gradient);
    c.vector(name, *view, a.count);
  }
  for (const auto& [name, beta] : {std::pair{"beta1", a.beta1}, {"beta2", a.beta2}})
    if (!(beta >= 0 && beta < 1)) c.fail(name, "must be from 0 to below 1", text::cat("it is ", beta));
  if (a.step == 0) c.fail("step", "counts from 1", "it is 0");
}

void launch_part(runtime::Stream& s, const AdamW& a, const Variant& v, std::uint64_t first,
                 std::uint64_t accesses) {
  const double t = double(a.step);
  const auto grid =
      runtime::grid_for_at_most(accesses, kAdamThreads, std::uint64_t(s.device().info().sm_count) * 64);
  launch::launch_kernel(s, load(s.device(), v), grid,
                        AdamWArgs<launch::HostArg>{.weight = a.weight.from(first).arg(),
                                                   .m = a.m.from(first).arg(),
                                                   .v = a.v.from(first).arg(),
                                                   .gradient = a.gradient.from(first).arg(),
                                                   .accesses = accesses,
                                                   .decay = float(a.rate * a.decay),
                                                   .beta1 = float(a.beta1),
                                                   .rest1 = float(1 - a.beta1),
                                                   .beta2 = float(a.beta2),
                                                   .rest2 = float(1 - a.beta2),
                                                   .rate = float(a.rate / (1 - std::pow(a.beta1, t))),
                                                   .v_factor = float(1 / std::sqrt(1 - std::pow(a.beta2, t))),
                                                   .epsilon = float(a.epsilon)});
}

/// Elements that go 16 bytes at a time.
std::uint64_t wide_part(const AdamW& a) {
  const auto any = a.weight.address | a.m.address | a.v.address | a.gradient.address;
  return any % 16 == 0 ? a.count / 4 * 4 : 0;
}

}  // namespace

void adamw(runtime::Stream& s, const AdamW& a) {
  check(a);
  const std::uint64_t wide = wide_part(a);
  if (wide) launch_part(s, a, variants()[0], 0, wide / 4);
  if (wide < a.count) launch_part(s, a, variants()[1], wide, a.count - wide);
}

namespace {

class AdamWCase : public Case {
 public:
  AdamWCase(const runtime::Device& d, AdamW a, std::array<HostArray, 4> host)
      : step_(a), host_(std::move(host)) {
    for (std::size_t k = 0; k < 4; ++k) {
      original_[k] = d.upload<float>(typed<float>(host_[k]));
      now_[k] = d.alloc<float>(a.count);
    }
    step_.weight = now_[0], step_.m = now_[1], step_.v = now_[2], step_.gradient = now_[3];
    const std::uint64_t wide = wide_part(step_);
    if (wide || !a.count) images.push_back(image(variants()[0], d.info().arch));
    if (wide < a.count) images.push_back(image(variants()[1], d.info().arch));
    variant = images[0].name;
    why = wide == a.count ? "aligned: 16-byte accesses" : "and a second launch for what is not 16 bytes wide";
    flops = 14 * double(a.count);
    bytes = 28 * double(a.count);
  }
  void launch(runtime::Stream& s) override {
    for (std::size_t k = 0; k < 4; ++k) s.copy(now_[k], original_[k]);
    adamw(s, step_);
  }
  std::vector<NamedArray> outputs() override {
    std::vector<NamedArray> out;
    for (std::size_t k = 0; k < 3; ++k) {
      HostArray h(DType::f32, {step_.count});
      now_[k].download(typed<float>(h));
      out.push_back({kNames[k], std::move(h)});
    }
    return out;
  }
  Check verify() override {
    std::vector<double> want[3], tolerance[3];
    for (std::uint64_t i = 0; i < step_.count; ++i) {
      const AdamWElement e{host_[0].at(i), host_[1].at(i), host_[2].at(i)};
      const auto w = adamw_ref(step_, e, host_[3].at(i)), t = adamw_tolerance(step_, e, host_[3].at(i));
      want[0].push_back(w.weight), want[1].push_back(w.m), want[2].push_back(w.v);
      tolerance[0].push_back(t.weight), tolerance[1].push_back(t.m), tolerance[2].push_back(t.v);
    }
    const auto got = outputs();
    Check worst;
    for (std::size_t k = 0; k < 3; ++k) {
      const Check c = compare(got[k].array, want[k], [&](std::uint64_t i) { return tolerance[k][i]; });
      if (k == 0 || !c.pass || (worst.pass && c.worst_ratio > worst.worst_ratio)) worst = c;
      if (!c.pass) break;
    }
    return worst;
  }

  static constexpr const char* kNames[4] = {"weight", "m", "v", "gradient"};

 private:
  AdamW step_;
  std::array<HostArray, 4> host_;
  std::array<runtime::Buffer<float>, 4> original_, now_;
};

}  // namespace

KernelEntry adamw_entry() {
  KernelEntry e;
  e.name = "adamw", e.summary = "one step of AdamW on f32";
  e.options = {{"n", "1048576", "elements"},
               {"rate", "0.001", "learning rate"},
               {"beta1", "0.9", "of m"},
               {"beta2", "0.999", "of v"},
               {"epsilon", "1e-8", "in the quotient"},
               {"decay", "0.01", "of the weights"},
               {"step", "1", "number of the step, from 1"}};
  e.inputs = {"weight", "m", "v", "gradient"};
  e.images = [](std::string_view arch) { return images(variants(), arch); };
  e.prepare = [](const runtime::Device& d, const Options& o, const std::vector<NamedArray>& given,
                 std::uint64_t seed) -> std::unique_ptr<Case> {
    AdamW a;
    const HostArray* first = nullptr;
    for (const char* name : AdamWCase::kNames)
      if (!first) first = find_input(given, name);
    a.count = first ? first->size() : o.size("n");
    a.rate = o.real("rate"), a.beta1 = o.real("beta1"), a.beta2 = o.real("beta2");
    a.epsilon = o.real("epsilon"), a.decay = o.real("decay"), a.step = o.size("step");
    std::array<HostArray, 4> host;
    for (std::size_t k = 0; k < 4; ++k)
      host[k] = input_or_random(given, AdamWCase::kNames[k], DType::f32, {a.count}, seed + k);
    if (!find_input(given, "v"))  // a mean of squares
      for (float& v : typed<float>(host[2])) v *= v;
    return std::make_unique<AdamWCase>(d, a, std::move(host));
  };
  return e;
}

}  // namespace cgp::kernels
