// SPDX-License-Identifier: Apache-2.0
#include "cgp/engine/llm.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/cpu/cpu_backend.h"
#include "cgp/engine/device/device_backend.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/models/row_major.h"
#include "cgp/engine/simt/simt_backend.h"
#include "cgp/engine/tensor_parallel/tensor_parallel_backend.h"

namespace cgp::engine {
namespace {

using std::int64_t;
using text::cat;
using Clock = std::chrono::steady_clock;

constexpr int64_t kDefaultContext = 8192;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Bytes that the system can give; 0 where nothing tells.
int64_t available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string key, unit; file >> key;) {
    int64_t kib = 0;
    file >> kib;
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

void check_memory(const std::string& path, const MemoryEstimate& m) {
  const int64_t there = available_memory();
  if (there == 0 || m.total() <= there) return;
  const auto mib = [](int64_t bytes) { return cat((bytes + (1 << 20) - 1) >> 20, " MiB"); };
  throw Error(ErrorText{"the model fits into memory", path,
                        cat("it takes ", mib(m.total()), " (weights ", mib(m.weights), ", cache ",
                            mib(m.cache), ", values ", mib(m.workspace), "), available are ", mib(there)),
                        "use a shorter context or fewer sequences"});
}

/// Throws ArgumentError that names the first token which differs.
void require_same_vocabulary(const model::Tokenizer& a, const model::Tokenizer& b, const std::string& file) {
  const auto &ours = a.vocabulary(), &theirs = b.vocabulary();
  const auto refuse = [&](std::string why) {
    throw ArgumentError(ErrorText{"a draft model has the vocabulary of the model", file, std::move(why), {}});
  };
  if (ours.size() != theirs.size()) refuse(cat(theirs.size(), " tokens, the model has ", ours.size()));
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (a.piece(Token(i)) != b.piece(Token(i)))
      refuse(
          cat("token ", i, " is \"", b.piece(Token(i)), "\", that of the model \"", a.piece(Token(i)), "\""));
}

/// "cuda:2,cuda:3", or `count` from the first on.
std::vector<std::string> devices_of(const LoadOptions& o) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at <= o.device.size();) {
    const auto end = std::min(o.device.find(',', at), o.device.size());
    all.push_back(o.device.substr(at, end - at));
    at = end + 1;
  }
  if (o.tensor_parallel == 1 || std::size_t(o.tensor_parallel) == all.size()) return all;
  if (all.size() > 1 || o.tensor_parallel < 1)
    throw ArgumentError(ErrorText{"tensor_parallel is the number of devices that share the model",
                                  o.device,
                                  cat("it is ", o.tensor_parallel),
                                  {}});
  const std::string first = all[0] == "cuda" ? "cuda:0" : all[0];
  const bool emulated = first.starts_with("emu");
  if (!emulated && !first.starts_with("cuda:"))
    throw Unsupported(ErrorText{"GPUs through CUDA share a model", first, {}, "use --device cuda:0"});
  for (int i = 1; i < o.tensor_parallel; ++i)
    all.push_back(emulated ? first : cat("cuda:", std::stoi(first.substr(5)) + i));
  return all;
}

std::unique_ptr<Backend> make_backend(Program program, std::shared_ptr<const model::Source> file,
                                      const std::string& path, const std::vector<std::string>& devices,
                                      BackendOptions o) {
  if (devices.size() > 1) {
    std::vector<runtime::Device> opened;
    for (const auto& d : devices) opened.push_back(runtime::Device::open(d));
    return make_tensor_parallel_backend(std::move(program), std::move(file), opened, o);
  }
  if (devices[0] != "cpu") {
    const auto opened = runtime::Device::open(devices[0]);
    if (!runs_simt(opened.info())) return make_device_backend(std::move(program), std::move(file), opened, o);
    o.page_tokens = simt_page_tokens(program.context), o.pages = o.max_sequences;
    return make_simt_backend(std::move(program), std::move(file), opened, o);
  }
  check_memory(path, cpu_memory(program, *file, o));
  return make_cpu_backend(std::move(program), std::move(file), o);
}

}  // namespace

LLM::LLM(LLM&&) noexcept = default;
LLM::~LLM() = default;

LLM LLM::load(const std::string& path, const LoadOptions& o) {
  const auto start = Clock::now();
  if (o.context < 0 || o.sequences < 1 || o.chunk < 1 || o.lookup_tokens < 0 || o.draft_tokens < 0 ||
      o.cache_tokens < 0)
    throw ArgumentError(
        ErrorText{"context, sequences and chunk are positive",
                  {},
                  cat("context ", o.context, ", sequences ", o.sequences, ", chunk ", o.chunk),
                  {}});
  LLM llm;
  llm.file_ = row_major(model::Source::open(path));
  Program program = build(*llm.file_, {o.context});
  if (o.context == 0 && program.context > kDefaultContext) program = build(*llm.file_, {kDefaultContext});
  if (o.embeddings) {
    if (o.device != "cpu")
      throw Unsupported(
          ErrorText{"embeddings are made on the processor", o.device, {}, "use the device cpu"});
    program = without_lm_head(std::move(program));
    llm.embeds_ = true;
  }
  llm.tokenizer_ = std::make_unique<model::Tokenizer>(model::Tokenizer::open(*llm.file_));
  BackendOptions b;
  b.cache = o.cache, b.activations = o.activations, b.threads = o.threads,
  b.batch_invariant = o.batch_invariant;
  b.progress = o.progress;
  b.max_rows = o.chunk, b.max_sequences = o.sequences;
  b.max_outputs = std::max<int64_t>(
      b.max_outputs, o.sequences * (1 + std::max(o.lookup_tokens, o.draft.empty() ? 0 : o.draft_tokens)));
  if (o.embeddings) b.max_outputs = b.max_rows;
  const int64_t pages_of_one = (program.context + b.page_tokens - 1) / b.page_tokens;
  b.pages = o.cache_tokens == 0
                ? o.sequences * pages_of_one
                : std::max(pages_of_one, (o.cache_tokens + b.page_tokens - 1) / b.page_tokens);
  const int64_t context = program.context;
  const auto devices = devices_of(o);
  llm.backend_ = make_backend(std::move(program), llm.file_, path, devices, b);
  if (!o.draft.empty()) {
    const auto file = row_major(model::Source::open(o.draft));
    require_same_vocabulary(*llm.tokenizer_, model::Tokenizer::open(*file), o.draft);
    Program small = build(*file, {0});
    if (small.context > context) small = build(*file, {context});
    llm.draft_ = make_backend(std::move(small), file, o.draft, {devices[0]}, b);
    llm.scheduling_.draft = llm.draft_.get();
  }
  llm.scheduling_.draft_tokens = o.draft_tokens;
  llm.scheduling_.lookup_tokens = o.lookup_tokens;
  llm.scheduling_.prompt_rows = o.prompt_rows;
  llm.scheduler_ = std::make_unique<Scheduler>(*llm.backend_, llm.tokenizer_.get(), llm.scheduling_);
  llm.load_seconds_ = seconds_since(start);
  return llm;
}

std::vector<Token> LLM::encode(std::string_view text, bool parse_special) const {
  return tokenizer_->encode(text, {.parse_special = parse_special});
}

model::CompiledGrammar LLM::compile(const model::Grammar& grammar) {
  const auto logits = backend_->program().values[std::size_t(backend_->program().logits)].width;
  if (!trie_) trie_ = std::make_shared<const model::TokenTrie>(*tokenizer_, std::size_t(logits));
  return {grammar, trie_};
}

Completion LLM::generate(Request request) {
  const RequestId id = scheduler_->submit(std::move(request));
  while (scheduler_->step()) {
  }
  Completion out = *scheduler_->take(id);
  if (out.reason == FinishReason::error) throw Error(out.error);
  return out;
}

std::vector<float> LLM::embed(std::span<const Token> tokens) {
  const BackendOptions& o = backend_->options();
  const auto count = int64_t(tokens.size());
  if (!embeds_ || count == 0 || count > backend_->program().context)
    throw ArgumentError(ErrorText{
        "a model that was loaded for embeddings takes 1 token to its context",
        {},
        cat(count, " tokens of ", backend_->program().context, embeds_ ? "" : ", loaded to generate"),
        {}});
  const auto width = std::size_t(backend_->program().values[std::size_t(backend_->program().logits)].width);
  std::vector<std::int32_t> pages(std::size_t((count + o.page_tokens - 1) / o.page_tokens)), outputs;
  std::iota(pages.begin(), pages.end(), 0);
  std::vector<float> states;
  std::vector<double> mean(width);
  for (int64_t first = 0, rows; first < count; first += rows) {
    rows = std::min(count - first, o.max_rows);
    outputs.resize(std::size_t(rows));
    std::iota(outputs.begin(), outputs.end(), 0);
    states.resize(outputs.size() * width);
    const BatchSequence sequence{0, std::int32_t(rows), std::int32_t(first), pages};
    backend_->run({tokens.subspan(std::size_t(first), std::size_t(rows)), {&sequence, 1}, outputs},
                  {states, {}});
    for (std::size_t i = 0; i < states.size(); ++i) mean[i % width] += states[i];
  }
  double squares = 0;
  for (const double m : mean) squares += m * m;
  const double length = std::sqrt(squares);
  std::vector<float> out(width);
  for (std::size_t i = 0; i < width && length > 0; ++i) out[i] = float(mean[i] / length);
  return out;
}

Perplexity LLM::perplexity(std::string_view text, int64_t context) {
  const BackendOptions& o = backend_->options();
  const auto words = std::size_t(backend_->program().values[std::size_t(backend_->program().logits)].width);
  std::vector<Token> ids = encode(text);
  const int64_t chunks = int64_t(ids.size()) / std::max<int64_t>(context, 1);
  if (context < 4 || context > backend_->program().context || chunks < 2)
    throw ArgumentError(ErrorText{
        "a text has at least two chunks that fit the context",
        {},
        cat(ids.size(), " tokens in chunks of ", context, ", the context is ", backend_->program().context),
        {}});
  std::vector<std::int32_t> pages(std::size_t((context + o.page_tokens - 1) / o.page_tokens)), outputs;
  for (std::size_t i = 0; i < pages.size(); ++i) pages[i] = std::int32_t(i);
  // What follows writes pages that the scheduler takes for a prefix.
  scheduler_ = std::make_unique<Scheduler>(*backend_, tokenizer_.get(), scheduling_);
  std::vector<float> logits;
  double sum = 0, squares = 0;
  Perplexity out;
  for (int64_t c = 0; c < chunks; ++c) {
    const auto chunk = std::span(ids).subspan(std::size_t(c * context), std::size_t(context));
    const Token kept = chunk[0];
    if (tokenizer_->adds_bos()) chunk[0] = tokenizer_->special().bos;
    for (int64_t first = 0, rows; first < context; first += rows) {
      const bool predicts = first + 1 > context / 2;
      rows = std::min({context - first, o.max_rows, predicts ? o.max_outputs : context / 2 - first});
      outputs.clear();
      for (int64_t i = 0; predicts && i < rows && first + i + 1 < context; ++i)
        outputs.push_back(std::int32_t(i));
      logits.resize(outputs.size() * words);
      const BatchSequence sequence{0, std::int32_t(rows), std::int32_t(first), pages};
      backend_->run({chunk.subspan(std::size_t(first), std::size_t(rows)), {&sequence, 1}, outputs},
                    {logits, {}});
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto row = std::span(logits).subspan(i * words, words);
        const double most = *std::max_element(row.begin(), row.end());
        double total = 0;
        for (float l : row) total += std::exp(l - most);
        const double loss = most + std::log(total) - row[std::size_t(chunk[std::size_t(first) + i + 1])];
        sum += loss, squares += loss * loss, ++out.tokens;
      }
    }
    chunk[0] = kept;
  }
  const double n = double(out.tokens), mean = sum / n;
  out.value = std::exp(mean);
  out.error = out.value * std::sqrt(std::max(0.0, squares / n - mean * mean) / std::max(1.0, n - 1));
  return out;
}

}  // namespace cgp::engine
