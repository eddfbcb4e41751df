// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/kernels/catalog/catalog.h"
#include "cgp/kernels/common/build_only.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"
#include "tools/cgp/version.h"

namespace cgp::cli {
namespace {

using nlohmann::ordered_json;

struct Target {
  std::string arch;
  std::vector<std::string> variants;
};

std::vector<Target> targets_of(const kernels::KernelEntry& kernel) {
  const kernels::BuildOnly names;
  std::vector<Target> out;
  for (const char* arch : kTargets) {
    Target t{arch, {}};
    try {
      for (const auto& image : kernel.images(arch)) t.variants.push_back(image.name);
    } catch (const Unsupported&) {
      continue;  // nothing ships for it
    }
    if (!t.variants.empty()) out.push_back(std::move(t));
  }
  return out;
}

std::string target_names(const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const auto& t : targets) names.push_back(t.arch);
  return text::join(names, " ");
}

ordered_json kernel_json(const kernels::KernelEntry& k) {
  ordered_json j = {{"name", k.name}, {"summary", k.summary}, {"inputs", k.inputs}};
  j["options"] = ordered_json::array();
  for (const auto& o : k.options)
    j["options"].push_back({{"name", o.name}, {"default", o.value}, {"help", o.help}});
  j["targets"] = ordered_json::array();
  for (const auto& t : targets_of(k)) j["targets"].push_back({{"arch", t.arch}, {"variants", t.variants}});
  return j;
}

std::string kernel_text(const kernels::KernelEntry& k) {
  std::string out = fmt::format("{}: {}\n\noptions (NAME=VALUE)\n", k.name, k.summary);
  for (const auto& o : k.options) out += fmt::format("  {:<14} {:<12} {}\n", o.name, o.value, o.help);
  out += fmt::format("\ninputs (--in NAME=FILE.npy; random where not given)\n  {}\n\nvariants\n",
                     text::join(k.inputs, ", "));
  std::vector<std::pair<std::string, std::string>> variants;  // name, targets
  for (const auto& t : targets_of(k))
    for (const auto& v : t.variants) {
      const auto at =
          std::find_if(variants.begin(), variants.end(), [&](const auto& x) { return x.first == v; });
      if (at == variants.end())
        variants.emplace_back(v, t.arch);
      else
        at->second += " " + t.arch;
    }
  for (const auto& [variant, targets] : variants) out += fmt::format("  {:<28} {}\n", variant, targets);
  return out + fmt::format("\nrun it: cgp run {}    see its PTX: cgp emit {}\n", k.name, k.name);
}

}  // namespace

int list(const Context& context, const ListOptions& o) {
  std::vector<const kernels::KernelEntry*> chosen;
  if (!o.kernel.empty())
    chosen.push_back(&kernels::find_kernel(o.kernel));
  else
    for (const auto& k : kernels::catalog()) chosen.push_back(&k);
  std::string out;
  if (context.json) {
    ordered_json j = {{"schema", "cgp.list/1"}, {"kernels", ordered_json::array()}};
    for (const auto* k : chosen) j["kernels"].push_back(kernel_json(*k));
    out = spec::dumped(j, 2) + "\n";
  } else if (!o.kernel.empty()) {
    out = kernel_text(*chosen[0]);
  } else {
    std::size_t width = 6;
    for (const auto* k : chosen) width = std::max(width, k->name.size());
    for (const auto* k : chosen)
      out += fmt::format("{:<{}}  {}\n{:<{}}  targets: {}\n", k->name, width, k->summary, "", width,
                         target_names(targets_of(*k)));
    out += "\noptions and variants of one: cgp list KERNEL\n";
  }
  write_out(out);
  return kClean;
}

}  // namespace cgp::cli
