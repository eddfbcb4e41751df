// SPDX-License-Identifier: Apache-2.0
// Sleeps for so many milliseconds and says so; with a file, says so many times as many as the file has lines.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

int main(int argc, char** argv) {
  const int ms = argc > 1 ? std::atoi(argv[1]) : 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  int lines = argc > 2 ? 0 : 1;
  std::string line;
  for (std::ifstream file(argc > 2 ? argv[2] : "/dev/null"); std::getline(file, line);) ++lines;
  std::printf("took %d ms\n", ms * lines);
}
