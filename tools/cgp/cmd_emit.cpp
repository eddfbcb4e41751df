// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "commands.h"
#include "kernel_args.h"
#include "terminal.h"

namespace cgp::cli {

int emit(const Context& context, const EmitOptions& o) {
  const auto& kernel = kernels::find_kernel(o.kernel);
  const auto images = select_images(kernel, o.arch, o.variant, o.settings);
  std::string out;
  if (context.json) {
    nlohmann::ordered_json j = {{"schema", "cgp.emit/1"}, {"kernel", kernel.name}, {"arch", o.arch}};
    j["modules"] = nlohmann::ordered_json::array();
    for (const auto& image : images)
      j["modules"].push_back({{"variant", image.name}, {"entry", image.entry}, {"ptx", *image.ptx}});
    out = j.dump(2) + "\n";
  } else {
    for (const auto& image : images) {
      if (images.size() > 1) text::append(out, text::cat("// ---------------- ", image.name, "\n"));
      out += *image.ptx;
      if (!out.empty() && out.back() != '\n') out += '\n';
    }
  }
  if (o.output.empty() || o.output == "-") {
    write_out(out);
  } else {
    write_file(o.output, out);
    std::fputs(text::cat("wrote ", o.output, "\n").c_str(), stderr);
  }
  return kClean;
}

}  // namespace cgp::cli
