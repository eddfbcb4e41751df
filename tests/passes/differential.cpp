// SPDX-License-Identifier: Apache-2.0
#include "differential.h"

#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/random.h"
#include "cgp/base/text.h"
#include "cgp/ptx/print.h"
#include "cgp/ptx/verify/verify.h"
#include "random_program.h"

namespace cgp::passes_test {

Runner::Runner(bool checked) {
  options_.checks = checked ? emu::CheckSet::all() : emu::CheckSet::none();
  options_.workers = 1;
  options_.counters = false;
  options_.step_limit = 200'000;
  in_ = machine_.alloc(Shape::in_bytes, "in");
  out_ = machine_.alloc(Shape::out_bytes, "out");
}

Outcome Runner::run(const std::string& ptx, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<std::uint32_t> in(Shape::in_bytes / 4), out(Shape::out_bytes / 4);
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::uint64_t r = random.next();
    // Small numbers, floats of ordinary size, and anything.
    in[i] = r % 3 == 0   ? std::uint32_t(r >> 32) % 40
            : r % 3 == 1 ? 0x3f000000u + (std::uint32_t(r >> 32) & 0x80ffffffu)
                         : std::uint32_t(r >> 32);
  }
  for (auto& w : out) w = std::uint32_t(random.next());
  machine_.write(in_, std::as_bytes(std::span(in)));
  machine_.write(out_, std::as_bytes(std::span(out)));
  struct {
    std::uint64_t in, out;
    std::uint32_t n, unused;
  } params{in_, out_, std::uint32_t(seed % 7), 0};
  Outcome result;
  try {
    const auto instance = machine_.load(emu::Program::load(ptx));
    emu::Launch launch;
    launch.entry = "program";
    launch.grid = {Shape::blocks, 1, 1};
    launch.block = {Shape::threads, 1, 1};
    launch.params = std::as_bytes(std::span(&params, 1)).subspan(0, 20);
    const emu::Result r = machine_.launch(instance, launch, options_);
    machine_.unload(instance);
    for (const auto& f : r.findings) result.problem += emu::describe(f) + "\n";
  } catch (const Error& e) {
    result.problem = e.what();
  }
  result.out.resize(Shape::out_bytes);
  machine_.read(out_, result.out);
  return result;
}

std::string compare(Runner& runner, const ptx::Module& m, const ptx::PassOptions& passes, std::uint64_t seed,
                    const Outcome* before, ptx::PassStatistics* statistics) {
  ptx::Module after = m;
  const auto s = ptx::optimise(after, passes);
  if (statistics) statistics->add(s);
  if (s.changes() == 0) return {};
  ptx::CheckOptions foreign;
  foreign.foreign = true;
  if (const auto problems = ptx::check(after, foreign); !problems.empty())
    return text::cat("illegal after the passes: ", problems[0].rule, ": ", problems[0].instruction, "\n",
                     problems[0].why);
  Outcome own;
  if (!before) {
    own = runner.run(ptx::print(m), seed);
    before = &own;
  }
  if (!before->problem.empty()) return {};  // says nothing about the passes
  const Outcome then = runner.run(ptx::print(after), seed);
  if (!then.problem.empty()) return "not clean after the passes:\n" + then.problem;
  for (std::size_t i = 0; i < then.out.size(); i += 4)
    if (std::memcmp(&then.out[i], &before->out[i], 4) != 0) {
      std::uint32_t was, is;
      std::memcpy(&was, &before->out[i], 4);
      std::memcpy(&is, &then.out[i], 4);
      return text::cat("thread ", i / 4 / Shape::out_words, " word ", i / 4 % Shape::out_words, ": ",
                       text::hex(was), " before, ", text::hex(is), " after");
    }
  return {};
}

namespace {

ptx::Module without(const ptx::Module& m, std::size_t first, std::size_t last) {
  ptx::Module n = m;
  ptx::Function& f = n.functions[0];
  f.body.erase(f.body.begin() + std::ptrdiff_t(first), f.body.begin() + std::ptrdiff_t(last));
  for (ptx::Label& l : f.labels)
    if (l.position > first) l.position -= std::uint32_t(std::min<std::size_t>(l.position, last) - first);
  return n;
}

}  // namespace

ptx::Module shrink(Runner& runner, ptx::Module m, const ptx::PassOptions& passes, std::uint64_t seed) {
  for (std::size_t size = m.functions[0].body.size() / 2; size > 0;) {
    bool dropped = false;
    for (std::size_t at = 0; at < m.functions[0].body.size();) {
      const std::size_t last = std::min(at + size, m.functions[0].body.size());
      ptx::Module smaller = without(m, at, last);
      if (!compare(runner, smaller, passes, seed).empty()) {
        m = std::move(smaller);
        dropped = true;
      } else {
        at = last;
      }
    }
    if (!dropped || size > 1) size /= 2;
    if (dropped && size == 0) size = 1;
  }
  return m;
}

}  // namespace cgp::passes_test
