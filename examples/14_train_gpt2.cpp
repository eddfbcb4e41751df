// SPDX-License-Identifier: Apache-2.0
// Rung 14: GPT-2 learns a text, from random weights or a file's, and no Python is there.
//   A step is one call of cgp::train::Trainer: forward, loss, backward, clipping, AdamW, all by the library's kernels; on a
//   GPU one CUDA graph. The FLOPs of MFU (model FLOPs utilization) are those of products and causal attention.
//     14_train_gpt2 [device] [name=value...]
//       text=FILE         what is learned, as bytes; without it: sums in words, made up as needed
//       tokenizer=FOLDER  a Hugging Face folder, whose tokens the text becomes
//       layers, width, heads, positions, batch, sequence, micro, steps, warmup, seed=N; model=124m sets GPT-2's shape
//       rate=R type=f32|bf16 checkpoint_layers=1
//       weights=FILE      begins with GPT-2's weights (safetensors)   out=FILE   writes them at the end
//       run=FILE          resumes from this checkpoint if it is there, and writes it at the end
//       json=FILE         losses and seconds of every step
//       curve=FILE        the losses as SVG                           peak=T     TFLOP/s of the GPU, for MFU
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/model/tokenizer/tokenizer.h"
#include "cgp/train/checkpoint.h"
#include "cgp/train/token_batches.h"
#include "cgp/train/trainer.h"
#include "examples/example.h"

namespace {

using namespace cgp;
using namespace cgp::train;
using Clock = std::chrono::steady_clock;

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 2; i < argc; ++i) {
      const std::string_view a = argv[i];
      const auto equals = a.find('=');
      if (equals == a.npos) throw ArgumentError(text::cat("'", a, "' is not name=value"));
      values_.emplace(a.substr(0, equals), a.substr(equals + 1));
    }
  }
  std::string text(const std::string& name, const std::string& otherwise = {}) {
    const auto found = values_.extract(name);
    return found.empty() ? otherwise : found.mapped();
  }
  double number(const std::string& name, double otherwise) {
    const auto v = text(name);
    char* end = nullptr;
    const double n = v.empty() ? otherwise : std::strtod(v.c_str(), &end);
    if (!v.empty() && *end) throw ArgumentError(text::cat(name, "=", v, " is no number"));
    return n;
  }
  std::uint64_t count(const std::string& name, std::uint64_t otherwise) {
    const double n = number(name, double(otherwise));
    if (!(n >= 0 && n < 0x1p53)) throw ArgumentError(text::cat(name, " must be a count, it is ", n));
    return std::uint64_t(n);
  }
  void finish() const {
    if (!values_.empty()) throw ArgumentError(text::cat("there is no option ", values_.begin()->first));
  }

 private:
  std::map<std::string, std::string> values_;
};

/// "two and three is five. " with other numbers, `bytes` of it.
std::string sums(std::size_t bytes) {
  constexpr const char* words[] = {"zero",    "one",     "two",       "three",    "four",
                                   "five",    "six",     "seven",     "eight",    "nine",
                                   "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                   "fifteen", "sixteen", "seventeen", "eighteen"};
  SplitMix64 random(3);
  std::string out;
  while (out.size() < bytes) {
    const auto a = random.next() % 10, b = random.next() % 10;
    out += text::cat(words[a], " and ", words[b], " is ", words[a + b], ". ");
  }
  return out;
}

/// The losses as rows of characters, each column the mean of its share of the steps.
void plot(const std::vector<double>& losses) {
  constexpr int rows = 8;
  const std::size_t columns = std::min<std::size_t>(losses.size(), 64);
  std::vector<double> means(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t first = c * losses.size() / columns, last = (c + 1) * losses.size() / columns;
    for (std::size_t i = first; i < last; ++i) means[c] += losses[i] / double(last - first);
  }
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  for (int r = 0; r < rows; ++r) {
    const double level = *high - (*high - *low) * r / (rows - 1), half = (*high - *low) / (2 * (rows - 1));
    std::string line;
    for (std::size_t c = 0; c < columns; ++c) {
      const bool between =
          c && std::min(means[c - 1], means[c]) < level && level < std::max(means[c - 1], means[c]);
      line += std::fabs(means[c] - level) <= half ? '*' : between ? '|' : ' ';
    }
    std::printf("%7.3f |%s\n", level, line.c_str());
  }
}

void write_svg(const std::string& path, const std::vector<double>& losses) {
  const double most = *std::max_element(losses.begin(), losses.end());
  std::string points;
  for (std::size_t i = 0; i < losses.size(); ++i)
    points += text::cat(40 + 740.0 * double(i) / double(std::max<std::size_t>(losses.size() - 1, 1)), ",",
                        380 - 360 * losses[i] / most, " ");
  write_file(
      path,
      text::cat(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 400\" font-family=\"sans-serif\" "
          "font-size=\"12\"><path d=\"M40 20V380H780\" fill=\"none\" stroke=\"#888\"/><text x=\"4\" "
          "y=\"24\">",
          most, "</text><text x=\"4\" y=\"384\">0</text><text x=\"340\" y=\"396\">", losses.size(),
          " steps, loss</text><polyline fill=\"none\" stroke=\"#0a7\" stroke-width=\"1.5\" points=\"", points,
          "\"/></svg>\n"));
}

void write_json(const std::string& path, const std::string& device, const TrainOptions& o,
                const std::vector<double>& losses, const std::vector<double>& seconds) {
  std::vector<std::string> l, t;
  for (double v : losses) l.push_back(text::cat(v));
  for (double v : seconds) t.push_back(text::cat(v));
  write_file(path, text::cat("{\"device\": \"", device, "\", \"type\": \"", name(o.type),
                             "\", \"tokens\": ", o.tokens(), ",\n \"losses\": [", text::join(l, ", "),
                             "],\n \"seconds\": [", text::join(t, ", "), "]}\n"));
}

/// Dense TFLOP/s of NVIDIA's data sheet; 0: not known here.
double peak_of(const runtime::DeviceInfo& info, DType type) {
  if (info.name.find("H200") == std::string::npos && info.name.find("H100 80GB HBM3") == std::string::npos)
    return 0;
  return type == DType::bf16 ? 989.4 : 66.9;
}

std::string fixed(double v, int digits) {
  char out[64];
  std::snprintf(out, sizeof out, "%.*f", digits, v);
  return out;
}
std::string duration(double seconds) {
  const auto s = std::uint64_t(seconds);
  return text::cat(s / 60, ":", s % 60 < 10 ? "0" : "", s % 60);
}

bool run(const runtime::Device& device, Arguments& a) {
  example::needs(device, 80);
  const bool emulator = device.is_emulator();
  const bool full = a.text("model") == "124m";
  TransformerShape shape = full ? gpt2_124m() : TransformerShape{};
  std::optional<model::Tokenizer> tokenizer;
  if (const auto folder = a.text("tokenizer"); !folder.empty())
    tokenizer.emplace(model::Tokenizer::open(folder));
  shape.layers = a.count("layers", full       ? 12
                                   : emulator ? 2
                                              : 6),
  shape.width = a.count("width", full       ? 768
                                 : emulator ? 32
                                            : 384);
  shape.heads = a.count("heads", full ? 12 : emulator ? 2 : 6);
  shape.positions = a.count("positions", full ? 1024 : emulator ? 32 : 256);
  if (!full) shape.vocab = tokenizer ? tokenizer->vocabulary().size() : 256;
  TrainOptions o;
  const auto type = parse_dtype(a.text("type", emulator ? "f32" : "bf16"));
  if (!type) throw ArgumentError("type must be f32 or bf16");
  o.type = *type, o.sequence = a.count("sequence", shape.positions),
  o.batch = a.count("batch", emulator ? 1 : 8);
  o.micro_batches = a.count("micro", 1), o.checkpoint_layers = a.count("checkpoint_layers", 0) != 0,
  o.graph = !emulator;
  Schedule schedule;
  schedule.steps = a.count("steps", emulator ? 12 : 200),
  schedule.warmup = a.count("warmup", schedule.steps / 20);
  schedule.peak = a.number("rate", full ? 6e-4 : emulator ? 1e-2 : 1e-3), schedule.floor = schedule.peak / 10;
  const auto seed = a.count("seed", 1);
  const auto file = a.text("text"), weights = a.text("weights"), run_file = a.text("run"),
             out = a.text("out"), curve = a.text("curve"), json = a.text("json");
  double peak = a.number("peak", peak_of(device.info(), o.type));
  a.finish();

  const std::string words = file.empty() ? sums(o.tokens() * 16 + 1) : read_file(file);
  std::vector<std::int32_t> ids;
  if (tokenizer)
    for (auto id : tokenizer->encode(words)) ids.push_back(std::int32_t(id));
  else
    ids = byte_tokens(words);
  const std::size_t token_count = ids.size();
  TokenBatches data(std::move(ids), o.sequence, seed);
  Trainer trainer(device, shape, o, seed);
  if (!weights.empty()) load_weights(weights, trainer);
  if (!run_file.empty() && std::filesystem::exists(run_file)) load_checkpoint(run_file, trainer);

  std::uint64_t parameters = 0;
  for (const auto& p : trainer.parameters()) parameters += p.elements();
  const double flops = training_flops_per_token(trainer.shape(), o.sequence);
  std::printf("%.2f M parameters, %s, %.2f GB; %zu tokens of text; %" PRIu64
              " tokens a step, %.3f GFLOP each\n",
              double(parameters) / 1e6, std::string(name(o.type)).c_str(),
              double(trainer.memory_bytes()) / 1e9, token_count, o.tokens(), flops / 1e9);
  std::vector<double> losses, times;
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const std::uint64_t first = trainer.steps(), every = std::max<std::uint64_t>(schedule.steps / 10, 1);
  const auto begin = Clock::now();
  for (std::uint64_t n = first; n < schedule.steps; ++n) {
    const auto b = data.batch(n, o.batch * o.micro_batches);
    const auto from = Clock::now();
    const auto r = trainer.step(b.inputs, b.targets, schedule.rate(n));
    times.push_back(std::chrono::duration<double>(Clock::now() - from).count());
    losses.push_back(r.loss);
    const double passed = std::chrono::duration<double>(Clock::now() - begin).count();
    const auto done = n + 1 - first, all = schedule.steps - first;
    const auto line = text::cat("step ", n + 1, "/", schedule.steps, "  loss ", fixed(r.loss, 4), "  norm ",
                                fixed(r.gradient_norm, 3), "  ", fixed(double(o.tokens()) / times.back(), 0),
                                " tokens/s", r.skipped ? "  skipped: NaN or Inf" : "");
    if (terminal)
      std::printf("\r[%-24s] %s  %s left   ", std::string(24 * done / all, '#').c_str(), line.c_str(),
                  duration(passed / double(done) * double(all - done)).c_str()),
          std::fflush(stdout);
    else if ((n + 1) % every == 0 || n == first)
      std::printf("%s\n", line.c_str());
  }
  if (terminal) std::printf("\n");
  if (losses.empty())
    throw ArgumentError(text::cat(run_file, " has taken ", first, " steps already: give more steps"));
  if (!json.empty()) write_json(json, device.info().name, o, losses, times);
  if (losses.size() > 1) plot(losses);
  if (times.size() > 2) {
    std::sort(times.begin() + 2, times.end());  // the first two load kernels and record the graph
    const double median = times[2 + (times.size() - 2) / 2], rate = double(o.tokens()) / median;
    std::printf("median step %.2f ms, %.0f tokens/s", median * 1e3, rate);
    if (emulator)
      std::printf(" on the emulator, which has no MFU\n");
    else if (peak > 0)
      std::printf(", MFU %.1f %% of %.1f TFLOP/s\n", rate * flops / peak / 1e10, peak);
    else
      std::printf(", MFU needs peak=TFLOP/s of this GPU\n");
  }
  if (!curve.empty()) write_svg(curve, losses);
  if (!run_file.empty()) save_checkpoint(run_file, trainer);
  if (!out.empty()) save_weights(out, trainer);
  std::printf("loss %.4f to %.4f\n", losses.front(), losses.back());
  // Of a run from random weights that learns, the loss falls.
  return std::isfinite(losses.back()) &&
         (first > 0 || !weights.empty() || losses.size() < 8 || losses.back() < losses.front() - 0.5);
}

}  // namespace

int main(int argc, char** argv) {
  return example::main_on_device(argc, argv, [&](const runtime::Device& d) {
    Arguments a(argc, argv);
    return run(d, a);
  });
}
