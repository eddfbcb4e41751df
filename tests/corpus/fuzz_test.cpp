// SPDX-License-Identifier: Apache-2.0
// Mutated PTX of the corpus through `cgp run` and `cgp explain`: each mutant is run with the buffers of its case,
// or refused, in less than 10 s and 2 GB. The environment chooses more: CGP_FUZZ_ROUNDS, CGP_FUZZ_SEED, and
// CGP_FUZZ_FOLDER with other people's .ptx files, whose parameters are then buffers of zeros and small numbers.
// The mutant at work is kept as fuzz.ptx in the test's folder.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <tuple>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/explain/module_view.h"
#include "cgp/spec/spec_run.h"

namespace cgp::spec {
namespace {

bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '$'; }

/// The word, number or single character of `s` around `at`.
std::pair<std::size_t, std::size_t> token(const std::string& s, std::size_t at) {
  std::size_t begin = at, end = at + 1;
  if (!word(s[at])) return {begin, end};
  while (begin > 0 && word(s[begin - 1])) --begin;
  while (end < s.size() && word(s[end])) ++end;
  return {begin, end};
}

/// Registers, numbers, words, and each other character.
char kind(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) ? '0' : word(c) && c != '%' ? 'a' : c;
}

/// Tokens of one kind; registers of one name before their number.
bool alike(const std::string& s, std::size_t x, std::size_t y) {
  return kind(s[x]) == kind(s[y]) && (s[x] != '%' || s.compare(x, 3, s, y, 3) == 0);
}

/// One or two changes of a token or a byte.
std::string mutated(std::string s, std::mt19937& random) {
  static const std::string_view numbers[] = {"0",  "-1", "1",          "4294967295", "0xffffffffffffffff",
                                             "16", "31", "2147483648", "1000000",    "0f7FC00000"};
  for (int n = 1 + int(random() % 2); n-- > 0 && !s.empty();) {
    const auto [begin, end] = token(s, random() % s.size());
    switch (random() % 12) {
      case 0:
        s.erase(begin, end - begin);
        break;
      case 1:
        s.insert(end, s.substr(begin, end - begin));
        break;
      default: {  // another token of the text, of its kind if one is met: most of these are still PTX
        auto [from, to] = token(s, random() % s.size());
        for (int tries = 0; tries < 200 && !alike(s, from, begin); ++tries)
          std::tie(from, to) = token(s, random() % s.size());
        s.replace(begin, end - begin, s.substr(from, to - from));
        break;
      }
      case 2:
        s.replace(begin, end - begin, numbers[random() % std::size(numbers)]);
        break;
      case 3:
        s[begin] = char(random() % 256);
        break;
      case 4: {  // a line goes elsewhere
        const std::size_t line = std::min(s.find('\n', begin), s.size() - 1) + 1;
        const std::size_t next = std::min(s.find('\n', line), s.size() - 1) + 1;
        const std::string text = s.substr(line, next - line);
        s.erase(line, next - line);
        const std::size_t to = s.empty() ? 0 : std::min(s.find('\n', random() % s.size()), s.size() - 1) + 1;
        s.insert(to, text);
      }
    }
  }
  return s;
}

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

/// The PTX of a folder: with launch specs beside them, without where `foreign`.
std::vector<std::string> files(const std::string& folder, std::string_view ending) {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ending) all.push_back(entry.path().string());
  std::sort(all.begin(), all.end());
  return all;
}

/// The first entry of a file, once, with something for each parameter.
void launch_somehow(const std::string& text) {
  const auto program = emu::Program::load(text);
  for (const emu::EntryInfo& entry : program->entries()) {
    if (!entry.unsupported.empty()) continue;
    emu::Machine machine(program->target());
    const auto instance = machine.load(program);
    std::vector<std::byte> params(entry.param_bytes);
    for (const emu::ParamInfo& p : entry.params) {
      const std::vector<std::byte> zeros(1 << 16);
      std::uint64_t value = 64;
      if (p.size == 8) machine.write(value = machine.alloc(zeros.size(), p.name), zeros);
      std::memcpy(params.data() + p.offset, &value, std::min<std::size_t>(p.size, 8));
    }
    emu::Launch launch;
    launch.entry = entry.name;
    launch.grid = {2, 1, 1};
    const auto shape = entry.reqntid ? entry.reqntid : entry.maxntid;
    launch.block = shape ? emu::Dim3{(*shape)[0], (*shape)[1], (*shape)[2]} : emu::Dim3{128, 1, 1};
    if (entry.cluster) launch.cluster = {(*entry.cluster)[0], (*entry.cluster)[1], (*entry.cluster)[2]};
    launch.grid.x *= launch.cluster.x;
    launch.dynamic_smem = 16384;
    launch.params = params;
    emu::Options options;
    options.workers = 1;
    options.step_limit = 20'000;
    (void)machine.launch(instance, launch, options);
    return;
  }
}

void run(Spec spec, std::string text) {
  spec.ptx = std::move(text);
  RunOptions options;
  options.write_outputs = false;
  options.tune = [](emu::Options& o) {
    o.workers = 1;
    o.step_limit = 20'000;
  };
  (void)run_spec(spec, options);
}

void explain(const std::string& text) {
  const auto facts = explain::examine_module("fuzz.ptx", text, {});
  (void)explain::module_text(facts, {});
}

/// Refusals are answers; whatever else is thrown is not.
template <class F>
bool answered(int& ran, F&& f) {
  try {
    f();
    ++ran;
  } catch (const Error&) {
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
    return false;
  }
  return true;
}

TEST(Fuzz, mutants_run_or_are_refused) {
  const char* folder = std::getenv("CGP_FUZZ_FOLDER");
  const auto all = files(folder ? folder : CGP_CORPUS_DATA, folder ? ".ptx" : ".json");
  ASSERT_FALSE(all.empty());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit memory{2ull << 30, 2ull << 30};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &memory), 0);
#endif
  const std::string kept = testing::TempDir() + "fuzz.ptx";
  const auto seed = unsigned(number("CGP_FUZZ_SEED", 1));
  const int rounds = number("CGP_FUZZ_ROUNDS", CGP_FUZZ_DEFAULT);
  std::mt19937 random(seed);
  int ran = 0, explained = 0;
  for (int round = 0; round < rounds; ++round) {
    const std::string& file = all[random() % all.size()];
    Spec spec;
    if (!folder) spec = load_spec(file);
    const std::string text = mutated(read_file(folder ? file : spec.ptx_path), random);
    write_file(kept, text);
    SCOPED_TRACE(text::cat("seed ", seed, ", round ", round, ", ", file, "; the mutant is ", kept));
    const std::clock_t start = std::clock();  // others may use the machine
    alarm(60 * CGP_FUZZ_PATIENCE);            // ends the program where it hangs
    bool good = answered(ran, [&] { folder ? launch_somehow(text) : run(spec, text); });
    good = answered(explained, [&] { explain(text); }) && good;
    alarm(0);
    const double took = double(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(took, 10.0 * CGP_FUZZ_PATIENCE) << "seconds";
    if (HasFailure()) {
      std::filesystem::copy_file(kept, text::cat(kept, ".", seed, ".", round),
                                 std::filesystem::copy_options::overwrite_existing);
      if (!folder) return;
    }
  }
  EXPECT_GT(ran, rounds / 8);
  EXPECT_GT(explained, rounds / 8);
  RecordProperty("ran", ran);
}

}  // namespace
}  // namespace cgp::spec
