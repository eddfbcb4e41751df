// SPDX-License-Identifier: Apache-2.0
// Allocations of known callers, sizes and lifetimes: what heap_test.cpp looks for.
#include <unistd.h>

#include <cstdlib>

__attribute__((noinline)) void* lose(std::size_t n) {
  void* volatile p = std::malloc(n);
  return p;
}
__attribute__((noinline)) void churn() {
  for (int i = 0; i < 1000; ++i) {
    char* volatile p = static_cast<char*>(std::malloc(4096));
    std::free(p);
  }
}
__attribute__((noinline)) void keep() {
  char* volatile p = static_cast<char*>(std::calloc(1000, 500));
  usleep(20000);
  std::free(p);
}

int main() {
  void* volatile last = nullptr;
  for (int i = 0; i < 10; ++i) last = lose(100);
  churn();
  keep();
  return last == nullptr;
}
