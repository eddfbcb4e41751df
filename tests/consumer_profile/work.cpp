// SPDX-License-Identifier: Apache-2.0
// Sleeps for so many milliseconds.
#include <chrono>
#include <cstdlib>
#include <thread>

int main(int argc, char** argv) {
  std::this_thread::sleep_for(std::chrono::milliseconds(argc > 1 ? std::atoi(argv[1]) : 1));
}
