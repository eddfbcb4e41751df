// SPDX-License-Identifier: Apache-2.0
// OpenAI's interface over a tiny model: bodies as data, and a server with clients on sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "cgp/base/error.h"
#include "cgp/base/file.h"
#include "cgp/base/text.h"
#include "cgp/engine/models/tiny_model_test_kit.h"
#include "cgp/serve/api.h"
#include "cgp/serve/server.h"
#include "cgp/serve/tool_calls.h"

namespace cgp::serve {
namespace {

using nlohmann::json;

engine::LLM tiny(engine::LoadOptions o = {}, bool tools = false) {
  const std::string path =
      testing::TempDir() + "cgp_serve_" + std::to_string(getpid()) + (tools ? "_tools.gguf" : ".gguf");
  write_file(path,
             engine::tiny_model({.tokenizer = true, .chat_template = !tools, .tool_template = tools}).bytes);
  o.threads = 1;
  return engine::LLM::load(path, o);
}

/// Why a body is refused: "field: message".
std::string refusal(engine::LLM& llm, Endpoint endpoint, const std::string& body) {
  try {
    (void)(endpoint == Endpoint::chat ? parse_chat(body, llm, "tiny") : parse_completion(body, llm, "tiny"));
  } catch (const ApiError& e) {
    return e.param + ": " + e.what();
  }
  return "accepted";
}

TEST(serve_api, FieldsAreReadOrRefusedByName) {
  engine::LLM llm = tiny();
  const Call call =
      parse_chat(R"({"model": "tiny", "messages": [{"role": "developer", "content": "Be short."},
      {"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "temperature": 0, "max_tokens": 7, "n": 2, "seed": 5,
      "stop": ["a", "b"], "logit_bias": {"3": -100}, "user": "me", "top_p": null})",
                 llm, "tiny");
  ASSERT_EQ(call.requests.size(), 2u);
  const engine::Request& r = call.requests[1];
  EXPECT_EQ(r.max_tokens, 7);
  EXPECT_EQ(r.sampling.seed, 6u);
  EXPECT_EQ(r.sampling.top_k, 0);
  EXPECT_EQ(r.sampling.top_p, 1);
  EXPECT_EQ(r.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(llm.tokenizer().decode(r.prompt), "system: Be short.\nuser: Hi\nassistant:");

  const std::string user = R"("messages": [{"role": "user", "content": "Hi"}])";
  const struct {
    std::string body, want;
  } bad[] = {
      {"{", ": the body is no JSON"},
      {"[]", ": the body is a JSON object"},
      {"{}", "messages: 'messages' is missing"},
      {R"({"messages": []})", "messages: "},
      {R"({"messages": [{"role": "king", "content": "x"}]})", "messages[0].role: "},
      {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})", "messages[0].content: "},
      {R"({"messages": [{"role": "user", "content": "x", "audio": {}}]})", "messages[0].audio: "},
      {"{" + user + R"(, "model": "other"})", "model: "},
      {"{" + user + R"(, "temperature": -1})", "temperature: "},
      {"{" + user + R"(, "temperature": "hot"})", "temperature: "},
      {"{" + user + R"(, "max_tokens": 0})", "max_tokens: "},
      {"{" + user + R"(, "n": 1e3})", "n: "},
      {"{" + user + R"(, "n": 99999999999999999999})", "n: "},
      {"{" + user + R"(, "colour": 1})", "colour: 'colour' is not supported"},
      {"{" + user + R"(, "stop": [""]})", "stop: "},
      {"{" + user + R"(, "logit_bias": {"97": 1}})", "logit_bias: "},
      {"{" + user + R"(, "top_logprobs": 2})", "top_logprobs: "},
      {"{" + user + R"(, "stream_options": {}})", "stream_options: "},
      {"{" + user + R"(, "store": true})", "store: "},
      {"{" + user + R"(, "tool_choice": "required"})", "tool_choice: "},
      {"{" + user + R"(, "tool_choice": "perhaps"})", "tool_choice: 'tool_choice' is auto"},
      {"{" + user + R"(, "tool_choice": {"type": "function"}})", "tool_choice: 'tool_choice' names"},
      {"{" + user +
           R"(, "tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function", "function": {"name": "g"}}})",
       "tool_choice: 'tool_choice' names 'g', which is none of the 'tools'"},
      {"{" + user +
           R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {"not": {}}}}], "tool_choice": "required"})",
       "tools: "},
      {"{" + user + R"(, "tools": [{"type": "function", "function": {"name": "f"}}]})",
       "messages: tokenizer.chat_template: "},
      {"{" + user + R"(, "response_format": {"type": "xml"}})", "response_format: "},
      {"{" + user +
           R"(, "response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})",
       "response_format: "},
      {"{" + user + R"(, "grammar": "root := \"a\""})", "grammar: "},
      {R"({"messages": [{"role": "user", "content": ")" + std::string(400, 'a') + R"("}]})", "prompt: "},
  };
  for (const auto& b : bad) {
    const std::string why = refusal(llm, Endpoint::chat, b.body);
    EXPECT_EQ(why.substr(0, b.want.size()), b.want) << b.body << "\n" << why;
  }
  EXPECT_EQ(
      refusal(llm, Endpoint::completion, R"({"prompt": "a", "echo": true, "logprobs": 1})").substr(0, 5),
      "echo:");
  EXPECT_EQ(refusal(llm, Endpoint::completion, R"({"prompt": [1, 97]})"), "prompt: ids are below 97, not 97");
  EXPECT_EQ(refusal(llm, Endpoint::completion, R"({"prompt": "a", "best_of": 2})").substr(0, 8), "best_of:");
  EXPECT_EQ(parse_completion(R"({"prompt": ["a", "b"], "n": 2})", llm, "tiny").requests.size(), 4u);
  EXPECT_EQ(parse_completion(R"({"prompt": [[1, 2], [3]]})", llm, "tiny").requests[0].prompt.size(), 2u);
}

/// What a text is split into when it comes in pieces of `size` bytes.
std::pair<std::string, std::vector<ToolCall>> split(const std::string& text, std::size_t size,
                                                    const std::vector<std::string>& tools) {
  ToolCallReader reader(tools);
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) out += reader.push(text.substr(at, size));
  ToolCallReader::Rest rest = reader.finish();
  return {out + rest.text, std::move(rest.calls)};
}

TEST(serve_api, CallsOfToolsAreFoundHoweverTheTextComes) {
  const std::vector<std::string> tools{"add", "now"};
  for (const std::size_t size : {1, 3, 1000}) {
    auto [text, calls] = split(
        "Well.\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
        "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>",
        size, tools);
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0].arguments, R"({"a":1})");
    EXPECT_EQ(calls[1].name, "now");
    EXPECT_EQ(text, "Well.\n");
    for (const char* one :
         {R"([TOOL_CALLS][{"name": "add", "arguments": {"a": "}"}}])",
          R"([{"name": "add", "arguments": {"a": "}"}}])",
          R"(<|python_tag|>{"name": "add", "parameters": {"a": "}"}})",
          R"({"name": "add", "parameters": {"a": "}"}})", R"(<function=add>{"a":"}"}</function>)"}) {
      const auto got = split(one, size, tools);
      ASSERT_EQ(got.second.size(), 1u) << one;
      EXPECT_EQ(got.second[0].arguments, R"({"a":"}"})");
      EXPECT_EQ(got.first, "");
    }
    for (const char* plain : {"", "Hello", "a < b", "{\"name\": \"other\", \"arguments\": {}}",
                              "{\"name\": \"add\"", "{} and more", "see <tool_call>{\"name\": 3}</tool_call>",
                              "[TOOL_CALLS] nothing", "<function=add>", "<tool_cal"}) {
      const auto got = split(plain, size, tools);
      EXPECT_TRUE(got.second.empty()) << plain;
      EXPECT_EQ(got.first, plain);
    }
    EXPECT_TRUE(split(R"({"name": "add", "arguments": {}})", size, {}).second.empty());
  }
}

TEST(serve_api, AnAnswerThatHasToCallAFunctionCallsOne) {
  engine::LLM llm = tiny({}, true);
  for (const auto& [choice, name] : {std::pair{R"("required")", ""},
                                     {R"({"type": "function", "function": {"name": "now"}})", "now"},
                                     {R"({"type": "function", "function": {"name": "add"}})", "add"}})
    for (int seed = 0; seed < 4; ++seed) {
      Call call = parse_chat(text::cat(R"({"messages": [{"role": "user", "content": "Hi"}], "seed": )", seed,
                                       R"(, "tools": [{"type": "function", "function": {"name": "now"}},
                    {"type": "function", "function": {"name": "add", "parameters": {"type": "object",
                    "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}}}],
                    "tool_choice": )",
                                       choice, "}"),
                             llm, "tiny");
      engine::Request& r = call.requests.at(0);
      for (engine::Token space : llm.encode(" \n\t")) r.sampling.logit_bias.emplace_back(space, -100.0f);
      ToolCallReader reader(call.tools);
      const std::string text = llm.generate(std::move(r)).text;
      EXPECT_EQ(reader.push(text), "") << text;
      const auto rest = reader.finish();
      ASSERT_EQ(rest.calls.size(), 1u) << text;
      const ToolCall& made = rest.calls[0];
      if (*name) {
        EXPECT_EQ(made.name, name);
      }
      const json arguments = json::parse(made.arguments);
      if (made.name == "now")
        EXPECT_EQ(arguments, json::object());
      else
        EXPECT_TRUE(arguments["a"] == 1 || arguments["a"] == 2) << text;
    }
}

/// A server on a thread of its own, which SIGTERM ends.
class Running {
 public:
  explicit Running(ServeOptions o = {}, engine::LoadOptions l = {.sequences = 4}) : llm_(tiny(l)) {
    o.port = 0, o.model = "tiny";
    std::promise<int> port;
    auto ready = port.get_future();
    thread_ = std::thread([this, o, &port] { serve(llm_, o, [&port](int p) { port.set_value(p); }); });
    port_ = ready.get();
  }
  ~Running() {
    if (!thread_.joinable()) return;
    stop();
    thread_.join();
  }
  void stop() const { kill(getpid(), SIGTERM); }
  int port() const { return port_; }
  int connect() const {
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(std::uint16_t(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return s;
  }
  static void send(int s, const std::string& method, const std::string& path, const std::string& body,
                   const std::string& headers = {}) {
    const std::string all = text::cat(
        method, " ", path, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ", body.size(),
        "\r\n", headers, "\r\n", body);
    EXPECT_EQ(::send(s, all.data(), all.size(), MSG_NOSIGNAL), ssize_t(all.size()));
  }
  struct Reply {
    int status = 0;
    std::string body;
    json parsed() const { return json::parse(body); }
  };
  static Reply receive(int s) {
    std::string all;
    char bytes[4096];
    for (ssize_t n; (n = recv(s, bytes, sizeof bytes, 0)) > 0;) all.append(bytes, std::size_t(n));
    close(s);
    Reply r;
    if (all.size() > 12) r.status = std::stoi(all.substr(9, 3));
    const auto end = all.find("\r\n\r\n");
    if (end == all.npos) return r;
    std::string rest = all.substr(end + 4);
    if (all.substr(0, end).find("chunked") == all.npos) return {r.status, rest};
    for (std::size_t at = 0; at < rest.size();) {
      const std::size_t size = std::stoul(rest.substr(at), nullptr, 16), from = rest.find("\r\n", at) + 2;
      r.body += rest.substr(from, size), at = from + size + 2;
    }
    return r;
  }
  Reply ask(const std::string& method, const std::string& path, const std::string& body = {},
            const std::string& headers = {}) const {
    const int s = connect();
    send(s, method, path, body, headers);
    return receive(s);
  }

 private:
  engine::LLM llm_;
  int port_ = 0;
  std::thread thread_;
};

std::vector<json> events_of(const std::string& body) {
  std::vector<json> out;
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n")) << body;
  for (std::size_t at = 0, end; (end = body.find("\n\n", at)) != body.npos; at = end + 2) {
    const std::string data = body.substr(at + 6, end - at - 6);
    if (data != "[DONE]") out.push_back(json::parse(data));
  }
  return out;
}

const std::string kAsk =
    R"({"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 20, "ignore_eos": true)";
constexpr const char* kChat = "/v1/chat/completions";

TEST(serve_server, AnswersWholeAndInEvents) {
  const Running run;
  const auto whole = run.ask("POST", kChat, kAsk + "}");
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json j = whole.parsed();
  EXPECT_EQ(j["object"], "chat.completion");
  EXPECT_EQ(j["model"], "tiny");
  EXPECT_EQ(j["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(j["usage"]["completion_tokens"], 20);
  const std::string text = j["choices"][0]["message"]["content"];
  EXPECT_FALSE(text.empty());

  const auto stream =
      run.ask("POST", kChat,
              kAsk + R"(, "stream": true, "logprobs": true, "stream_options": {"include_usage": true}})");
  std::string joined;
  std::size_t tokens = 0;
  const auto events = events_of(stream.body);
  ASSERT_GT(events.size(), 3u);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  for (const json& e : events)
    if (!e["choices"].empty() && e["choices"][0]["delta"].contains("content")) {
      joined += e["choices"][0]["delta"]["content"];
      if (!e["choices"][0]["logprobs"].is_null()) tokens += e["choices"][0]["logprobs"]["content"].size();
    }
  EXPECT_EQ(joined, text);
  EXPECT_EQ(tokens, 20u);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 20);

  const json completion =
      run.ask(
             "POST", "/v1/completions",
             R"({"prompt": ["Hello", "World"], "max_tokens": 3, "temperature": 0, "logprobs": 2, "ignore_eos": true})")
          .parsed();
  ASSERT_EQ(completion["choices"].size(), 2u);
  EXPECT_EQ(completion["choices"][1]["logprobs"]["token_logprobs"].size(), 3u);
  EXPECT_EQ(completion["usage"]["completion_tokens"], 6);
  const json echo =
      run.ask("POST", "/v1/completions", R"({"prompt": "Hello", "max_tokens": 3, "echo": true, "n": 2})")
          .parsed();
  EXPECT_EQ(echo["choices"][1]["text"].get<std::string>().substr(0, 5), "Hello");
  const json logprobs = run.ask("POST", kChat, kAsk + R"(, "logprobs": true, "top_logprobs": 2})").parsed();
  EXPECT_EQ(logprobs["choices"][0]["logprobs"]["content"].size(), 20u);
  EXPECT_EQ(logprobs["choices"][0]["logprobs"]["content"][0]["top_logprobs"].size(), 2u);

  const json object = run.ask("POST", kChat, R"({"messages": [{"role": "user", "content": "x"}], "seed": 1,
      "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "properties":
      {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false}}}})")
                          .parsed();
  const json answer = json::parse(object["choices"][0]["message"]["content"].get<std::string>());
  EXPECT_TRUE(answer["a"] == 1 || answer["a"] == 2);
}

TEST(serve_server, SaysWhatIsWrongAndWhatItDoes) {
  const Running run({.api_key = "secret", .max_body = 2000});
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(run.ask("GET", "/v1/models").status, 401);
  EXPECT_EQ(run.ask("GET", "/v1/models", "", "Authorization: Bearer secre\r\n").status, 401);
  EXPECT_EQ(run.ask("GET", "/v1/models", "", key).parsed()["data"][0]["id"], "tiny");
  EXPECT_EQ(run.ask("GET", kChat, "", key).status, 405);
  EXPECT_EQ(run.ask("GET", "/nothing", "", key).status, 404);
  EXPECT_EQ(run.ask("POST", "/v1/embeddings", "{}", key).status, 501);
  EXPECT_EQ(run.ask("POST", kChat, std::string(3000, ' '), key).status, 413);
  const auto bad = run.ask("POST", kChat, R"({"messages": 3})", key);
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.parsed()["error"]["param"], "messages");
  EXPECT_EQ(run.ask("GET", "/health").parsed()["status"], "ok");
  EXPECT_NE(run.ask("GET", "/").body.find("<!DOCTYPE html>"), std::string::npos);
  EXPECT_EQ(run.ask("POST", kChat, kAsk + "}", key).status, 200);
  const std::string metrics = run.ask("GET", "/metrics", "", key).body;
  for (const char* line :
       {"cgp_generated_tokens_total 20\n", "cgp_http_answers_total{status=\"401\"} 2\n",
        "cgp_time_to_first_token_seconds_count 1\n", "cgp_time_between_tokens_seconds_count 19\n"})
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
}

TEST(serve_server, EveryClientGetsWhatOneGets) {
  const Running run;
  const std::string want = run.ask("POST", kChat, kAsk + "}").parsed()["choices"][0]["message"]["content"];
  std::vector<int> sockets;
  for (int i = 0; i < 24; ++i) {
    sockets.push_back(run.connect());
    Running::send(sockets.back(), "POST", kChat, kAsk + (i % 2 ? R"(, "stream": true})" : "}"));
  }
  for (int i = 0; i < 24; ++i) {
    const auto reply = Running::receive(sockets[std::size_t(i)]);
    ASSERT_EQ(reply.status, 200);
    std::string got;
    if (i % 2)
      for (const json& e : events_of(reply.body)) got += e["choices"][0]["delta"].value("content", "");
    else
      got = reply.parsed()["choices"][0]["message"]["content"];
    EXPECT_EQ(got, want);
  }
}

TEST(serve_server, AFullQueueSaysSoAndAClientThatGoesAwayFreesItsPlace) {
  const Running run({.max_active = 2}, {.sequences = 1});
  const std::string endless = R"({"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": true)";
  std::vector<int> sockets;
  for (int i = 0; i < 12; ++i) {
    sockets.push_back(run.connect());
    // One that streams, and those that wait for a whole answer.
    Running::send(sockets.back(), "POST", kChat, endless + (i == 0 ? R"(, "stream": true})" : "}"));
  }
  int refused = 0;
  for (int i = 2; i < 12; ++i) refused += Running::receive(sockets[std::size_t(i)]).status == 429;
  EXPECT_GT(refused, 0);
  close(sockets[0]), close(sockets[1]);
  int status = 429;
  for (int i = 0; i < 200 && status == 429; ++i, usleep(10000))
    status = run.ask("POST", kChat, kAsk + "}").status;
  EXPECT_EQ(status, 200);
}

TEST(serve_server, SigtermLetsAnswersEndOrSaysWhyNot) {
  for (const bool patient : {true, false}) {
    const Running run({.drain_seconds = patient ? 60.0 : 0.0});
    const int s = run.connect();
    Running::send(
        s, "POST", kChat,
        patient
            ? kAsk + R"(, "stream": true})"
            : R"({"messages": [{"role": "user", "content": "Hello"}], "ignore_eos": true, "n": 16, "stream": true})");
    char byte;
    ASSERT_EQ(recv(s, &byte, 1, MSG_PEEK), 1);  // it runs
    run.stop();
    const auto last = events_of(Running::receive(s).body).back();
    if (patient) {
      EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
    } else if (last.contains("error")) {  // it may have been done before it was told
      EXPECT_EQ(last["error"]["code"], "shutting_down");
    }
  }
}

TEST(serve_server, EmbeddingsHaveLengthOneAndDependOnTheText) {
  const Running run({}, {.embeddings = true});
  const json j = run.ask("POST", "/v1/embeddings", R"({"input": ["Hello", "World", "Hello"]})").parsed();
  ASSERT_EQ(j["data"].size(), 3u) << j;
  const auto a = j["data"][0]["embedding"].get<std::vector<double>>(),
             b = j["data"][1]["embedding"].get<std::vector<double>>();
  EXPECT_EQ(j["data"][2]["embedding"], j["data"][0]["embedding"]);
  double length = 0, inner = 0;
  for (std::size_t i = 0; i < a.size(); ++i) length += a[i] * a[i], inner += a[i] * b[i];
  EXPECT_NEAR(length, 1, 1e-5);
  EXPECT_LT(inner, 0.999);
  EXPECT_GT(j["usage"]["prompt_tokens"], 2);
  EXPECT_TRUE(run.ask("POST", "/v1/embeddings", R"({"input": "Hello", "encoding_format": "base64"})")
                  .parsed()["data"][0]["embedding"]
                  .is_string());
  EXPECT_EQ(run.ask("POST", kChat, kAsk + "}").status, 501);
}

TEST(serve_server, AnAddressThatIsTakenIsNamed) {
  const Running run;
  engine::LLM llm = tiny();
  try {
    serve(llm, {.port = run.port(), .model = "tiny"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("127.0.0.1:" + std::to_string(run.port())), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace cgp::serve
