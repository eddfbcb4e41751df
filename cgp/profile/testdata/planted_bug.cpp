// SPDX-License-Identifier: Apache-2.0
// Two mistakes that memory_check_test.cpp looks for: a write behind an array, three times, and a leak.
#include <cstdlib>

int main() {
  volatile int* array = static_cast<int*>(std::malloc(10 * sizeof(int)));
  for (int i = 0; i < 3; ++i) array[10] = i;
  std::free(const_cast<int*>(array));
  volatile char* lost = static_cast<char*>(std::malloc(77));
  lost[0] = 1;
  lost = nullptr;
  return lost != nullptr;
}
