// SPDX-License-Identifier: Apache-2.0
// Two functions of known shares, 3 to 1, on one thread or two, and one that waits: what the sampler of the tests looks at.
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace planted {

__attribute__((noinline)) unsigned turn(unsigned x, long n) {
  for (long i = 0; i < n; ++i) x = x * 1664525u + 1013904223u;
  return x;
}
__attribute__((noinline)) unsigned hot_loop(unsigned x, long n) {
  for (long i = 0; i < 3 * n; ++i) x = x * 1664525u + 1013904223u;  // hot
  return x;
}
__attribute__((noinline)) unsigned work(long n) {
  unsigned x = 1;
  for (int i = 0; i < 100; ++i) x = turn(hot_loop(x, n), n);
  return x;
}

__attribute__((noinline)) void wait() {
  for (int i = 0; i < 20; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

}  // namespace planted

int main(int count, char** words) {
  const long n = count > 1 ? std::atol(words[1]) : 3000000;
  unsigned other = 0;
  std::thread second;
  if (count > 2 && words[2] == std::string_view("sleep"))
    planted::wait();
  else if (count > 2)
    second = std::thread([&] { other = planted::work(n); });
  const unsigned x = planted::work(n);
  if (second.joinable()) second.join();
  return x + other == 1;
}
