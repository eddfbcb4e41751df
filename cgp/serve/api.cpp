// SPDX-License-Identifier: Apache-2.0
#include "cgp/serve/api.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/engine/chat.h"

namespace cgp::serve {
namespace {

using nlohmann::ordered_json;
using std::int64_t;
using text::cat;

constexpr std::size_t kMostStops = 16, kMostPrompts = 256;
constexpr int64_t kMostChoices = 16;

[[noreturn]] void refuse(const std::string& field, const std::string& message,
                         std::string code = "invalid_value") {
  throw ApiError(400, "invalid_request_error", message, field, std::move(code));
}

/// The fields of a body. Each is read once; what is left at the end is refused by name. null is as absent.
class Fields {
 public:
  explicit Fields(std::string_view body) {
    try {
      json_ = ordered_json::parse(body);
    } catch (const ordered_json::exception& e) {
      refuse("", cat("the body is no JSON: ", e.what()), "invalid_json");
    }
    if (!json_.is_object()) refuse("", "the body is a JSON object", "invalid_json");
  }
  /// Null where it is absent.
  const ordered_json* find(const std::string& name) {
    read_.push_back(name);
    const auto at = json_.find(name);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  const ordered_json& at(const std::string& name) {
    if (const ordered_json* value = find(name)) return *value;
    refuse(name, cat("'", name, "' is missing"), "missing_required_parameter");
  }
  bool flag(const std::string& name, bool otherwise = false) {
    const ordered_json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_boolean()) refuse(name, cat("'", name, "' is true or false"));
    return value->get<bool>();
  }
  int64_t integer(const std::string& name, int64_t otherwise, int64_t least, int64_t most) {
    const ordered_json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(most)) ||
        value->get<int64_t>() < least || value->get<int64_t>() > most)
      refuse(name, cat("'", name, "' is an integer of ", least, " to ", most, ", not ", value->dump()));
    return value->get<int64_t>();
  }
  double number(const std::string& name, double otherwise, double least, double most) {
    const ordered_json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_number() || !(value->get<double>() >= least && value->get<double>() <= most))
      refuse(name, cat("'", name, "' is a number of ", least, " to ", most, ", not ", value->dump()));
    return value->get<double>();
  }
  std::string string(const std::string& name, std::string otherwise = {}) {
    const ordered_json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_string()) refuse(name, cat("'", name, "' is a text"));
    return value->get<std::string>();
  }
  /// Takes a field that says nothing here as long as it has the value of its absence.
  void only(const std::string& name, const ordered_json& value) {
    const ordered_json* given = find(name);
    if (given && *given != value)
      refuse(name, cat("'", name, "' is not supported, except for ", value.dump()), "unsupported_parameter");
  }
  void end() const {
    for (const auto& [name, value] : json_.items())
      if (!value.is_null() && std::find(read_.begin(), read_.end(), name) == read_.end())
        refuse(name, cat("'", name, "' is not supported"), "unsupported_parameter");
  }

 private:
  ordered_json json_;
  std::vector<std::string> read_;
};

void check_model(Fields& f, std::string_view model) {
  const std::string wanted = f.string("model", std::string(model));
  if (wanted != model)
    throw ApiError(404, "invalid_request_error",
                   cat("the model '", wanted, "' is not here, but '", model, "'"), "model",
                   "model_not_found");
  f.string("user");  // says who asks, which changes nothing
}

/// What the engine refuses is the client's mistake.
template <class F>
auto checked(const std::string& field, F&& work) {
  try {
    return work();
  } catch (const Error& e) {
    refuse(field, e.what());
  }
}

/// Everything of `r` but prompt and seed.
void read_sampling(Fields& f, engine::LLM& llm, engine::Request& r) {
  model::SamplingOptions& s = r.sampling;
  s.temperature = f.number("temperature", 1, 0, 100);
  s.top_p = f.number("top_p", 1, 0, 1);
  if (s.top_p == 0) s.top_p = 1, s.temperature = 0;  // only the likeliest token is left
  s.top_k = int(f.integer("top_k", 0, -1, 1 << 30));
  s.top_k = std::max(s.top_k, 0);
  s.min_p = f.number("min_p", 0, 0, 1);
  s.typical_p = f.number("typical_p", 1, 1e-6, 1);
  s.repetition_penalty = f.number("repetition_penalty", 1, 1e-3, 1e3);
  s.frequency_penalty = f.number("frequency_penalty", 0, -2, 2);
  r.ignore_end = f.flag("ignore_eos");
  s.presence_penalty = f.number("presence_penalty", 0, -2, 2);
  if (const ordered_json* bias = f.find("logit_bias")) {
    if (!bias->is_object()) refuse("logit_bias", "'logit_bias' is an object of ids and numbers");
    const int64_t words = llm.backend().program().values[std::size_t(llm.backend().program().logits)].width;
    for (const auto& [key, value] : bias->items()) {
      const bool digits =
          !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      if (!digits || std::stol(key) >= words || !value.is_number() || std::abs(value.get<double>()) > 100)
        refuse("logit_bias", cat("'logit_bias' has ids below ", words, " and numbers of -100 to 100, not ",
                                 key, ": ", value.dump()));
      s.logit_bias.emplace_back(std::int32_t(std::stol(key)), value.get<float>());
    }
  }
  if (const ordered_json* stop = f.find("stop")) {
    const ordered_json list = stop->is_string() ? ordered_json::array({*stop}) : *stop;
    if (!list.is_array() || list.size() > kMostStops)
      refuse("stop", cat("'stop' is a text or at most ", kMostStops, " of them"));
    for (const auto& one : list) {
      if (!one.is_string() || one.get<std::string>().empty()) refuse("stop", "a stop text is not empty");
      r.stops.push_back(one.get<std::string>());
    }
  }
}

/// The choices of `prompts`, n of each, alike but for their seeds.
void make_requests(Fields& f, Call& call, engine::LLM& llm, const engine::Request& like,
                   std::vector<std::vector<engine::Token>> prompts,
                   const std::optional<model::Grammar>& grammar, int64_t max_tokens) {
  call.choices_of_a_prompt = int(f.integer("n", 1, 1, kMostChoices));
  const ordered_json* seed = f.find("seed");
  if (seed && !seed->is_number_integer()) refuse("seed", "'seed' is an integer");
  std::random_device random;
  const std::uint64_t first =
      seed ? std::uint64_t(seed->get<int64_t>()) : (std::uint64_t(random()) << 32 | random());
  const int64_t context = llm.backend().program().context;
  for (auto& prompt : prompts) {
    if (prompt.empty()) refuse("prompt", "a prompt has at least one token");
    if (int64_t(prompt.size()) >= context)
      refuse("prompt", cat("the prompt has ", prompt.size(), " tokens, the context ", context),
             "context_length_exceeded");
    for (int i = 0; i < call.choices_of_a_prompt; ++i) {
      engine::Request r = like;
      r.prompt = prompt;
      r.max_tokens = max_tokens > 0 ? max_tokens : context - int64_t(prompt.size());
      r.sampling.seed = first + call.requests.size();
      if (grammar) r.mask = engine::grammar_mask(llm.compile(*grammar));
      call.requests.push_back(std::move(r));
    }
  }
}

void read_stream(Fields& f, Call& call) {
  call.stream = f.flag("stream");
  const ordered_json* options = f.find("stream_options");
  if (!options) return;
  if (!call.stream || !options->is_object())
    refuse("stream_options", "'stream_options' is an object, and there with 'stream': true alone");
  for (const auto& [key, value] : options->items()) {
    if (key != "include_usage")
      refuse(cat("stream_options.", key), cat("'stream_options.", key, "' is not supported"),
             "unsupported_parameter");
    if (!value.is_boolean())
      refuse("stream_options.include_usage", "'stream_options.include_usage' is true or false");
    call.include_usage = value.get<bool>();
  }
}

std::optional<model::Grammar> read_grammar(Fields& f) {
  std::optional<model::Grammar> out;
  if (const std::string gbnf = f.string("grammar"); !gbnf.empty())
    out = checked("grammar", [&] { return model::Grammar::parse_gbnf(gbnf); });
  const ordered_json* format = f.find("response_format");
  if (!format) return out;
  const auto type = format->is_object() ? format->value("type", "") : std::string();
  if (type == "text") return out;
  if (out) refuse("response_format", "'response_format' and 'grammar' do not go together");
  if (type == "json_object") return model::Grammar::json();
  if (type != "json_schema")
    refuse("response_format", "'response_format.type' is text, json_object or json_schema");
  const auto holder = format->find("json_schema");
  if (holder == format->end() || !holder->is_object() || !holder->contains("schema"))
    refuse("response_format", "'response_format.json_schema.schema' is missing",
           "missing_required_parameter");
  return checked("response_format", [&] {
    return model::Grammar::from_json_schema((*holder)["schema"].dump(), "response_format.json_schema.schema");
  });
}

/// The text of a message's `content`: a text, or parts of which all are texts.
std::string content_of(const ordered_json& content, const std::string& where) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse(where, cat("'", where, "' is a text or a list of parts"));
  std::string out;
  for (const auto& part : content) {
    const auto type = part.is_object() ? part.value("type", "") : std::string();
    if (type != "text" || !part.contains("text") || !part["text"].is_string())
      refuse(
          where,
          cat("a part of '", where, "' is {\"type\": \"text\", \"text\": …}; '", type, "' is not supported"),
          "unsupported_content");
    out += part["text"].get<std::string>();
  }
  return out;
}

/// Messages as chat templates want them: texts as texts, arguments of calls as objects.
ordered_json messages_of(const ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) refuse("messages", "'messages' is a list of at least one");
  ordered_json out = ordered_json::array();
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ordered_json& m = messages[i];
    const std::string where = cat("messages[", i, "]");
    if (!m.is_object()) refuse(where, cat("'", where, "' is an object"));
    ordered_json message;
    for (const auto& [key, value] : m.items()) {
      if (value.is_null() && key != "content") continue;
      if (key == "role") {
        const std::string role = value.is_string() ? value.get<std::string>() : "";
        if (role != "system" && role != "developer" && role != "user" && role != "assistant" &&
            role != "tool")
          refuse(cat(where, ".role"),
                 cat("'", where, ".role' is system, developer, user, assistant or tool, not ", value.dump()));
        message["role"] = role == "developer" ? "system" : role;
      } else if (key == "content") {
        message["content"] = content_of(value, cat(where, ".content"));
      } else if (key == "tool_calls") {
        if (!value.is_array()) refuse(cat(where, ".tool_calls"), "'tool_calls' is a list");
        message["tool_calls"] = value;
        for (auto& call : message["tool_calls"]) {
          if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
            refuse(cat(where, ".tool_calls"), "a tool call has a 'function'");
          auto& arguments = call["function"]["arguments"];
          if (!arguments.is_string()) continue;
          auto parsed = ordered_json::parse(arguments.get<std::string>(), nullptr, false);
          if (!parsed.is_discarded()) arguments = std::move(parsed);
        }
      } else if ((key == "name" || key == "tool_call_id") && value.is_string()) {
        message[key] = value;
      } else if (key != "refusal") {
        refuse(cat(where, ".", key), cat("'", where, ".", key, "' is not supported"),
               "unsupported_parameter");
      }
    }
    if (!message.contains("role"))
      refuse(where, cat("'", where, ".role' is missing"), "missing_required_parameter");
    if (!message.contains("content")) message["content"] = "";
    out.push_back(std::move(message));
  }
  return out;
}

struct Tools {
  ordered_json for_template;            ///< null: none
  std::optional<model::Grammar> calls;  ///< of an answer that has to call one of them
};

/// The text of one call, as tool_calls.h reads it: {"name": …, "arguments": …}. `name` empty: of any function.
model::Grammar grammar_of_call(const ordered_json& tools, const std::string& name) {
  ordered_json any = ordered_json::array();
  for (const auto& tool : tools) {
    const auto& function = tool["function"];
    if (!name.empty() && function["name"] != name) continue;
    const ordered_json none = {{"type", "object"}, {"additionalProperties", false}};
    any.push_back({{"type", "object"},
                   {"properties",
                    {{"name", {{"const", function["name"]}}},
                     {"arguments", function.contains("parameters") ? function["parameters"] : none}}},
                   {"required", {"name", "arguments"}},
                   {"additionalProperties", false}});
  }
  const ordered_json schema = any.size() == 1 ? any[0] : ordered_json{{"anyOf", any}};
  return model::Grammar::from_json_schema(schema.dump(), "tools");
}

/// The names of functions that may be called go to `names`.
Tools read_tools(Fields& f, std::vector<std::string>& names) {
  const ordered_json* tools = f.find("tools");
  const ordered_json* choice = f.find("tool_choice");
  f.only("parallel_tool_calls", true);
  std::string wanted;
  const bool named = choice && choice->is_object();
  if (named) {
    const auto function = choice->find("function");
    if (choice->value("type", "") != "function" || function == choice->end() || !function->is_object() ||
        !function->contains("name") || !(*function)["name"].is_string())
      refuse("tool_choice",
             "'tool_choice' names a function as {\"type\": \"function\", \"function\": {\"name\": …}}");
    wanted = (*function)["name"].get<std::string>();
  } else if (choice && *choice != "auto" && *choice != "none" && *choice != "required") {
    refuse("tool_choice", "'tool_choice' is auto, none, required, or a function");
  }
  const bool must = named || (choice && *choice == "required");
  if (!tools || tools->empty()) {
    if (must) refuse("tool_choice", "'tool_choice' wants a call, and there are no 'tools'");
    return {};
  }
  if (!tools->is_array()) refuse("tools", "'tools' is a list");
  for (const auto& tool : *tools) {
    const bool function = tool.is_object() && tool.value("type", "") == "function" &&
                          tool.contains("function") && tool["function"].is_object() &&
                          tool["function"].contains("name") && tool["function"]["name"].is_string();
    if (!function) refuse("tools", "a tool is {\"type\": \"function\", \"function\": {\"name\": …}}");
    names.push_back(tool["function"]["name"].get<std::string>());
  }
  if (choice && *choice == "none") {
    names.clear();
    return {};
  }
  Tools out{*tools, {}};
  if (!must) return out;
  if (named && std::find(names.begin(), names.end(), wanted) == names.end())
    refuse("tool_choice", cat("'tool_choice' names '", wanted, "', which is none of the 'tools'"));
  if (named) names = {wanted};
  out.calls = checked("tools", [&] { return grammar_of_call(*tools, wanted); });
  return out;
}

/// A text, ids, or a list of these.
std::vector<std::vector<engine::Token>> read_prompts(const ordered_json& given, const std::string& field,
                                                     const engine::LLM& llm,
                                                     std::vector<std::string>* texts) {
  const auto is_ids = [](const ordered_json& j) {
    return j.is_array() && !j.empty() &&
           std::all_of(j.begin(), j.end(), [](const ordered_json& t) { return t.is_number_integer(); });
  };
  const ordered_json list = given.is_string() || is_ids(given) ? ordered_json::array({given}) : given;
  if (!list.is_array() || list.empty() || list.size() > kMostPrompts)
    refuse(field, cat("'", field, "' is a text, a list of ids, or 1 to ", kMostPrompts, " of these"));
  const int64_t words = int64_t(llm.tokenizer().vocabulary().size());
  std::vector<std::vector<engine::Token>> out;
  for (const auto& one : list) {
    if (one.is_string()) {
      out.push_back(llm.encode(one.get<std::string>()));
      if (texts) texts->push_back(one.get<std::string>());
    } else if (is_ids(one)) {
      out.emplace_back();
      for (const auto& id : one) {
        if (id.get<int64_t>() < 0 || id.get<int64_t>() >= words)
          refuse(field, cat("ids are below ", words, ", not ", id.dump()));
        out.back().push_back(id.get<engine::Token>());
      }
      if (texts) texts->push_back(llm.tokenizer().decode(out.back()));
    } else {
      refuse(field, cat("'", field, "' has texts and lists of ids, not ", one.type_name()));
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? std::uint8_t(bytes[i + k]) : 0u);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : letters[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

}  // namespace

std::string error_json(const ApiError& e) {
  const auto or_null = [](const std::string& s) { return s.empty() ? ordered_json() : ordered_json(s); };
  return ordered_json{
      {"error",
       {{"message", e.what()}, {"type", e.type}, {"param", or_null(e.param)}, {"code", or_null(e.code)}}}}
      .dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Call parse_chat(std::string_view body, engine::LLM& llm, std::string_view model) {
  Fields f(body);
  check_model(f, model);
  Call call;
  call.endpoint = Endpoint::chat;
  const ordered_json messages = messages_of(f.at("messages"));
  const Tools tools = read_tools(f, call.tools);
  engine::Request like;
  read_sampling(f, llm, like);
  read_stream(f, call);
  call.logprobs = f.flag("logprobs");
  call.top_logprobs = int(f.integer("top_logprobs", 0, 0, 20));
  if (call.top_logprobs > 0 && !call.logprobs)
    refuse("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  like.logprobs = call.logprobs, like.sampling.top_logprobs = call.top_logprobs;
  const int64_t old_limit = f.integer("max_tokens", 0, 1, 1 << 30);
  const int64_t limit = f.integer("max_completion_tokens", old_limit, 1, 1 << 30);
  const auto grammar = read_grammar(f);
  if (grammar && !call.tools.empty())
    refuse("tools", "'tools' and a grammar or 'response_format' do not go together", "unsupported_parameter");
  f.only("store", false);
  f.only("service_tier", "auto");
  auto prompt = checked("messages", [&] {
    return engine::chat_prompt(llm.tokenizer(), model::Value::from_json(messages.dump(), "messages"),
                               model::Value::from_json(tools.for_template.dump(), "tools"));
  });
  make_requests(f, call, llm, like, {std::move(prompt)}, tools.calls ? tools.calls : grammar, limit);
  f.end();
  call.echoes.resize(call.requests.size());
  return call;
}

Call parse_completion(std::string_view body, engine::LLM& llm, std::string_view model) {
  Fields f(body);
  check_model(f, model);
  Call call;
  call.endpoint = Endpoint::completion;
  std::vector<std::string> texts;
  auto prompts = checked("prompt", [&] { return read_prompts(f.at("prompt"), "prompt", llm, &texts); });
  engine::Request like;
  read_sampling(f, llm, like);
  read_stream(f, call);
  const bool echo = f.flag("echo");
  if (const ordered_json* given = f.find("logprobs");
      given && !(given->is_boolean() && !given->get<bool>())) {
    call.top_logprobs = int(f.integer("logprobs", 0, 0, 20));
    call.logprobs = like.logprobs = true;
    like.sampling.top_logprobs = call.top_logprobs;
    if (echo)
      refuse("echo", "'echo' with 'logprobs' is not supported: prompts have no log probabilities here",
             "unsupported_parameter");
  }
  const int64_t limit = f.integer("max_tokens", 16, 1, 1 << 30);
  const auto grammar = read_grammar(f);
  f.only("best_of", 1);
  f.only("suffix", "");
  make_requests(f, call, llm, like, std::move(prompts), grammar, limit);
  f.end();
  for (std::size_t i = 0; i < call.requests.size(); ++i)
    call.echoes.push_back(echo ? texts[i / std::size_t(call.choices_of_a_prompt)] : "");
  return call;
}

EmbeddingCall parse_embedding(std::string_view body, engine::LLM& llm, std::string_view model) {
  Fields f(body);
  check_model(f, model);
  EmbeddingCall call;
  call.inputs = checked("input", [&] { return read_prompts(f.at("input"), "input", llm, nullptr); });
  const int64_t context = llm.backend().program().context;
  for (const auto& input : call.inputs)
    if (input.empty() || int64_t(input.size()) > context)
      refuse("input", cat("an input has 1 to ", context, " tokens, not ", input.size()),
             input.empty() ? "invalid_value" : "context_length_exceeded");
  const std::string format = f.string("encoding_format", "float");
  if (format != "float" && format != "base64")
    refuse("encoding_format", "'encoding_format' is float or base64");
  call.base64 = format == "base64";
  f.end();
  return call;
}

std::string embedding_json(const EmbeddingCall& call, const std::vector<std::vector<float>>& vectors,
                           std::string_view model) {
  ordered_json data = ordered_json::array();
  std::size_t tokens = 0;
  for (std::size_t i = 0; i < vectors.size(); ++i) {
    const auto& v = vectors[i];
    tokens += call.inputs[i].size();
    ordered_json one = {{"object", "embedding"}, {"index", i}, {"embedding", v}};
    if (call.base64)
      one["embedding"] = base64({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(float)});
    data.push_back(std::move(one));
  }
  return ordered_json{{"object", "list"},
                      {"data", data},
                      {"model", model},
                      {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}}
      .dump();
}

std::string models_json(std::string_view model, engine::LLM& llm, std::int64_t created) {
  return ordered_json{{"object", "list"},
                      {"data",
                       {{{"id", model},
                         {"object", "model"},
                         {"created", created},
                         {"owned_by", "cgp"},
                         {"context_length", llm.backend().program().context}}}}}
      .dump();
}

}  // namespace cgp::serve
