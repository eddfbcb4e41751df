// SPDX-License-Identifier: Apache-2.0
#include "cgp/web/web_model.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/engine/llm.h"
#include "cgp/engine/models/model.h"
#include "cgp/engine/simt/simt_backend.h"
#include "cgp/engine/simt/simt_model.h"
#include "cgp/model/template/chat_template.h"
#include "cgp/model/tokenizer/pre_tokenizers.h"
#include "cgp/web/model_page.h"
#include "cgp/web/web_json.h"

namespace cgp::web {
namespace {
using nlohmann::ordered_json;
using runtime::Recording;

constexpr std::int64_t kDefaultContext = 1024;
constexpr std::size_t kFileBytes = 3u
                                   << 23;  ///< of weights in a file: whole words, and base64 without padding

/// What stands before, between and behind the messages of a conversation: {first, next, answer}. The first prompt is first + message +
/// answer, each further one next + message + answer. Null where the file has no template, or one that changes messages.
ordered_json chat_of(const model::Tokenizer& tokenizer) {
  if (tokenizer.chat_template().empty()) return nullptr;
  const auto piece = [&](model::Token t) {
    return t == model::kNoToken ? std::string() : tokenizer.piece(t);
  };
  const std::string marks[] = {"(question-1)", "(answer-1)", "(question-2)"};
  model::ValueList messages;
  for (int i = 0; i < 3; ++i)
    messages.push_back(model::ValueDict{{"role", i == 1 ? "assistant" : "user"}, {"content", marks[i]}});
  const std::string text = model::ChatTemplate(tokenizer.chat_template())
                               .render(model::Value(model::ValueDict{
                                   {"messages", model::Value(std::move(messages))},
                                   {"add_generation_prompt", model::Value(true)},
                                   {"bos_token", model::Value(piece(tokenizer.special().bos))},
                                   {"eos_token", model::Value(piece(tokenizer.special().eos))}}));
  std::size_t at[3], from = 0;
  for (int i = 0; i < 3; ++i) {
    if (at[i] = text.find(marks[i], from); at[i] == text.npos) return nullptr;
    from = at[i] + marks[i].size();
  }
  const std::size_t behind = at[1] + marks[1].size();
  return {{"first", text.substr(0, at[0])},
          {"next", text.substr(behind, at[2] - behind)},
          {"answer", text.substr(from)}};
}

ordered_json tokenizer_of(const model::Tokenizer& tokenizer, const model::Source& file) {
  const model::PreTokenizer& pre = model::pre_tokenizer(tokenizer.pre_tokenizer());
  if (tokenizer.kind() != "bpe" || pre.escape_spaces)
    throw Unsupported(
        {"a page has byte-level BPE", file.path(),
         text::cat("the model's tokenizer is ", tokenizer.kind(), " ", tokenizer.pre_tokenizer()),
         "choose another model"});
  const auto* words = file.find_array("tokenizer.ggml.tokens", model::GgufType::string);
  const auto* merges = file.find_array("tokenizer.ggml.merges", model::GgufType::string);
  if (!words || !merges)
    throw Unsupported({"a page has the tokenizers of GGUF files", file.path(), {}, "choose a GGUF file"});
  ordered_json special = ordered_json::array(), ends = ordered_json::array();
  const auto& vocabulary = tokenizer.vocabulary();
  for (model::Token t = 0; vocabulary.has(t); ++t) {
    using enum model::TokenType;
    if (const auto type = vocabulary.type(t); type == control || type == user_defined) special.push_back(t);
    if (tokenizer.ends_generation(t)) ends.push_back(t);
  }
  return {{"words", words->strings},
          {"merges", merges->strings},
          {"patterns", pre.patterns},
          {"ignore_merges", pre.ignore_merges},
          {"special", special},
          {"ends", ends},
          {"bos", tokenizer.adds_bos() ? tokenizer.special().bos : model::kNoToken},
          {"chat", chat_of(tokenizer)}};
}

/// What the page's own tokens must be.
ordered_json comparison(const ModelPage& o, std::int64_t context) {
  auto llm = engine::LLM::load(o.model, {.context = context, .activations = engine::ActivationType::f32});
  engine::Request request;
  request.prompt = llm.encode(o.prompt);
  request.max_tokens = o.tokens, request.sampling.temperature = 0;
  const auto prompt = request.prompt;
  const auto done = llm.generate(std::move(request));
  return {{"prompt", o.prompt}, {"prompt_ids", prompt}, {"ids", done.ids}, {"text", done.text}};
}

int memory_at(const Recording& r, std::uint64_t address) {
  for (std::size_t i = 0; i < r.memory.size(); ++i)
    if (r.memory[i].address == address) return int(i);
  throw Error("a recording has all memory of what it recorded");
}

}  // namespace

WrittenModel write_model(const std::string& folder, const ModelPage& o) {
  const std::shared_ptr<const model::Source> file = model::Source::open(o.model);
  engine::Program program = engine::build(*file, {o.context});
  if (o.context == 0 && program.context > kDefaultContext) program = engine::build(*file, {kDefaultContext});
  const std::int64_t context = program.context;
  const auto tokenizer = model::Tokenizer::open(*file);
  ordered_json j = {{"model", std::filesystem::path(o.model).filename().string()},
                    {"architecture", program.architecture},
                    {"context", context},
                    {"vocabulary", program.values[std::size_t(program.logits)].width},
                    {"tokenizer", tokenizer_of(tokenizer, *file)},
                    {"check", comparison(o, context)}};

  runtime::Recorder recorder(runtime::Recorder::Runs::nothing, 256);
  engine::BackendOptions options;
  options.pages = options.max_rows = options.max_sequences = options.max_outputs = 1;
  options.page_tokens = engine::simt_page_tokens(context);
  engine::SimtModel model(std::move(program), file, recorder.device(), options,
                          engine::SimtModel::Weights::left_out);
  const std::int32_t page = 0;
  const engine::BatchSequence one{0, 1, 0, {&page, 1}};
  auto& stream = recorder.device().stream();
  // A first step loads vectors of weights; of the second one only launches are left.
  model.issue(stream, {&one, 1}, 1, true);
  recorder.begin();
  model.prepare(stream);
  const std::size_t prepared = recorder.commands();
  model.issue(stream, {&one, 1}, 0, false);
  const std::size_t read = recorder.commands();
  model.issue(stream, {&one, 1}, 1, true);
  const Recording r = recorder.end();

  for (const char* list : {"prepare", "read", "write"}) j[list] = ordered_json::array();
  for (std::size_t i = 0; i < r.commands.size(); ++i)
    j[i < prepared ? "prepare" : i < read ? "read" : "write"].push_back(json_of(r.commands[i]));
  j["shaders"] = json_of(r.shaders), j["needs"] = needs_of(r.shaders), j["memory"] = json_of(r.memory);
  const auto& c = model.control();
  j["control"] = {{"memory", memory_at(r, c.address)},
                  {"bytes", c.bytes},
                  {"tokens", c.tokens},
                  {"positions", c.positions},
                  {"slots", c.slots},
                  {"lengths", c.lengths},
                  {"outputs", c.outputs}};
  j["logits"] = memory_at(r, model.logits()), j["greedy"] = memory_at(r, model.greedy());

  WrittenModel out;
  ordered_json weights = ordered_json::array();
  std::string waiting;
  std::filesystem::create_directories(folder);
  const auto flush = [&](std::size_t most) {
    while (!waiting.empty() && waiting.size() >= most) {
      const std::size_t n = std::min(waiting.size(), kFileBytes);
      write_file((std::filesystem::path(folder) / text::cat("weights-", out.files++, ".js")).string(),
                 text::cat("cgpWeights(\"", base64(waiting.data(), n), "\");\n"));
      waiting.erase(0, n), out.weight_bytes += n;
    }
  };
  for (const auto& w : model.weights()) {
    const std::size_t bytes = (w.bytes.size() + 3) / 4 * 4;
    weights.push_back({memory_at(r, w.address), bytes});
    for (std::size_t from = 0; from < w.bytes.size(); from += kFileBytes) {
      const auto part = w.bytes.subspan(from, std::min(kFileBytes, w.bytes.size() - from));
      waiting.append(reinterpret_cast<const char*>(part.data()), part.size());
      flush(kFileBytes);
    }
    waiting.append(bytes - w.bytes.size(), '\0');
  }
  flush(0);
  j["weights"] = weights, j["files"] = out.files;
  const std::string text = with_data(kModelPage, j);
  out.page = (std::filesystem::path(folder) / "index.html").string();
  write_file(out.page, text);
  out.bytes = text.size(), out.context = context, out.launches = std::int64_t(r.commands.size() - read);
  out.shaders = std::int64_t(r.shaders.size());
  return out;
}

}  // namespace cgp::web
