// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/counters/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/measure/stats.h"

namespace cgp::measure {

// Functions and values as NVML's public documentation gives them.
struct Nvml::Impl {
  using Handle = void*;
  static constexpr unsigned kSmClock = 1, kMemoryClock = 2, kGpuTemperature = 0;
  void* library = nullptr;
  Handle device = nullptr;
  bool initialised = false;

  ~Impl() {
    if (auto shut_down = find<int()>("nvmlShutdown"); initialised && shut_down) shut_down();
    if (library) dlclose(library);
  }
  template <class F>
  F* find(const char* symbol) const {
    return library ? reinterpret_cast<F*>(dlsym(library, symbol)) : nullptr;
  }
  std::optional<double> number(const char* symbol) const {
    unsigned v = 0;
    auto f = find<int(Handle, unsigned*)>(symbol);
    return f && f(device, &v) == 0 ? std::optional<double>(v) : std::nullopt;
  }
  std::optional<double> number(const char* symbol, unsigned which) const {
    unsigned v = 0;
    auto f = find<int(Handle, unsigned, unsigned*)>(symbol);
    return f && f(device, which, &v) == 0 ? std::optional<double>(v) : std::nullopt;
  }
  std::optional<std::uint64_t> word(const char* symbol) const {
    unsigned long long v = 0;
    auto f = find<int(Handle, unsigned long long*)>(symbol);
    return f && f(device, &v) == 0 ? std::optional<std::uint64_t>(v) : std::nullopt;
  }
};

Nvml::Nvml(const runtime::DeviceInfo& d) : impl_(std::make_unique<Impl>()) {
  const auto missing = [](std::string why, std::string hint = {}) {
    return Unsupported(
        {"clocks and power come from NVIDIA's management library", {}, std::move(why), std::move(hint)});
  };
  if (!d.pci_bus_id) throw missing(text::cat(d.name, " is not on a bus"));
  std::vector<std::string> names{"libnvidia-ml.so.1", "libnvidia-ml.so"};
  if (const char* path = std::getenv("CGP_NVML_LIB")) names = {path};
  for (const auto& n : names)
    if ((impl_->library = dlopen(n.c_str(), RTLD_NOW | RTLD_LOCAL))) break;
  if (!impl_->library) throw missing(dlerror(), "set CGP_NVML_LIB to libnvidia-ml.so.1");
  auto init = impl_->find<int()>("nvmlInit_v2");
  auto by_bus = impl_->find<int(const char*, Impl::Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
  if (!init || !by_bus) throw missing("the library lacks nvmlInit_v2 or nvmlDeviceGetHandleByPciBusId_v2");
  if (int status = init()) throw missing(text::cat("nvmlInit_v2 gave status ", status));
  impl_->initialised = true;
  if (int status = by_bus(d.pci_bus_id->c_str(), &impl_->device))
    throw missing(text::cat("there is no device at ", *d.pci_bus_id, ": status ", status));
}
Nvml::~Nvml() = default;

double pcie_gbps(double generation, double lanes) {
  constexpr double each[] = {
      0, 0.25, 0.5, 8.0 / 8 * 128 / 130, 16.0 / 8 * 128 / 130, 32.0 / 8 * 128 / 130, 64.0 / 8 * 242 / 256};
  return generation >= 1 && generation < double(std::size(each)) ? each[int(generation)] * lanes : 0;
}

GpuState Nvml::read(bool traffic) const {
  GpuState s;
  const auto scaled = [](std::optional<double> v, double by) { return v ? std::optional(*v * by) : v; };
  s.sm_mhz = impl_->number("nvmlDeviceGetClockInfo", Impl::kSmClock);
  s.memory_mhz = impl_->number("nvmlDeviceGetClockInfo", Impl::kMemoryClock);
  s.watts = scaled(impl_->number("nvmlDeviceGetPowerUsage"), 1e-3);
  s.limit_watts = scaled(impl_->number("nvmlDeviceGetEnforcedPowerLimit"), 1e-3);
  s.celsius = impl_->number("nvmlDeviceGetTemperature", Impl::kGpuTemperature);
  if (auto mj = impl_->word("nvmlDeviceGetTotalEnergyConsumption")) s.joules = double(*mj) * 1e-3;
  s.slowed = impl_->word("nvmlDeviceGetCurrentClocksEventReasons");
  if (!s.slowed) s.slowed = impl_->word("nvmlDeviceGetCurrentClocksThrottleReasons");
  s.pcie_gen = impl_->number("nvmlDeviceGetCurrPcieLinkGeneration");
  s.pcie_width = impl_->number("nvmlDeviceGetCurrPcieLinkWidth");
  if (traffic) {  // KB/s; NVML's "tx" leaves the device
    s.pcie_out = scaled(impl_->number("nvmlDeviceGetPcieThroughput", 0), 1e3);
    s.pcie_in = scaled(impl_->number("nvmlDeviceGetPcieThroughput", 1), 1e3);
  }
  return s;
}

std::string slowed_text(std::uint64_t bits) {
  constexpr std::pair<std::uint64_t, const char*> reasons[] = {{0x2, "clocks set by an application"},
                                                               {0x4, "power cap"},
                                                               {0x8, "hardware slowdown"},
                                                               {0x10, "sync boost"},
                                                               {0x20, "thermal"},
                                                               {0x40, "hardware thermal"},
                                                               {0x80, "hardware power brake"},
                                                               {0x100, "display clocks"}};
  std::vector<std::string> words;
  for (const auto& [bit, word] : reasons)
    if (bits & bit) words.emplace_back(word);
  return text::join(words, ", ");
}

// ---------------------------------------------------------------- samples
struct GpuSampler::Impl {
  explicit Impl(const runtime::DeviceInfo& d) : nvml(d) {}
  Nvml nvml;
  std::mutex mutex;
  std::condition_variable wake;
  bool done = false;
  std::vector<GpuState> samples;
  std::thread thread;
};

GpuSampler::GpuSampler(const runtime::DeviceInfo& device, int milliseconds) {
  try {
    impl_ = std::make_unique<Impl>(device);
  } catch (const Unsupported& e) {
    absent_ = e.why();
    return;
  }
  impl_->thread = std::thread([p = impl_.get(), milliseconds] {
    std::unique_lock lock(p->mutex);
    while (!p->done) {
      lock.unlock();
      const auto state = p->nvml.read(true);
      lock.lock();
      p->samples.push_back(state);
      p->wake.wait_for(lock, std::chrono::milliseconds(milliseconds), [p] { return p->done; });
    }
  });
}

GpuSampler::~GpuSampler() {
  if (!impl_) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->done = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

GpuState GpuSampler::take() {
  if (!impl_) return {};
  std::vector<GpuState> samples;
  {
    const std::lock_guard lock(impl_->mutex);
    samples.swap(impl_->samples);
  }
  if (samples.empty()) samples.push_back(impl_->nvml.read());
  const auto median_of = [&](std::optional<double> GpuState::*field) -> std::optional<double> {
    std::vector<double> values;
    for (const auto& s : samples)
      if (s.*field) values.push_back(*(s.*field));
    return values.empty() ? std::nullopt : std::optional(median(values));
  };
  GpuState out = samples.back();
  out.sm_mhz = median_of(&GpuState::sm_mhz), out.memory_mhz = median_of(&GpuState::memory_mhz);
  out.watts = median_of(&GpuState::watts);
  out.pcie_in = median_of(&GpuState::pcie_in), out.pcie_out = median_of(&GpuState::pcie_out);
  for (const auto& s : samples) {
    if (s.celsius) out.celsius = std::max(out.celsius.value_or(*s.celsius), *s.celsius);
    if (s.slowed) out.slowed = out.slowed.value_or(0) | *s.slowed;
  }
  return out;
}

}  // namespace cgp::measure
