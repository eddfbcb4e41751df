// SPDX-License-Identifier: Apache-2.0
// Rung 10: attention with scores of your own.
//   Biases by distance, masks by document, caps: variants of attention differ in what happens to a score
//   between the two products. As a mask in memory that is another matrix of n x n to read; as a lambda it is
//   a few instructions on registers. The library's attention takes such a lambda over values of the DSL, with
//   where the score belongs (sequence, head, query, key) and an address for data of your own.
#include <cmath>

#include "cgp/kernels/attention/attention.h"
#include "examples/example.h"

namespace {

using namespace cgp::kernels;
namespace dsl = cgp::dsl;

constexpr std::size_t kRows = 75, kHeads = 2, kWidth = 32;

/// Documents lie one after the other in a row of tokens: a token looks at its own document only, and less at
/// what is further away.
ScoreModification own_document() {
  ScoreModification m;
  m.name = "own_document";
  m.apply = [](const AttentionScore& s) {
    // Tiles reach past the last row; scores there are dropped, but a load must stay inside the buffer.
    const auto document = [&](const dsl::Val<dsl::u32>& token) {
      return dsl::In<dsl::u32>(s.data, 0, true).at(dsl::min(token, std::uint32_t(kRows - 1))).ld();
    };
    const auto distance = dsl::to<dsl::f32>(dsl::max(s.query, s.key) - dsl::min(s.query, s.key));
    const auto near = s.score - distance * 0.125f;
    return dsl::select(document(s.query) == document(s.key), near, dsl::Val<dsl::f32>(-INFINITY));
  };
  return m;
}

/// out[h, i, :] = sum over j of softmax(score)[i, j] * v[j, :], by plain loops.
std::vector<double> expected(const std::vector<cgp::half>& q, const std::vector<cgp::half>& k,
                             const std::vector<cgp::half>& v, const std::vector<std::uint32_t>& document) {
  std::vector<double> out(kRows * kHeads * kWidth);
  const auto at = [](std::size_t h, std::size_t i, std::size_t d) { return (h * kRows + i) * kWidth + d; };
  for (std::size_t h = 0; h < kHeads; ++h)
    for (std::size_t i = 0; i < kRows; ++i) {
      double total = 0;
      for (std::size_t j = 0; j < kRows; ++j) {
        if (document[i] != document[j]) continue;
        double score = 0;
        for (std::size_t d = 0; d < kWidth; ++d)
          score += double(float(q[at(h, i, d)])) * float(k[at(h, j, d)]);
        const double weight =
            std::exp(score / std::sqrt(double(kWidth)) - 0.125 * double(i > j ? i - j : j - i));
        total += weight;
        for (std::size_t d = 0; d < kWidth; ++d) out[at(h, i, d)] += weight * float(v[at(h, j, d)]);
      }
      for (std::size_t d = 0; d < kWidth; ++d) out[at(h, i, d)] /= total;
    }
  return out;
}

bool run(const cgp::runtime::Device& device) {
  example::needs(device, 80);
  const auto values = [](std::uint64_t seed) {
    auto v = example::small_integers<cgp::half>(kRows * kHeads * kWidth, seed);
    for (auto& x : v) x = cgp::half(float(x) * 0.25f);
    return v;
  };
  const auto host_q = values(1), host_k = values(2), host_v = values(3);
  std::vector<std::uint32_t> host_document(kRows);
  for (std::size_t i = 0; i < kRows; ++i) host_document[i] = i < 20 ? 0 : i < 61 ? 1 : 2;
  const auto q = device.upload<cgp::half>(host_q), k = device.upload<cgp::half>(host_k),
             v = device.upload<cgp::half>(host_v);
  const auto document = device.upload<std::uint32_t>(host_document);
  const auto out = device.zeros<cgp::half>(kRows * kHeads * kWidth);

  AttentionProblem p;
  p.type = cgp::DType::f16;
  p.heads_q = kHeads;
  p.n_q = p.n_kv = kRows;
  p.d_qk = kWidth;
  p.modify = own_document();
  AttentionAddresses at;
  at.q = q.address();
  at.k = k.address();
  at.v = v.address();
  at.o = out.address();
  at.data = document.address();
  attention(device.stream(), p, at);
  example::show(device, "attention, own scores");

  const auto got = out.to_vector();
  const auto want = expected(host_q, host_k, host_v, host_document);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(float(got[i]) - want[i]) <= 2e-3)) {
      std::printf("out[%zu] is %g, should be %g\n", i, double(float(got[i])), want[i]);
      return false;
    }
  return true;
}

}  // namespace

int main(int argc, char** argv) { return example::main_on_device(argc, argv, run, "emu:sm_90a"); }
