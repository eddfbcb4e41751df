// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/collect/energy.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/profile/counters/nvml.h"
#include "cgp/profile/measure/measure.h"
#include "cgp/profile/measure/system.h"
#include "cgp/profile/view/table.h"

namespace cgp::profile {
namespace {

/// Why read_system() has no joules of the package.
std::string package_absent() {
  const char* named = std::getenv("CGP_POWERCAP");
  const std::string folder = named && *named ? named : "/sys/class/powercap";
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ec)) {
    const std::string file = (entry.path() / "energy_uj").string();
    if (entry.path().filename().string().rfind("intel-rapl:", 0) == 0 && access(file.c_str(), R_OK) != 0)
      return text::cat(file, " may not be read: it takes root, or chmod a+r");
  }
  return text::cat("no RAPL counter in ", folder, ": a virtual machine, or another processor");
}

/// A reading after minus one before; null with the reason.
nlohmann::ordered_json difference(std::optional<double> before, std::optional<double> after, double seconds,
                                  const std::string& absent) {
  if (!before || !after) return {{"joules", nullptr}, {"absent", absent}};
  if (*after < *before) return {{"joules", nullptr}, {"absent", "the counter began again meanwhile"}};
  return {{"joules", *after - *before}, {"watts", (*after - *before) / seconds}};
}

}  // namespace

struct EnergyMeter::Impl {
  struct Gpu {
    std::string name, absent;
    std::unique_ptr<measure::Nvml> nvml;
    std::optional<double> start;
  };
  std::vector<Gpu> gpus;
  measure::SystemCounters before;
  double start = 0;
};

EnergyMeter::EnergyMeter() : impl_(std::make_unique<Impl>()) {
  for (const auto& device : runtime::devices()) {
    if (device.kind != runtime::DeviceKind::cuda) continue;
    Impl::Gpu g;
    g.name = device.name;
    try {
      g.nvml = std::make_unique<measure::Nvml>(device);
    } catch (const Unsupported& e) {
      g.absent = e.rule();
    }
    impl_->gpus.push_back(std::move(g));
  }
  for (auto& g : impl_->gpus)
    if (g.nvml) {
      g.start = g.nvml->read().joules;
      if (!g.start) g.absent = "this GPU does not tell its energy";
    }
  impl_->before = measure::read_system();
  impl_->start = measure::now();
}
EnergyMeter::~EnergyMeter() = default;

void EnergyMeter::stop(Document& d) const {
  const double seconds = measure::now() - impl_->start;
  const auto after = measure::read_system();
  nlohmann::ordered_json j = {{"seconds", seconds}, {"of", "everything that ran meanwhile"}};
  const auto& before = impl_->before.package_joules;
  j["package"] = difference(before, after.package_joules, seconds,
                            before ? "it could not be read again" : package_absent());
  j["gpus"] = nlohmann::ordered_json::array();
  double sum = 0;
  std::string from;
  const auto add = [&](const nlohmann::ordered_json& part, const std::string& name) {
    if (part.at("joules").is_null()) return;
    sum += part.at("joules").get<double>();
    from += (from.empty() ? "" : " and ") + name;
  };
  add(j["package"], "RAPL");
  for (const auto& g : impl_->gpus) {
    auto part = difference(g.start, g.nvml ? g.nvml->read().joules : std::nullopt, seconds, g.absent);
    part["name"] = g.name;
    add(part, "NVML");
    j["gpus"].push_back(part);
  }
  if (impl_->gpus.empty()) j["gpu_absent"] = "there is no GPU here";
  if (from.empty())
    d.metrics.absent(measure::Metric::joules_per_inference, j["package"]["absent"].get<std::string>());
  else
    d.metrics.set(measure::Metric::joules_per_inference, sum, measure::Source::measured,
                  from + " over one run");
  d.more["energy"] = j;
}

std::string energy_text(const Document& d) {
  const auto& e = d.more.at("energy");
  const auto line = [](const std::string& name, const nlohmann::ordered_json& part) {
    if (part.at("joules").is_null())
      return fmt::format("energy     {} -: {}\n", name, part.at("absent").get<std::string>());
    return fmt::format("energy     {} {} J, {} W\n", name, number_text(part.at("joules").get<double>()),
                       number_text(part.at("watts").get<double>()));
  };
  std::string out = line("package", e.at("package"));
  for (const auto& g : e.at("gpus")) out += line(g.at("name"), g);
  if (e.contains("gpu_absent"))
    out += fmt::format("energy     GPU -: {}\n", e.at("gpu_absent").get<std::string>());
  return out;
}

}  // namespace cgp::profile
