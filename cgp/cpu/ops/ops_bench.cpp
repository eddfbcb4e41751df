// SPDX-License-Identifier: Apache-2.0
// The operations of ops.h and attention.h with each instruction set, in turns; one thread, the least of its own processor
// times. GB/s count what is read and written once; of attention, the keys and values.
//   cgp_cpu_ops_bench [--rounds R] [--json]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cgp/base/random.h"
#include "cgp/cpu/ops/attention.h"
#include "cgp/profile/measure/system.h"

using namespace cgp;

namespace {

double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

struct Row {
  std::string name, isa;
  double bytes;
  std::function<void()> run;
  double best = 1e9;
};

}  // namespace

int main(int argc, char** argv) {
  int rounds = 15;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--json"))
      json = true;
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc && std::atoi(argv[i + 1]) > 0)
      rounds = std::atoi(argv[++i]);
    else
      return std::fprintf(stderr, "cgp_cpu_ops_bench [--rounds R] [--json]\n"), 2;
  }
  constexpr std::int64_t n = 4096, tokens = 2048;
  SplitMix64 random(1);
  std::vector<float> x(n), w(n, 1.0f), up(n), y(n), q(32 * 128), out(q.size());
  for (auto* v : {&x, &up, &q})
    for (float& f : *v) f = float(random.normal());
  const auto frequencies = cpu::rope_frequencies(128, 10000);
  std::vector<std::uint16_t> keys(std::size_t(tokens * 8 * 128)), values(keys.size());
  for (auto* v : {&keys, &values})
    for (auto& bits : *v) bits = std::uint16_t(0x3000 | (random.next() & 0x83ff));
  std::vector<std::int32_t> pages(std::size_t(tokens / 16));
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = std::int32_t(i % 64 ^ 5);
  std::vector<Row> rows;
  for (cpu::Isa isa : {cpu::Isa::scalar, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (!cpu::has(isa)) continue;
    const cpu::OpOptions o{.isa = isa};
    const auto add = [&](const char* name, double bytes, std::function<void()> run) {
      rows.push_back({name, std::string(cpu::name(isa)), bytes, std::move(run)});
    };
    add("rms_norm 1 x 4096", 12 * n, [&, o] { cpu::rms_norm(x, w, 1e-5f, y, o); });
    add("layer_norm 1 x 4096", 16 * n, [&, o] { cpu::layer_norm(x, w, up, 1e-5f, y, o); });
    add("softmax 1 x 4096", 8 * n, [&, o] { cpu::softmax(x, n, 1, y, o); });
    add("silu * up 4096", 12 * n, [&, o] { cpu::activate(cpu::Activation::silu, x, up, y, o); });
    add("gelu 4096", 8 * n, [&, o] { cpu::activate(cpu::Activation::gelu, x, {}, y, o); });
    add("gelu_tanh 4096", 8 * n, [&, o] { cpu::activate(cpu::Activation::gelu_tanh, x, {}, y, o); });
    add("rope 32 heads of 128", 8 * n,
        [&, o] { cpu::rope(cpu::RopePairs::halves, y, 32, 128, {{77}}, frequencies, o); });
    for (auto [name, kv, d] : {std::tuple{"attention f16, 32 heads on 8 of 128, 2048 tokens", 8, 128},
                               {"attention f16, 32 heads on 32 of 64, 1024 tokens", 32, 64}}) {
      const std::int64_t count = d == 64 ? 1024 : 2048;
      const cpu::KvCache cache{std::as_bytes(std::span(keys)),
                               std::as_bytes(std::span(values)),
                               cpu::CacheType::f16,
                               kv,
                               d,
                               16,
                               pages,
                               count};
      add(name, 4.0 * double(count * kv * d), [&, o, cache, d = d] {
        cpu::attention(std::span(q).first(std::size_t(32 * d)), 1, cache, {.scale = 0.1f},
                       std::span(out).first(std::size_t(32 * d)), o);
      });
    }
  }
  for (int r = 0; r < rounds; ++r)
    for (auto& row : rows) {
      const int calls = row.bytes < 1e6 ? 50 : 1;
      const double start = now();
      for (int c = 0; c < calls; ++c) row.run();
      row.best = std::min(row.best, (now() - start) / calls);
    }
  if (json)
    std::printf("{\"cpu\": \"%s\", \"rounds\": %d, \"rows\": [", measure::machine_facts().cpu.c_str(),
                rounds);
  else
    std::printf("%s, one thread, least of %d rounds\n", measure::machine_facts().cpu.c_str(), rounds);
  const char* comma = "";
  for (const auto& row : rows) {
    if (json)
      std::printf("%s\n {\"name\": \"%s\", \"isa\": \"%s\", \"us\": %.3f, \"gbps\": %.2f}", comma,
                  row.name.c_str(), row.isa.c_str(), row.best * 1e6, row.bytes / row.best * 1e-9);
    else
      std::printf("  %-52s %-7s %9.2f us  %6.1f GB/s\n", row.name.c_str(), row.isa.c_str(), row.best * 1e6,
                  row.bytes / row.best * 1e-9);
    comma = ",";
  }
  if (json) std::printf("\n]}\n");
}
