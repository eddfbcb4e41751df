// SPDX-License-Identifier: Apache-2.0
#include "cgp/kernels/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>

#include "cgp/base/error.h"
#include "cgp/kernels/optimizer/optimizer_code.h"
#include "cgp/kernels/optimizer/optimizer_ref.h"
#include "cgp/testing/kernel_test.h"

using namespace cgp;
using namespace cgp::kernels;
using namespace cgp::testing;

namespace {

constexpr std::size_t kSkew = 1;  // elements before a slice that is not aligned

template <class W, class G>
struct Model {
  struct Tensor {
    runtime::Buffer<W> weight;
    runtime::Buffer<G> gradient;
    runtime::Buffer<float> master;
    std::size_t first, length;
  };
  runtime::Device device;
  std::deque<Tensor> tensors;
  std::vector<OptimizerTensor> table;
  std::uint64_t seed = 1;

  Model(std::string_view name, const std::vector<std::size_t>& lengths, bool master, std::uint32_t groups)
      : device(runtime::Device::open(name)) {
    for (std::size_t n : lengths) {
      const std::size_t i = tensors.size(), first = i % 2 ? kSkew : 0;
      const auto w = random_array(dtype_of<W>, {n + first}, ++seed);
      auto& t = tensors.emplace_back(Tensor{device.upload<W>(typed<W>(w)), device.zeros<G>(n + first),
                                            device.zeros<float>(master ? n : 0), first, n});
      if (master) {
        std::vector<float> copy(n);
        for (std::size_t e = 0; e < n; ++e) copy[e] = float(w.at(e + first));
        t.master.all().upload(copy);
      }
      OptimizerTensor o;
      o.weight = View(t.weight.all().slice(first, n)), o.gradient = View(t.gradient.all().slice(first, n));
      o.group = std::uint32_t(i) % groups;
      if (master) o.master = View(t.master.all());
      table.push_back(o);
    }
  }
  void new_gradients() {
    for (auto& t : tensors) {
      const auto g = random_array(dtype_of<G>, {t.length + t.first}, ++seed);
      t.gradient.all().upload(typed<G>(g));
    }
  }
  std::vector<double> weights(std::size_t i) const {
    const auto& t = tensors[i];
    std::vector<double> out;
    if (t.master.size()) {
      for (float x : t.master.to_vector()) out.push_back(x);
    } else {
      const auto all = t.weight.to_vector();
      for (std::size_t e = 0; e < t.length; ++e) out.push_back(double(float(all[e + t.first])));
    }
    return out;
  }
  std::vector<double> gradients(std::size_t i) const {
    const auto& t = tensors[i];
    const auto all = t.gradient.to_vector();
    std::vector<double> out;
    for (std::size_t e = 0; e < t.length; ++e) out.push_back(double(float(all[e + t.first])));
    return out;
  }
};

const std::vector<OptimizerGroup> kGroups = {{.lr = 0.01, .weight_decay = 0.1},
                                             {.lr = 0.003, .beta1 = 0.8, .beta2 = 0.95, .maximize = true}};

// Each step against the oracle, from the device's state before it.
template <class W, class G>
void expect_steps(OptimizerOptions o, bool master, const std::vector<std::size_t>& lengths, int steps = 2,
                  std::string_view device = "emu:sm_90a") {
  SCOPED_TRACE(::testing::Message() << "rule " << int(o.rule) << " weight " << name(dtype_of<W>)
                                    << " gradient " << name(dtype_of<G>) << " master " << master);
  Model<W, G> model(device, lengths, master, 2);
  Optimizer optimizer(model.device, o, model.table, kGroups);
  auto& stream = model.device.stream();
  for (int t = 1; t <= steps; ++t) {
    model.new_gradients();
    std::vector<std::vector<OptimizerElement>> before(lengths.size());
    double squares = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto w = model.weights(i);
      const auto m = optimizer.first_state(i).to_vector(), v = optimizer.second_state(i).to_vector();
      for (std::size_t e = 0; e < lengths[i]; ++e)
        before[i].push_back({w[e], m.empty() ? 0. : m[e], v.empty() ? 0. : v[e]});
      for (double g : model.gradients(i)) squares += g * g;
    }
    optimizer.step(stream);
    model.device.sync();
    const double norm = std::sqrt(squares) / o.loss_scale;
    const double factor = (o.max_norm > 0 ? std::min(1., o.max_norm / (norm + 1e-6)) : 1.) / o.loss_scale;
    if (o.max_norm > 0) {
      EXPECT_NEAR(optimizer.status().norm, norm, 1e-5 * norm);
    }
    const double unit = master ? 0 : unit_roundoff(dtype_of<W>);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto w = model.weights(i), g = model.gradients(i);
      const auto m = optimizer.first_state(i).to_vector(), v = optimizer.second_state(i).to_vector();
      for (std::size_t e = 0; e < lengths[i]; ++e) {
        const auto want =
            optimizer_ref(o.rule, kGroups[i % 2], before[i][e], g[e] * factor, std::uint32_t(t));
        ASSERT_NEAR(w[e], want.w, std::fabs(want.w) * (1e-5 + unit) + 1e-6)
            << "tensor " << i << " element " << e;
        if (!m.empty()) {
          ASSERT_NEAR(m[e], want.m, std::fabs(want.m) * 1e-5 + 1e-6) << "tensor " << i << " element " << e;
        }
        if (!v.empty()) {
          ASSERT_NEAR(v[e], want.v, std::fabs(want.v) * 1e-5 + 1e-6) << "tensor " << i << " element " << e;
        }
      }
      const auto& t0 = model.tensors[i];
      if (master) {  // the weight is its master, rounded
        const auto stored = t0.weight.to_vector();
        for (std::size_t e = 0; e < lengths[i]; ++e)
          ASSERT_EQ(float(stored[e + t0.first]), float(W(float(w[e]))));
      }
    }
  }
  EXPECT_EQ(optimizer.status().step, std::uint32_t(steps));
}

const std::vector<std::size_t> kRagged = {0, 1, 31, 33, 100, 257};

}  // namespace

TEST(optimizer, every_rule_matches_the_oracle_at_ragged_lengths) {
  for (auto rule : {OptimizerRule::adamw, OptimizerRule::adam, OptimizerRule::sgd, OptimizerRule::nesterov,
                    OptimizerRule::lion, OptimizerRule::descent})
    expect_steps<float, float>({.rule = rule}, false, kRagged, 3);
}

TEST(optimizer, every_pairing_of_types_with_and_without_master) {
  for (bool master : {false, true}) {
    const std::vector<std::size_t> some = {31, 64, 8};
    expect_steps<float, half>({}, master, some);
    expect_steps<float, bfloat16>({}, master, some);
    expect_steps<half, half>({}, master, some);
    expect_steps<half, float>({}, master, some);
    expect_steps<bfloat16, bfloat16>({}, master, some);
    expect_steps<bfloat16, float>({}, master, some);
  }
}

// As the code's authors build it: middles of equal parts of decades, with 0 and 1.
TEST(optimizer, dynamic_codes_are_those_of_the_paper) {
  for (bool is_signed : {true, false}) {
    std::vector<double> want{0, 1};
    for (int i = 0; i < 7; ++i) {
      const int parts = (is_signed ? 1 : 2) << i;
      for (int e = 0; e < parts; ++e) {
        const double low = 0.1 + 0.9 * e / parts, high = 0.1 + 0.9 * (e + 1) / parts;
        want.push_back((low + high) / 2 * std::pow(10., i - 6));
        if (is_signed) want.push_back(-want.back());
      }
    }
    std::sort(want.begin(), want.end());
    const auto code = dynamic_code(is_signed);
    ASSERT_EQ(want.size(), 256u);
    for (std::size_t i = 0; i < 256; ++i) EXPECT_NEAR(code.values[i], want[i], 1e-7 * std::fabs(want[i]));
  }
}

namespace {

// Codes and scales of `want` beside the nearest that there are.
void expect_coded(Optimizer& optimizer, std::size_t tensor, int which, const std::vector<double>& want) {
  const auto code = dynamic_code(which == 0);
  const auto codes = optimizer.state_codes(tensor, which).to_vector();
  const auto scales = optimizer.state_scales(tensor, which).to_vector();
  for (std::size_t e = 0; e < want.size(); ++e) {
    const std::size_t block = e / kOptimizerStateBlock * kOptimizerStateBlock;
    double largest = 0;
    for (std::size_t i = block; i < std::min(want.size(), block + kOptimizerStateBlock); ++i)
      largest = std::max(largest, std::fabs(want[i]));
    const double scale = scales[e / kOptimizerStateBlock];
    ASSERT_NEAR(scale, largest, 1e-5 * largest) << "tensor " << tensor << " element " << e;
    double nearest = std::numeric_limits<double>::infinity();
    for (std::size_t i = which == 1 && want[e] > 0 ? 1 : 0; i < 256; ++i)
      nearest = std::min(nearest, std::fabs(code.values[i] * scale - want[e]));
    ASSERT_LE(std::fabs(code.values[codes[e]] * scale - want[e]),
              nearest + 2e-6 * std::fabs(want[e]) + 1e-9 * scale)
        << "tensor " << tensor << " element " << e << " state " << which;
  }
}

template <class W, class G>
void expect_8bit_steps(OptimizerRule rule, const std::vector<std::size_t>& lengths, std::string_view device) {
  SCOPED_TRACE(::testing::Message() << "rule " << int(rule) << " weight " << name(dtype_of<W>));
  Model<W, G> model(device, lengths, false, 2);
  Optimizer optimizer(model.device, {.rule = rule, .states8 = true}, model.table, kGroups);
  const int states = has_second_state(rule) ? 2 : 1;
  for (std::uint32_t t = 1; t <= 3; ++t) {
    model.new_gradients();
    std::vector<std::vector<OptimizerElement>> want(lengths.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto w = model.weights(i), g = model.gradients(i);
      std::vector<OptimizerElement> before(lengths[i]);
      for (int s = 0; s < states; ++s) {
        const auto code = dynamic_code(s == 0);
        const auto codes = optimizer.state_codes(i, s).to_vector();
        const auto scales = optimizer.state_scales(i, s).to_vector();
        for (std::size_t e = 0; e < lengths[i]; ++e)
          (s ? before[e].v : before[e].m) = double(code.values[codes[e]]) * scales[e / kOptimizerStateBlock];
      }
      for (std::size_t e = 0; e < lengths[i]; ++e) {
        before[e].w = w[e];
        want[i].push_back(optimizer_ref(rule, kGroups[i % 2], before[e], g[e], t));
      }
    }
    optimizer.step(model.device.stream());
    model.device.sync();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto w = model.weights(i);
      std::vector<double> m, v;
      for (std::size_t e = 0; e < lengths[i]; ++e) {
        ASSERT_NEAR(w[e], want[i][e].w, std::fabs(want[i][e].w) * (1e-5 + unit_roundoff(dtype_of<W>)) + 1e-6)
            << "tensor " << i << " element " << e;
        m.push_back(want[i][e].m), v.push_back(want[i][e].v);
      }
      expect_coded(optimizer, i, 0, m);
      if (states == 2) expect_coded(optimizer, i, 1, v);
    }
  }
}

}  // namespace

TEST(optimizer, states_of_8_bits_are_the_nearest_codes) {
  const std::vector<std::size_t> some = {0, 1, 300, 257, 512};
  expect_8bit_steps<float, float>(OptimizerRule::adamw, some, "emu:sm_90a");
  expect_8bit_steps<bfloat16, bfloat16>(OptimizerRule::adamw, {513, 40}, "emu:sm_80");
  expect_8bit_steps<half, float>(OptimizerRule::sgd, {256, 31}, "emu:sm_75");
  expect_8bit_steps<float, float>(OptimizerRule::lion, {256, 31}, "emu:sm_90a");
}

TEST(optimizer, runs_on_the_first_architecture) {
  expect_steps<half, half>({.max_norm = 1}, true, {33, 8}, 1, "emu:sm_75");
}

TEST(optimizer, clips_by_the_norm_of_all_tensors_and_removes_the_loss_scale) {
  expect_steps<float, float>({.rule = OptimizerRule::sgd, .max_norm = 0.5, .loss_scale = 8}, false,
                             {4097, 31, 16384 + 5});
}

TEST(optimizer, hundreds_of_tensors_in_one_launch) {
  expect_steps<float, float>({.max_norm = 0.1}, false, std::vector<std::size_t>(300, 7), 1);
}

TEST(optimizer, a_step_with_nan_or_infinity_is_skipped_and_counted) {
  Model<float, float> model("emu:sm_90a", {5, 9}, false, 1);
  Optimizer optimizer(model.device, {.loss_scale = 1024, .growth_interval = 2}, model.table,
                      std::vector<OptimizerGroup>(1));
  auto& stream = model.device.stream();
  const auto step = [&](float first) {
    model.new_gradients();
    model.tensors[1].gradient.all().slice(kSkew, 1).upload(std::vector<float>{first});
    optimizer.step(stream);
    model.device.sync();
    return optimizer.status();
  };
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto before = model.weights(0);
    const auto s = step(bad);
    EXPECT_EQ(s.step, 0u);
    EXPECT_EQ(model.weights(0), before);
    for (float m : optimizer.first_state(0).to_vector()) EXPECT_EQ(m, 0.f);
  }
  EXPECT_EQ(optimizer.status().skipped, 2u);
  EXPECT_EQ(optimizer.status().loss_scale, 256.f);
  EXPECT_EQ(step(1).loss_scale, 256.f);
  const auto grown = step(1);
  EXPECT_EQ(grown.loss_scale, 512.f);
  EXPECT_EQ(grown.step, 2u);
  EXPECT_EQ(grown.good, 0u);
}

TEST(optimizer, continues_with_the_same_bits_after_a_restore) {
  const auto run = [](bool stop) {
    Model<float, float> model("emu:sm_90a", {37, 8}, false, 1);
    const std::vector<OptimizerGroup> groups(1);
    auto& stream = model.device.stream();
    auto optimizer =
        std::make_unique<Optimizer>(model.device, OptimizerOptions{.max_norm = 1}, model.table, groups);
    for (int i = 0; i < 4; ++i) {
      if (stop && i == 2) {
        auto next =
            std::make_unique<Optimizer>(model.device, OptimizerOptions{.max_norm = 1}, model.table, groups);
        next->restore(optimizer->status());
        for (std::size_t t = 0; t < 2; ++t) {
          next->first_state(t).upload(optimizer->first_state(t).to_vector());
          next->second_state(t).upload(optimizer->second_state(t).to_vector());
        }
        optimizer = std::move(next);
      }
      model.new_gradients();
      optimizer->step(stream);
      model.device.sync();
    }
    return model.weights(0);
  };
  EXPECT_EQ(run(false), run(true));
}

// A weight of 1 and steps of a quarter of its distance to the next bf16: to the nearest it stays, stochastically a quarter of
// all elements move, the same ones at each run.
TEST(optimizer, stochastic_rounding_keeps_the_mean_and_is_repeatable) {
  const auto run = [](OptimizerRounding rounding, std::uint64_t seed) {
    const std::size_t n = 4003;
    const auto device = runtime::Device::open("emu:sm_80");
    auto weight = device.upload<bfloat16>(std::vector<bfloat16>(n, bfloat16(1.f)));
    const auto gradient = device.upload<float>(std::vector<float>(n, -1.f));
    OptimizerTensor t;
    t.weight = View(weight), t.gradient = View(gradient);
    Optimizer optimizer(device, {.rule = OptimizerRule::descent, .rounding = rounding, .seed = seed}, {{t}},
                        std::vector<OptimizerGroup>{{.lr = 0.25 / 128}});
    optimizer.step(device.stream());
    device.sync();
    std::vector<float> out;
    for (const auto w : weight.to_vector()) out.push_back(float(w));
    return out;
  };
  const auto moved = [](const std::vector<float>& w) { return std::count(w.begin(), w.end(), 1.0078125f); };
  const auto first = run(OptimizerRounding::stochastic, 1);
  EXPECT_NEAR(double(moved(first)), 4003 / 4., 5 * std::sqrt(4003 * 3 / 16.));
  EXPECT_EQ(moved(first) + std::count(first.begin(), first.end(), 1.f), 4003);
  EXPECT_EQ(first, run(OptimizerRounding::stochastic, 1));
  EXPECT_NE(first, run(OptimizerRounding::stochastic, 2));
  EXPECT_EQ(moved(run(OptimizerRounding::nearest, 1)), 0);
}

TEST(optimizer, gradients_alone_are_clipped_in_place) {
  Model<float, half> model("emu:sm_90a", {100, 31}, false, 1);
  model.new_gradients();
  std::vector<std::uint64_t> table, lengths;
  double squares = 0;
  for (const auto& t : model.table) {
    table.insert(table.end(), {0, t.gradient.address, 0, 0, 0, 0, t.gradient.elements, 0});
    lengths.push_back(t.gradient.elements);
  }
  const std::vector<std::vector<double>> before{model.gradients(0), model.gradients(1)};
  for (const auto& tensor : before)
    for (double g : tensor) squares += g * g;
  const auto& d = model.device;
  const auto rows = d.upload<std::uint64_t>(table);
  const auto chunks = d.upload<std::uint32_t>(optimizer_chunks(lengths));
  auto partial = d.zeros<float>(2);
  for (const double max_norm : {1e9, 0.5}) {
    std::vector<std::uint32_t> words(kOptimizerControlWords);
    words[kScale] = std::bit_cast<std::uint32_t>(1.f);
    auto control = d.upload<std::uint32_t>(words);
    optimizer_norm(d.stream(), DType::f16, rows, chunks, partial);
    optimizer_control(d.stream(), {.max_norm = float(max_norm), .steps = false}, {{}, {}, control, {}},
                      partial);
    optimizer_clip(d.stream(), DType::f16, rows, chunks, control);
    d.sync();
    EXPECT_NEAR(std::bit_cast<float>(control.to_vector()[kNorm]), std::sqrt(squares),
                1e-4 * std::sqrt(squares));
    const double factor = std::min(1., max_norm / std::sqrt(squares));
    for (std::size_t i = 0; i < 2; ++i) {
      const auto g = model.gradients(i);
      for (std::size_t e = 0; e < g.size(); ++e)
        ASSERT_NEAR(g[e], before[i][e] * factor, factor == 1 ? 0 : std::fabs(g[e]) * 0x1p-10 + 1e-7);
    }
  }
}

TEST(optimizer, new_rates_hold_from_the_next_step_on) {
  Model<float, float> model("emu:sm_90a", {12}, false, 1);
  std::vector<OptimizerGroup> groups(1);
  Optimizer optimizer(model.device, {.rule = OptimizerRule::sgd}, model.table, groups);
  auto& stream = model.device.stream();
  model.new_gradients();
  const auto before = model.weights(0);
  groups[0].lr = 0;
  optimizer.set_groups(groups);
  optimizer.step(stream);
  model.device.sync();
  EXPECT_EQ(model.weights(0), before);
  EXPECT_THROW(optimizer.set_groups({}), ArgumentError);
}

TEST(optimizer, bad_arguments_are_named) {
  Model<float, float> model("emu:sm_90a", {4, 4}, false, 1);
  const std::vector<OptimizerGroup> groups(1);
  const auto refused = [&](auto change) {
    auto table = model.table;
    auto g = groups;
    OptimizerOptions o;
    change(table, g, o);
    EXPECT_THROW(Optimizer(model.device, o, table, g), ArgumentError);
  };
  refused([](auto& t, auto&, auto&) { t[1].group = 1; });
  refused([](auto& t, auto&, auto&) { t[1].gradient.elements = 3; });
  refused([](auto& t, auto&, auto&) { t[1].master = t[0].weight; });
  refused([](auto& t, auto&, auto&) { t[0].weight.given = false; });
  refused([](auto&, auto& g, auto&) { g[0].beta2 = 1; });
  refused([](auto&, auto& g, auto&) { g[0].lr = -1; });
  refused([](auto&, auto&, auto& o) { o.loss_scale = 0; });
  refused([](auto&, auto&, auto& o) { o.max_norm = -1; });
  Optimizer stateless(model.device, {.rule = OptimizerRule::descent, .states8 = true}, model.table, groups);
  EXPECT_THROW(stateless.step(model.device.stream()), Unsupported);
  Optimizer stochastic(model.device, {.rounding = OptimizerRounding::stochastic}, model.table, groups);
  EXPECT_THROW(stochastic.step(model.device.stream()), Unsupported);
}

// Every rule in f32, and every type of AdamW and of the norm.
TEST(optimizer, variants_assemble_without_spills) {
  const auto all = optimizer_variants();
  std::vector<Variant> f32;
  for (const auto& v : all)
    if (v.name.find("16") == std::string::npos && v.name.find("master") == std::string::npos &&
        v.name.find("states8") == std::string::npos)
      f32.push_back(v);
  EXPECT_EQ(f32.size(), 15u);  // six updates, seven controls, a norm, a clip
  expect_assemble(images_for({"sm_75", "sm_86", "sm_89", "sm_100a", "sm_120a"}, f32));
  std::vector<Variant> adamw;
  for (const auto& v : all)
    if (v.name.find("_adamw") != std::string::npos || v.name.find("norm") != std::string::npos)
      if (v.name.find("states8") == std::string::npos || v.name.find("grad") == std::string::npos)
        adamw.push_back(v);
  expect_assemble(images_for({"sm_80", "sm_90a"}, adamw));
}
