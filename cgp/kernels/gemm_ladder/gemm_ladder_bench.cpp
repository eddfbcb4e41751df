// SPDX-License-Identifier: Apache-2.0
// What each step of a matrix product is worth on a GPU, beside cuBLAS in the same rounds: the ladder on
// mma.sync, and the build-time choices of Hopper's kernels one after the other. f16, layout nt.
//   cgp_gemm_ladder [--json FILE] [--rounds N] [SIZE...]
#include <cstdio>
#include <cstring>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/bench/table_bench.h"
#include "cgp/kernels/gemm/api/gemm.h"
#include "cgp/kernels/gemm_ladder/gemm_ladder.h"
#include "cgp/profile/measure/compare.h"
#include "cgp/profile/peers/peer_cublas.h"

namespace {

using namespace cgp;
using namespace cgp::kernels;
using runtime::Buffer;
using runtime::Stream;

Buffer<half> random_matrix(const runtime::Device& d, std::uint64_t n, std::uint64_t seed) {
  const auto host = random_array(DType::f16, {n}, seed);
  Buffer<half> b(d, n);
  b.upload(typed<half>(host));
  return b;
}

struct Hopper {
  const char* name;
  GemmFamily kind;
  int bn;
  GemmPersistentTuning tune;
};
constexpr Hopper kHopper[] = {
    {"sm90/tile_a_block_128x128", GemmFamily::sm90, 128, {}},
    {"sm90/tile_a_block_128x256", GemmFamily::sm90, 256, {}},
    {"sm90/persistent_2_stages", GemmFamily::sm90_persistent, 256, {2, 1, 1, 1}},
    {"sm90/persistent_4_stages", GemmFamily::sm90_persistent, 256, {4, 1, 1, 1}},
    {"sm90/two_store_buffers", GemmFamily::sm90_persistent, 256, {4, 1, 2, 1}},
    {"sm90/groups_of_8_rows", GemmFamily::sm90_persistent, 256, {4, 1, 2, 8}},
    {"sm90/clusters_of_2", GemmFamily::sm90_persistent, 256, {4, 2, 2, 8}},
};

BenchRow measure_step(const runtime::Device& d, measure::Cublas* cublas, std::uint64_t n, int rounds) {
  const auto a = random_matrix(d, n * n, 1), b = random_matrix(d, n * n, 2);
  Buffer<half> ours(d, n * n), theirs(d, n * n);
  const GemmProblem p = GemmProblem{.type = DType::f16, .trans_b = true, .m = n, .n = n, .k = n}.dense();
  const GemmAddresses at{a.address(), b.address(), ours.address()};
  std::vector<measure::Contender> all;
  for (const auto& s : gemm_ladder())
    all.push_back({std::string(s.name), [&, &s = s](Stream& q) {
                     run_gemm_ladder(q, s, {n, n, n}, at.a, at.b, at.c);
                   }});
  if (d.info().arch == "sm_90a")
    for (const auto& h : kHopper) {
      GemmChoice c{h.kind,
                   h.kind == GemmFamily::sm90 ? gemm_sm90(p.type, false, true, h.bn)
                                              : gemm_persistent_sm90(p.type, false, true, h.bn, h.tune),
                   {},
                   std::uint32_t(h.bn),
                   h.kind == GemmFamily::sm90 ? 1 : h.tune.cluster,
                   h.kind == GemmFamily::sm90 ? 128u : std::uint32_t(128 * h.tune.cluster)};
      all.push_back({h.name, [&, c](Stream& q) { run_gemm(q, c, p, at); }});
    }
  const auto chosen = select_gemm(p, at, d.info());
  all.push_back({"gemm", [&, chosen](Stream& q) { run_gemm(q, chosen, p, at); }});
  const auto size = std::int64_t(n);
  const measure::CublasGemm peer{p.type, false, true, size, size, size, size, size, size, 1, 0};
  if (cublas)
    all.push_back(
        {"cublas", [&](Stream& q) { cublas->gemm(q.native_handle(), peer, at.a, at.b, theirs.address()); }});
  measure::CompareOptions o;
  o.rounds = rounds;
  return {text::cat("gemm_ladder/f16/nt/", n), "", p.flops(), 0, measure::compare(d, all, o)};
}

void print(const BenchRow& r) {
  std::printf("%s\n", r.name.c_str());
  double before = 0;
  for (const auto& t : r.timings) {
    const double ms = t.summary.median;
    std::printf("  %-28s %9.4f ms ±%4.1f%% %8.1f TFLOP/s", t.name.c_str(), ms, 100 * t.summary.spread(),
                r.flops / ms / 1e9);
    if (before > 0) std::printf("  %5.2f of the step before", before / ms);
    std::printf("\n");
    before = ms;
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint64_t> sizes;
  std::string json;
  int rounds = 15;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--json") && i + 1 < argc)
      json = argv[++i];
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else
      sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  }
  if (sizes.empty()) sizes = {512, 1024, 2048, 4096};
  return guarded([&] {
    const auto d = runtime::Device::open("cuda:0");
    (void)d.stream().native_handle();  // cuBLAS takes the current context
    std::unique_ptr<measure::Cublas> cublas;
    try {
      cublas = std::make_unique<measure::Cublas>();
    } catch (const Unsupported& e) {
      std::printf("%s\n", e.what());
    }
    std::vector<BenchRow> rows;
    for (auto n : sizes) {
      rows.push_back(measure_step(d, cublas.get(), n, rounds));
      print(rows.back());
    }
    if (!json.empty()) write_results(json, d.info(), {"cgp_gemm_ladder"}, rows);
  });
}
