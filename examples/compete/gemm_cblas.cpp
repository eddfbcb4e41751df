// SPDX-License-Identifier: Apache-2.0
// The median time of an N x N x N product in single precision, by any library with the C interface of BLAS.
//   g++ -O2 gemm_cblas.cpp -o gemm_openblas -lopenblas       g++ -O2 gemm_cblas.cpp -o gemm_blis -lblis
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

extern "C" void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                            const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 512;
  const std::size_t size = std::size_t(n) * std::size_t(n);
  std::vector<float> a(size), b(size), c(size);
  for (std::size_t i = 0; i < size; ++i) a[i] = float(i % 13) * 0.1f, b[i] = float(i % 17) * 0.1f;
  std::vector<double> ms;
  for (int run = 0; run < 7; ++run) {
    const auto start = std::chrono::steady_clock::now();
    cblas_sgemm(101, 111, 111, n, n, n, 1.0f, a.data(), n, b.data(), n, 0.0f, c.data(), n);
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(ms.begin(), ms.end());
  std::printf("time: %.4f ms\n", ms[ms.size() / 2]);
}
