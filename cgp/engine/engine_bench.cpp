// SPDX-License-Identifier: Apache-2.0
// Tokens per second of a model file: prompts of several lengths, and sequences that generate together.
//   cgp_engine_bench FILE [--device cuda:0] [--sequences 1,8,32] [--prompts 512,2048] [--tokens 64] [--rounds 3] [--json]
//     [--threads N] [--activations int16|int8] [--profile] [--without]
// Random tokens, greedy, from an empty cache; the median of the rounds. Decoding counts from each batch's first step without
// a prompt to its last. --profile: time of each role's launches, one after the other; --without: by how much a step is shorter
// without the launches of a role, which on a GPU overlap.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/llm.h"

namespace cgp::engine {
namespace {

using Clock = std::chrono::steady_clock;

struct Settings {
  std::string file;
  LoadOptions load;
  std::vector<std::int64_t> sequences{1, 8, 32}, prompts{512, 2048};
  std::int64_t tokens = 64, batch_prompt = 128, rounds = 3;
  bool json = false, profile = false, without = false;
};

std::vector<std::int64_t> numbers(const std::string& s) {
  std::vector<std::int64_t> out;
  for (auto part : text::split(s, ',')) out.push_back(std::atoll(std::string(part).c_str()));
  return out;
}

Settings parse(int argc, char** argv) {
  Settings s;
  s.load.context = 4096;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      s.file = name;
    } else if (name == "--json") {
      s.json = true;
    } else if (name == "--profile") {
      s.profile = true;
    } else if (name == "--without") {
      s.without = true;
    } else {
      const std::string value = i + 1 < argc ? argv[++i] : "";
      const auto number = std::atoll(value.c_str());
      if (name == "--device")
        s.load.device = value;
      else if (name == "--sequences")
        s.sequences = numbers(value);
      else if (name == "--prompts")
        s.prompts = numbers(value);
      else if (name == "--tokens")
        s.tokens = number;
      else if (name == "--rounds")
        s.rounds = number;
      else if (name == "--context")
        s.load.context = number;
      else if (name == "--threads")
        s.load.threads = int(number);
      else if (name == "--activations" && (value == "int16" || value == "int8"))
        s.load.activations = value == "int8" ? ActivationType::int8 : ActivationType::int16;
      else
        throw ArgumentError(ErrorText{"there is no such option", {}, name, {}});
    }
  }
  if (s.file.empty() || s.rounds < 1 || s.tokens < 2)
    throw ArgumentError("a file, at least one round and two tokens are needed");
  s.load.sequences = std::max<std::int64_t>(1, *std::max_element(s.sequences.begin(), s.sequences.end()));
  return s;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

struct Rates {
  double prefill = 0, decode = 0;  ///< tokens per second
};
Rates run(Backend& backend, std::int64_t sequences, std::int64_t prompt, std::int64_t tokens, unsigned seed) {
  Scheduler scheduler(backend, nullptr);
  std::mt19937 random(seed);
  const auto words = backend.program().values[std::size_t(backend.program().logits)].width;
  std::vector<RequestId> ids;
  for (std::int64_t i = 0; i < sequences; ++i) {
    Request r;
    for (std::int64_t t = 0; t < prompt; ++t) r.prompt.push_back(Token(random() % std::uint64_t(words)));
    r.max_tokens = tokens, r.sampling.temperature = 0;
    ids.push_back(scheduler.submit(std::move(r)));
  }
  const auto seconds = [](Clock::duration d) { return std::chrono::duration<double>(d).count(); };
  const auto start = Clock::now();
  const auto steps = (sequences * prompt + backend.options().max_rows - 1) / backend.options().max_rows;
  for (std::int64_t i = 0; i < steps; ++i) scheduler.step();
  const auto prefilled = Clock::now();
  Rates out;
  out.prefill = double(sequences * prompt) / seconds(prefilled - start);
  // Sequences whose prompt ended early have generated already; the last begin now.
  std::int64_t made = 0;
  auto begin = prefilled;
  for (bool first = true; scheduler.step(); first = false) {
    if (first)
      begin = Clock::now();  // kernels of this size are loaded
    else
      ++made;
  }
  if (made > 0) out.decode = double(made * sequences) / seconds(Clock::now() - begin);
  for (RequestId id : ids) scheduler.take(id);
  return out;
}

/// Microseconds of a step of n sequences, median.
double step_us(Backend& backend, std::int64_t n, const Settings& s) {
  std::vector<double> us;
  for (std::int64_t r = 0; r <= s.rounds; ++r) {
    const double rate = run(backend, n, s.batch_prompt, s.tokens, unsigned(r)).decode;
    if (r) us.push_back(double(n) / rate * 1e6);
  }
  return median(us);
}

void print_without(Backend& backend, std::int64_t n, const Settings& s) {
  backend.leave_out({});
  const double whole = step_us(backend, n, s);
  std::printf("  %-20s %10.1f us\n", "whole step", whole);
  std::vector<Role> all;
  for (int role = 0; role < kRoles; ++role) {
    const bool there = std::any_of(backend.program().steps.begin(), backend.program().steps.end(),
                                   [&](const Step& step) { return step.role == Role(role); });
    if (!there) continue;
    all.push_back(Role(role));
    backend.leave_out({Role(role)});
    std::printf("  %-20s %10.1f us\n", std::string(name(Role(role))).c_str(), whole - step_us(backend, n, s));
    std::fflush(stdout);
  }
  backend.leave_out(all);
  std::printf("  %-20s %10.1f us\n", "beside all", step_us(backend, n, s));
  backend.leave_out({});
}

int bench(const Settings& s) {
  LLM llm = LLM::load(s.file, s.load);
  Backend& backend = llm.backend();
  std::printf("%s, loaded in %.2f s, %.2f GB\n", backend.name().c_str(), llm.load_seconds(),
              double(backend.memory().total()) * 1e-9);
  const auto report = [&](const char* what, std::int64_t n, const std::vector<double>& rates) {
    if (s.json) {
      std::printf("{\"what\": \"%s\", \"n\": %lld, \"tokens_per_second\": [", what,
                  static_cast<long long>(n));
      for (std::size_t i = 0; i < rates.size(); ++i) std::printf("%s%.2f", i ? ", " : "", rates[i]);
      std::printf("]}\n");
    } else {
      std::printf("%-8s %6lld %12.1f tokens/s\n", what, static_cast<long long>(n), median(rates));
    }
    std::fflush(stdout);
  };
  for (const std::int64_t prompt : s.prompts) {
    std::vector<double> rates;
    for (std::int64_t r = 0; r <= s.rounds; ++r) {
      const double rate = run(backend, 1, prompt, 2, unsigned(r)).prefill;
      if (r) rates.push_back(rate);  // the first loads kernels
    }
    report("prefill", prompt, rates);
  }
  for (const std::int64_t n : s.sequences) {
    std::vector<double> rates;
    for (std::int64_t r = 0; r <= s.rounds; ++r) {
      if (s.profile && r == s.rounds) backend.set_profile(true);
      const double rate = run(backend, n, s.batch_prompt, s.tokens, unsigned(r)).decode;
      if (r && !(s.profile && r == s.rounds)) rates.push_back(rate);
    }
    if (!rates.empty()) report("decode", n, rates);
    if (s.without) print_without(backend, n, s);
    if (!s.profile) continue;
    backend.set_profile(false);
    const auto profile = backend.profile();
    for (int role = 0; role < kRoles; ++role)
      if (const RoleTime& t = profile[std::size_t(role)]; t.count)
        std::printf("  %-20s %8lld %10.2f us\n", std::string(name(Role(role))).c_str(),
                    static_cast<long long>(t.count), t.seconds / double(t.count) * 1e6);
  }
  return 0;
}

}  // namespace
}  // namespace cgp::engine

int main(int argc, char** argv) try {
  return cgp::engine::bench(cgp::engine::parse(argc, argv));
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
