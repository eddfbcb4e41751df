// SPDX-License-Identifier: Apache-2.0
// cgp pipeline: a kernel from what its function recorded to machine code, stage by stage.
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/explain/stages.h"
#include "cgp/kernels/pack/cubin_pack.h"
#include "cgp/profile/kernel/kernel_args.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {
namespace {

using nlohmann::ordered_json;

const std::string& shown(const explain::Stages& s, const std::string& stage) {
  if (stage == "recorded") return s.graph;
  if (stage == "ptx") return s.ptx;
  if (s.listing.text.empty())
    throw Unsupported(ErrorText{"machine code needs ptxas and nvdisasm or cuobjdump", {}, s.sass_absent, {}});
  return s.listing.text;
}

}  // namespace

int pipeline(const Context& context, const PipelineOptions& o) {
  const auto& kernel = kernels::find_kernel(o.kernel);
  ordered_json j = {{"schema", "cgp.pipeline/1"}, {"kernel", kernel.name}, {"arch", o.arch}};
  j["modules"] = ordered_json::array();
  std::string out;
  for (auto& image : profile::select_images(kernel, o.arch, o.variant, o.settings)) {
    kernels::attach_embedded(image, o.arch);
    const auto stages = explain::stages_of(image, o.arch, o.passes);
    if (context.json)
      j["modules"].push_back(explain::stages_json(stages));
    else
      out += o.show.empty() ? explain::stages_text(stages) : shown(stages, o.show);
  }
  if (o.show.empty()) out += "\nthe text of a stage: --show recorded, ptx or sass\n";
  write_out(context.json ? spec::dumped(j, 2) + "\n" : out);
  return kClean;
}

}  // namespace cgp::cli
