// SPDX-License-Identifier: Apache-2.0
// Claims on when kernels are compiled, loaded and given memory.
#include <fmt/core.h>

#include "cgp/emu/emu.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/variant.h"
#include "cgp/kernels/gemm/select/gemm_table.h"
#include "cgp/kernels/pack/cubin_pack.h"
#include "cgp/runtime/buffer.h"
#include "cgp/selfcheck/claim.h"

namespace cgp::selfcheck {
namespace {

using fmt::format;
using runtime::Device;

struct Setting {
  const char *name, *value;
};

std::unique_ptr<kernels::Case> prepared(const Device& device, const char* name,
                                        const std::vector<Setting>& settings) {
  const auto& kernel = kernels::find_kernel(name);
  kernels::Options options(kernel.name, kernel.options);
  for (const auto& s : settings) options.set(s.name, s.value);
  return kernel.prepare(device, options, {}, 1);
}

std::uint64_t loaded(const Device& device) {
  const auto n = device.load_counts();
  return n.jit_compilations + n.cache_hits + n.embedded_cubins;
}

/// One variant with three numbers of rows: what was loaded for the first, and for the others.
json other_dimensions() {
  const Device device = Device::open("cuda");
  json seen{{"variants", json::array()}, {"loads", json::array()}, {"right", true}};
  for (const char* rows : {"64", "5", "1000"}) {
    const std::uint64_t before = loaded(device);
    const auto problem = prepared(device, "rms_norm", {{"rows", rows}, {"cols", "512"}});
    problem->launch(device.stream());
    device.stream().wait();
    seen["right"] = seen["right"].get<bool>() && problem->verify().pass;
    seen["variants"].push_back(problem->variant);
    seen["loads"].push_back(loaded(device) - before);
  }
  return seen;
}

/// A gradient's kernel is loaded and run while another stream has 8000 launches to do.
json during_other_work() {
  const std::vector<Setting> shape{{"rows", "64"}, {"cols", "1024"}};
  // Another process leaves the machine code where this one finds it.
  run_self({"run", "rms_norm_backward", "rows=64", "cols=1024", "--device", "cuda", "--repeat", "1"});
  const Device device = Device::open("cuda");
  const auto work = prepared(device, "vecadd", {{"n", "8388608"}});
  const auto gradient = prepared(device, "rms_norm_backward", shape);
  runtime::Stream busy = device.make_stream(), other = device.make_stream();
  work->launch(busy);
  busy.wait();
  runtime::Event end(device);
  for (int i = 0; i < 8000; ++i) work->launch(busy);
  busy.record(end);
  const auto before = device.load_counts();
  const bool begun_meanwhile = !end.is_complete();
  gradient->launch(other);
  other.wait();
  const bool ended_meanwhile = !end.is_complete();  // not where loading waits for the device, as on an H200
  const auto after = device.load_counts();
  busy.wait();
  return {{"begun_meanwhile", begun_meanwhile},
          {"ended_meanwhile", ended_meanwhile},
          {"compiled", after.jit_compilations - before.jit_compilations},
          {"loads", after.cache_hits + after.embedded_cubins - before.cache_hits - before.embedded_cubins},
          {"right", gradient->verify().pass}};
}

/// Device memory around a launch of attention, beside what its scores would take.
json attention_memory() {
  const Device device = Device::open("emu:sm_80");
  emu::Options options = device.emulator_options();
  options.checks = emu::CheckSet::none();
  device.set_emulator_options(options);
  const std::uint64_t all = device.memory().free_bytes;
  const auto problem =
      prepared(device, "attention",
               {{"dtype", "f32"}, {"batch", "1"}, {"heads", "1"}, {"n", "512"}, {"d", "16"}, {"lse", "0"}});
  const std::uint64_t before = device.memory().free_bytes;
  problem->launch(device.stream());
  device.stream().wait();
  return {{"prepared", all - before},
          {"compulsory", problem->bytes},
          {"scores", 4.0 * 512 * 512},
          {"launched", before - device.memory().free_bytes}};
}

/// Of the machine code that this program carries: how much of what it can select has some.
json carried() {
  if (kernels::embedded_cubins().size() == 0)
    throw NotHere("this build carries no machine code (cmake -DCGP_EMBED_CUBINS=90a)");
  json seen = json::object();
  for (const auto arch : kernels::kTargets) {
    int there = 0, all = 0;
    json missing = json::array();
    const auto look = [&](const std::vector<runtime::KernelImage>& images) {
      for (const auto& image : images) {
        const bool found = kernels::embedded_cubins().find(*image.ptx, arch).has_value();
        ++all, there += found;
        if (!found && missing.size() < 3) missing.push_back(image.name);
      }
    };
    for (const auto& kernel : kernels::catalog())
      if (kernel.name != "gemm") look(kernel.images(arch));  // of gemm only what is ever selected
    look(kernels::images(kernels::gemm_selected_variants(arch), arch));
    if (there) seen[std::string(arch)] = {{"there", there}, {"all", all}, {"missing", missing}};
  }
  return seen;
}

}  // namespace

void add_loading_claims(std::vector<Claim>& out) {
  out.push_back({"FALS-DIK-002", "after a kernel was loaded once, other dimensions compile and load nothing",
                 "the loader's counts for 64, 5 and 1000 rows of rms_norm", true, false, other_dimensions,
                 [](const json& j) -> std::string {
                   if (!j.at("right").get<bool>()) return "a result is wrong";
                   if (j.at("variants").at(0) != j.at("variants").at(1) ||
                       j.at("variants").at(0) != j.at("variants").at(2))
                     return "these are several kernels: " + j.at("variants").dump();
                   if (j.at("loads").at(0) < 1) return "the loader counts nothing";
                   return j.at("loads").at(1) == 0 && j.at("loads").at(2) == 0
                              ? ""
                              : "loads: " + j.at("loads").dump();
                 },
                 [](json& j) { j.at("loads").at(2) = 1; }});
  out.push_back({"FALS-DIK-003",
                 "for each architecture that a release is built for, every kernel that can be chosen has "
                 "machine code",
                 "the catalogue's PTX against the pack that this program carries", false, true, carried,
                 [](const json& j) -> std::string {
                   for (const auto& [arch, n] : j.items())
                     if (n.at("there") != n.at("all"))
                       return format("{}: {} of {}, not {}", arch, n.at("there").dump(), n.at("all").dump(),
                                     n.at("missing").dump());
                   return j.empty() ? "none of them is for a kernel of today" : "";
                 },
                 [](json& j) { j.begin().value().at("there") = 0; }});
  out.push_back(
      {"FALS-DIK-005",
       "a gradient's kernels are loaded and launched while other work is under way, and nothing is compiled",
       "rms_norm_backward on one stream, begun while another has launches left; its result", true, false,
       during_other_work,
       [](const json& j) -> std::string {
         if (!j.at("right").get<bool>()) return "the gradient is wrong";
         if (j.at("loads") < 1) return "the loader counts " + j.at("loads").dump() + " kernels";
         if (j.at("compiled") != 0) return "it was compiled";
         return j.at("begun_meanwhile").get<bool>() ? "" : "the other work was done";
       },
       [](json& j) { j.at("compiled") = 1; }});
  out.push_back(
      {"FALS-FLASH-ATTN-003", "fused attention allocates nothing, least of all its scores",
       "device memory before and after a launch, 512 queries and keys: operands only", false, false,
       attention_memory,
       [](const json& j) -> std::string {
         if (j.at("launched") != 0) return "the launch took " + j.at("launched").dump() + " bytes";
         return j.at("prepared").get<double>() <
                        j.at("compulsory").get<double>() + 0.1 * j.at("scores").get<double>()
                    ? ""
                    : "operands of " + j.at("compulsory").dump() + " bytes took " + j.at("prepared").dump();
       },
       [](json& j) { j.at("prepared") = j.at("compulsory").get<double>() + j.at("scores").get<double>(); }});
}

}  // namespace cgp::selfcheck
