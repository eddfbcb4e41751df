// SPDX-License-Identifier: Apache-2.0
// The same by Eigen:  g++ -O3 -march=native -I/usr/include/eigen3 gemm_eigen.cpp -o gemm_eigen
#include <Eigen/Dense>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 512;
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  Matrix a(n, n), b(n, n), c(n, n);
  for (Eigen::Index i = 0; i < a.size(); ++i) {
    a.data()[i] = float(i % 13) * 0.1f;
    b.data()[i] = float(i % 17) * 0.1f;
  }
  std::vector<double> ms;
  for (int run = 0; run < 7; ++run) {
    const auto start = std::chrono::steady_clock::now();
    c.noalias() = a * b;
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(ms.begin(), ms.end());
  std::printf("time: %.4f ms\n", ms[ms.size() / 2]);
}
