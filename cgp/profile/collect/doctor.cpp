// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/collect/doctor.h"
#include "cgp/profile/collect/program.h"
#include "cgp/profile/counters/perf_events.h"
#include "cgp/profile/cupti/cupti_plan.h"
#include "cgp/profile/measure/count.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/process.h"
#include "cgp/profile/measure/system.h"

namespace cgp::profile {
namespace {

using fmt::format;
using text::cat;

constexpr int kNoLevel = -100;
/// From 3 on only root may count; kNoLevel: the system has no such setting.
int perf_paranoid() {
  std::ifstream file("/proc/sys/kernel/perf_event_paranoid");
  int level = kNoLevel;
  return file >> level ? level : kNoLevel;
}

DoctorLine counters() {
  int hardware = 0, software = 0;
  std::string why;
  for (const auto& e : measure::probe_perf_events()) {
    if (e.why_absent.empty())
      ++(e.hardware ? hardware : software);
    else if (e.hardware && why.empty())
      why = e.why_absent;
  }
  const int paranoid = perf_paranoid();
  return {"counters", hardware > 0,
          format("{} hardware, {} software events{}{}", hardware, software,
                 paranoid == kNoLevel ? "" : format(", perf_event_paranoid {}", paranoid),
                 why.empty() ? "" : "; " + why),
          hardware ? "cycles and cache misses are counted"
                   : "instructions are counted by callgrind (up to AVX2) or single steps (all)",
          paranoid != kNoLevel && paranoid > 2 ? "sysctl kernel.perf_event_paranoid=2, as root"
                                               : "a machine whose processor counters are visible"};
}

DoctorLine stepper() {
  try {
    volatile double x = 1;
    const auto mix = measure::step_function([&] { x = x * 2; }, 10000);
    return {"stepper", mix.instructions > 0, "single steps work",
            "exact instruction and vector mix of any code, AVX-512 too", "allow ptrace"};
  } catch (const Error& e) {
    return {"stepper", false, e.why(), "no exact instruction mix", "containers: --cap-add=SYS_PTRACE"};
  }
}

DoctorLine valgrind() {
  const std::string path = find_program("valgrind");
  if (path.empty())
    return {"valgrind", false, "not found", "no instruction counts of whole programs",
            "apt install valgrind"};
  measure::ProcessOptions o;
  o.timeout_seconds = 30;
  const auto r = measure::run_process({path, "--version"}, o);
  return {"valgrind", r.ok(), cat(path, ", ", text::trim(r.out)),
          "--count callgrind works, for code without AVX-512", "it does not start"};
}

DoctorLine cupti() {
  bool there = false;
  const std::string found = measure::describe_cupti(there);
  return {"cupti", there, found,
          there ? "GPU counters can be planned here and collected where there is a GPU" : "no GPU counters",
          "a CUDA toolkit, pip install nvidia-cuda-cupti, or CGP_CUPTI"};
}

DoctorLine recorder() {
  const std::string path = inject_library();
  return {
      "recorder", !path.empty(), path.empty() ? "libcgp_inject.so is not beside cgp" : path,
      path.empty() ? "programs on a GPU cannot be recorded" : "cgp profile binary and python record kernels",
      "set CGP_INJECT_LIBRARY"};
}

/// The spread of identical short work just now: a hint, no calibration.
DoctorLine noise() {
  const auto before = measure::read_system();
  std::vector<double> v;
  for (int i = 0; i < 40; ++i) {
    const double start = measure::now();
    double x = 1;
    for (int n = 0; n < 60000; ++n) x = x * 1.0000001 + 1e-9;
    measure::keep(x);
    v.push_back(measure::now() - start);
  }
  const double spread = (measure::quantile(v, 0.9) - measure::quantile(v, 0.1)) / measure::median(v);
  const auto steal = measure::steal_share(before, measure::read_system());
  double load = 0;
  if (getloadavg(&load, 1) != 1) load = 0;
  const bool quiet = is_quiet(spread, load, int(std::thread::hardware_concurrency()));
  return {"noise", quiet,
          format("identical work differs by {:.0f} % now, load {:.1f} on {} processors{}", 100 * spread, load,
                 std::thread::hardware_concurrency(),
                 steal ? format(", {:.0f} % stolen by the hypervisor", 100 * *steal) : ""),
          quiet ? "the machine is quiet"
                : "compare in pairs (cgp diff --left --right); saved files show large changes only",
          "cgp baseline calibrate measures it properly"};
}

DoctorLine energy() {
  const auto c = measure::read_system();
  return {"rapl", c.package_joules.has_value(),
          c.package_joules ? "energy of the processor" : "no counter in /sys/class/powercap",
          c.package_joules ? "energy of programs is measured" : "no energy of the processor",
          "bare metal, and permission to read it"};
}

}  // namespace

bool is_quiet(double spread, double load, int processors) {
  return spread < 0.05 && load < 0.75 * std::max(1, processors);
}

std::vector<DoctorLine> measuring_lines() {
  return {counters(), stepper(), valgrind(), cupti(), recorder(), energy(), noise()};
}

}  // namespace cgp::profile
