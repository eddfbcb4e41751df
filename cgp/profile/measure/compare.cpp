// SPDX-License-Identifier: Apache-2.0
#include "cgp/profile/measure/compare.h"

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::measure {

std::vector<Timing> compare(const runtime::Device& device, std::span<const Contender> contenders,
                            const CompareOptions& options) {
  if (device.is_emulator())
    throw Unsupported({"times are measured on a GPU; the emulator has exact counters instead of a clock",
                       {},
                       text::cat("the device is ", device.info().name),
                       "open \"cuda:0\""});
  if (options.rounds < 1)
    throw ArgumentError(
        {"a comparison needs at least one timed round", {}, text::cat("rounds = ", options.rounds), {}});
  runtime::Stream stream(device);
  auto scratch = device.alloc<std::uint8_t>(options.cold_l2 ? options.flush_bytes : 0);
  runtime::Event start(device), stop(device);
  std::vector<Timing> out;
  for (const auto& c : contenders) out.push_back({c.name, {}, {}});
  const std::size_t n = contenders.size();
  for (int round = -options.warmup; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t c = (i + std::size_t(round + options.warmup)) % n;
      // The flush also keeps the GPU busy while the host queues the run, so launch overhead is not in the
      // time.
      if (options.cold_l2) stream.fill(scratch.all().region(), std::uint8_t(round));
      stream.record(start);
      contenders[c].run(stream);
      stream.record(stop);
      stream.wait();
      if (round >= 0) out[c].milliseconds.push_back(stop.milliseconds_since(start));
    }
  }
  for (auto& t : out) t.summary = summarise(t.milliseconds);
  return out;
}

}  // namespace cgp::measure
