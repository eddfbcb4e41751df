// SPDX-License-Identifier: Apache-2.0
// Build step: assembles the shipped variants with ptxas and writes the pack that programs embed.
//   cgp_pack_cubins OUTPUT --ptxas PTXAS --arch sm_90a... [--cache FOLDER] [--only PREFIX...]
//   cgp_pack_cubins --list --arch sm_90a... [--only PREFIX...]
// What was assembled once is taken from the cache folder (OUTPUT.cache): an incremental build assembles only what
// changed.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/kernels/pack/cubin_pack.h"
#include "cgp/runtime/jit_cache.h"

namespace {

using namespace cgp;

struct Arguments {
  std::string output, ptxas, cache;
  std::vector<std::string> archs, only;
  bool list = false;
};

struct Job {
  std::string name, arch;
  std::shared_ptr<const std::string> ptx;
};

std::vector<Job> jobs(const Arguments& a) {
  std::vector<Job> out;
  for (const auto& arch : a.archs) {
    std::set<std::string> names;
    const auto add = [&](const runtime::KernelImage& i) {
      bool wanted = a.only.empty();
      for (const auto& prefix : a.only) wanted |= i.name.rfind(prefix, 0) == 0;
      if (wanted && names.insert(i.name).second) out.push_back({i.name, arch, i.ptx});
    };
    for (const auto& kernel : kernels::catalog())
      if (kernel.name != "gemm")  // its catalogue holds ladders and tilings that are never selected
        for (const auto& i : kernel.images(arch)) add(i);
    for (const auto& i : kernels::images(kernels::gemm_selected_variants(arch), arch)) add(i);
  }
  return out;
}

std::string quoted(const std::string& s) { return "'" + s + "'"; }

std::string assemble(const Job& j, const Arguments& a, int worker) {
  const auto base = text::cat(a.cache, "/worker", worker);
  write_file(base + ".ptx", *j.ptx);
  const auto command = text::cat(quoted(a.ptxas), " -arch=", j.arch, " ", quoted(base + ".ptx"), " -o ",
                                 quoted(base + ".cubin"), " > ", quoted(base + ".log"), " 2>&1");
  if (std::system(command.c_str()) != 0)
    throw Error({text::cat("ptxas refuses ", j.name, " for ", j.arch), {}, read_file(base + ".log"), {}});
  return read_file(base + ".cubin");
}

constexpr const char* kUsage =
    "cgp_pack_cubins OUTPUT --ptxas PTXAS --arch sm_90a... [--cache FOLDER] [--only PREFIX...]";

Arguments parse(int argc, char** argv) {
  Arguments a;
  std::vector<std::string>* list = nullptr;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ptxas" || word == "--cache") {
      if (i + 1 == argc)
        throw ArgumentError({text::cat(word, " takes a path"), {}, "it is the last word", kUsage});
      (word == "--ptxas" ? a.ptxas : a.cache) = argv[++i];
      list = nullptr;
    } else if (word == "--arch") {
      list = &a.archs;
    } else if (word == "--only") {
      list = &a.only;
    } else if (word == "--list") {
      a.list = true;
    } else if (word.rfind("--", 0) == 0) {
      throw ArgumentError({text::cat("there is no option ", word), {}, {}, kUsage});
    } else if (list) {
      list->push_back(word);
    } else {
      a.output = word;
    }
  }
  if (a.archs.empty()) throw ArgumentError({"--arch names the architectures", {}, "none is given", kUsage});
  if (a.list) return a;
  if (a.output.empty())
    throw ArgumentError({"the pack needs a file to be written to", {}, "none is given", kUsage});
  if (a.ptxas.empty()) throw ArgumentError({"--ptxas names the assembler", {}, "it is missing", kUsage});
  if (a.cache.empty()) a.cache = a.output + ".cache";
  return a;
}

int run(const Arguments& a) {
  const auto all = jobs(a);
  if (a.list) {
    for (const auto& j : all) std::printf("%s %s\n", j.arch.c_str(), j.name.c_str());
    return 0;
  }
  std::filesystem::create_directories(a.cache);
  const runtime::JitCache cache(a.cache);
  kernels::CubinPackWriter pack;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  std::size_t assembled = 0;
  std::string failure;
  const auto work = [&](int worker) {
    for (std::size_t i = next++; i < all.size(); i = next++) try {
        const Job& j = all[i];
        auto cubin = cache.find({*j.ptx, j.arch, 0});
        const bool fresh = !cubin;
        if (fresh) {
          cubin = assemble(j, a, worker);
          cache.store({*j.ptx, j.arch, 0}, *cubin);
        }
        const std::lock_guard lock(mutex);
        pack.add(*j.ptx, j.arch, std::move(*cubin));
        assembled += fresh;
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        failure = e.what();
        next = all.size();
      }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    workers.emplace_back(work, int(i));
  for (auto& w : workers) w.join();
  if (!failure.empty()) throw Error(failure);
  const auto bytes = pack.bytes();
  write_file(a.output, bytes);
  std::printf("%zu cubins, %zu of them assembled now, %s\n", pack.size(), assembled,
              text::bytes(bytes.size()).c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "cgp_pack_cubins: %s\n", e.what());
    return 1;
  }
}
