// SPDX-License-Identifier: Apache-2.0
// cgp quantize: a GGUF file with smaller weights.
#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "cgp/engine/quantize/quantize.h"
#include "cgp/model/gguf/gguf.h"
#include "cgp/spec/report/json_text.h"
#include "tools/cgp/model/model_commands.h"
#include "tools/cgp/terminal.h"

namespace cgp::cli {

int quantize(const Context& context, const QuantizeCommandOptions& o) {
  const auto start = std::chrono::steady_clock::now();
  const engine::QuantizeMix mix = engine::quantize_mix(o.type);
  const model::Gguf file = model::Gguf::open(o.in);
  engine::QuantizeResult done;
  {
    Progress progress(!context.json);
    done = engine::quantize(file, o.out, mix,
                            {0, o.requantize, [&](double fraction) {
                               progress.step(fmt::format("quantizing: {:.0f} %", 100 * fraction));
                             }});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (context.json) {
    write_out(spec::dumped(nlohmann::ordered_json{{"schema", "cgp.quantize/1"},
                                                  {"file", o.in},
                                                  {"out", o.out},
                                                  {"type", mix.name},
                                                  {"bytes_before", done.bytes_before},
                                                  {"bytes_after", done.bytes_after},
                                                  {"types", done.tensors},
                                                  {"seconds", seconds}},
                           2) +
              "\n");
    return kClean;
  }
  std::string types;
  for (const auto& [type, count] : done.tensors)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", count, type);
  write_out(fmt::format("{}: {:.1f} MiB of tensors from {:.1f} MiB in {:.1f} s ({})\n", o.out,
                        double(done.bytes_after) / (1 << 20), double(done.bytes_before) / (1 << 20), seconds,
                        types));
  return kClean;
}

}  // namespace cgp::cli
