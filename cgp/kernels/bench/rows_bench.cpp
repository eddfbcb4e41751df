// SPDX-License-Identifier: Apache-2.0
// Kernels on rows and elements on a GPU, against the device's own copy of as many bytes, in one run. Prefixes
// that start with "sweep" try tunings beside the selected one.
//   cgp_rows_bench [--json FILE] [--rounds N] [PREFIX...]     e.g. cgp_rows_bench rms_norm sweep/rms_norm
#include <cstdio>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/rows_list_bench.h"
#include "cgp/kernels/bench/table_bench.h"

int main(int argc, char** argv) {
  using namespace cgp;
  using namespace cgp::kernels;
  std::vector<std::string> prefixes;
  std::string json;
  int rounds = 25;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc)
      json = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (argv[i][0] == '-') {
      std::printf("usage: %s [--json FILE] [--rounds N] [PREFIX...]\n", argv[0]);
      return 2;
    } else
      prefixes.push_back(argv[i]);
  }
  try {
    BenchTable b(runtime::Device::open("cuda:0"), prefixes, rounds);
    std::printf("%s\n", b.device().info().name.c_str());
    bench_norms(b);
    bench_losses(b);
    bench_activations(b);
    bench_more_rows(b);
    if (!json.empty()) {
      std::vector<std::string> words{"cgp_rows_bench"};
      words.insert(words.end(), argv + 1, argv + argc);
      b.write_json(json, words);
    }
  } catch (const Unsupported& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 3;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
