// SPDX-License-Identifier: Apache-2.0
#include "cgp/serve/server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/text.h"
#include "cgp/serve/api.h"
#include "cgp/serve/metrics.h"
#include "cgp/serve/page.h"
#include "cgp/serve/reply.h"
#include "cgp/serve/worker.h"

namespace cgp::serve {
namespace {

using text::cat;
using Clock = std::chrono::steady_clock;

template <auto free>
struct Free {
  void operator()(auto* p) const { free(p); }
};
template <class T, auto free>
using Owned = std::unique_ptr<T, Free<free>>;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
timeval time_of(double seconds) {
  return {time_t(seconds), suseconds_t((seconds - double(time_t(seconds))) * 1e6)};
}
const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 429:
      return "Too Many Requests";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Internal Server Error";
  }
}
/// Takes the same time wherever they differ.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned differs = a.size() != b.size();
  for (std::size_t i = 0; i < a.size(); ++i)
    differs |= unsigned(a[i] ^ b[i % std::max<std::size_t>(b.size(), 1)]);
  return differs == 0;
}

class Server {
 public:
  Server(engine::LLM& llm, const ServeOptions& options);
  ~Server();
  int port() const { return port_; }
  void run();

 private:
  /// A call that is at work.
  struct Job {
    Server* server;
    std::uint64_t id;
    evhttp_request* request;
    std::unique_ptr<Reply> reply;  ///< of embeddings none
    std::size_t choices = 1;
    bool stream = false, begun = false;  ///< begun: of a stream, headers are sent
    Clock::time_point start = Clock::now();
    std::vector<std::optional<Clock::time_point>> last_token = {};
  };

  void handle(evhttp_request* r);
  void route(evhttp_request* r, std::string_view path);
  void begin(evhttp_request* r, std::string_view path, std::string_view body);
  Job& add_job(evhttp_request* r, std::size_t choices);
  void take_updates();
  void count(Job& job, const Update& update);
  void finish(Job& job, const std::string& last);
  void fail(Job& job, const ApiError& error);
  void drop(Job& job);
  void send(evhttp_request* r, int status, const char* type, std::string_view text);
  void send(evhttp_request* r, const ApiError& e);
  void shut_down();
  void stop_when_done();
  void check_times();

  engine::LLM& llm_;
  ServeOptions options_;
  std::string run_;  ///< a number of this start, for ids
  std::int64_t created_ = std::int64_t(std::time(nullptr));
  Metrics metrics_;
  std::map<std::uint64_t, Job> jobs_;
  std::uint64_t next_ = 1;
  std::size_t active_ = 0;
  std::optional<Clock::time_point> stopping_;
  int port_ = 0, wake_ = -1;
  Owned<event_base, event_base_free> base_;
  Owned<evhttp, evhttp_free> http_;
  evhttp_bound_socket* listening_ = nullptr;
  std::vector<Owned<event, event_free>> events_;
  std::unique_ptr<Worker> worker_;
};

Server::Server(engine::LLM& llm, const ServeOptions& options) : llm_(llm), options_(options) {
  std::random_device random;
  char number[9];
  std::snprintf(number, sizeof number, "%08x", unsigned(random()));
  run_ = number;
  // A client that goes away is an error of its connection, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  base_.reset(event_base_new());
  http_.reset(base_ ? evhttp_new(base_.get()) : nullptr);
  if (wake_ < 0 || !http_)
    throw Error(ErrorText{"an event loop can be made", "cgp serve", std::strerror(errno), {}});
  const timeval idle = time_of(options_.idle_seconds);
  evhttp_set_timeout_tv(http_.get(), &idle);
  evhttp_set_max_body_size(http_.get(), options_.max_body);
  evhttp_set_max_headers_size(http_.get(), 32 << 10);
  evhttp_set_allowed_methods(http_.get(), EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD |
                                              EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                              EVHTTP_REQ_PATCH);
  // What a client sends ahead while its answer is made waits in the kernel.
  evhttp_set_bevcb(
      http_.get(),
      [](event_base* base, void*) {
        bufferevent* b = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
        if (b) bufferevent_setwatermark(b, EV_READ, 0, 64 << 10);
        return b;
      },
      nullptr);
  evhttp_set_gencb(
      http_.get(), [](evhttp_request* r, void* self) { static_cast<Server*>(self)->handle(r); }, this);
  listening_ =
      evhttp_bind_socket_with_handle(http_.get(), options_.host.c_str(), std::uint16_t(options_.port));
  if (!listening_)
    throw Error(ErrorText{"the address can be listened on", cat(options_.host, ":", options_.port),
                          std::strerror(errno), "choose another --port or --host"});
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(evhttp_bound_socket_get_fd(listening_), reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
  const auto listen_to = [&](int fd, short what, event_callback_fn call, const timeval* every = nullptr) {
    events_.emplace_back(event_new(base_.get(), fd, what, call, this));
    event_add(events_.back().get(), every);
  };
  listen_to(wake_, EV_READ | EV_PERSIST, [](int fd, short, void* self) {
    std::uint64_t count;
    if (read(fd, &count, sizeof count) > 0) static_cast<Server*>(self)->take_updates();
  });
  for (const int signal : {SIGTERM, SIGINT})
    listen_to(signal, EV_SIGNAL | EV_PERSIST,
              [](int, short, void* self) { static_cast<Server*>(self)->shut_down(); });
  const timeval often = time_of(0.25);
  listen_to(
      -1, EV_PERSIST, [](int, short, void* self) { static_cast<Server*>(self)->check_times(); }, &often);
  worker_ = std::make_unique<Worker>(llm_, [this] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_, &one, sizeof one);
  });
}

Server::~Server() {
  worker_.reset();
  events_.clear();
  http_.reset();
  base_.reset();
  if (wake_ >= 0) close(wake_);
}

void Server::run() { event_base_dispatch(base_.get()); }

void Server::send(evhttp_request* r, int status, const char* type, std::string_view text) {
  ++metrics_.answers[status];
  evkeyvalq* headers = evhttp_request_get_output_headers(r);
  evhttp_add_header(headers, "Content-Type", type);
  evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
  if (status == 429 || status == 503) evhttp_add_header(headers, "Retry-After", "1");
  if (stopping_) evhttp_add_header(headers, "Connection", "close");
  Owned<evbuffer, evbuffer_free> buffer(evbuffer_new());
  evbuffer_add(buffer.get(), text.data(), text.size());
  evhttp_send_reply(r, status, reason_of(status), buffer.get());
}

void Server::send(evhttp_request* r, const ApiError& e) {
  send(r, e.status, "application/json", error_json(e));
}

void Server::handle(evhttp_request* r) {
  const char* uri = evhttp_request_get_uri(r);
  if (!uri) {  // what libevent could not read
    const bool too_long = evhttp_request_get_response_code(r) == HTTP_ENTITYTOOLARGE;
    return send(
        r, too_long ? ApiError(413, "invalid_request_error",
                               cat("a body has at most ", options_.max_body, " bytes"), "", "body_too_large")
                    : ApiError(400, "invalid_request_error", "this is no HTTP request"));
  }
  if (evhttp_connection* c = evhttp_request_get_connection(r)) {
    const int fd = bufferevent_getfd(evhttp_connection_get_bufferevent(c)), on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  std::string_view path(uri);
  path = path.substr(0, path.find('?'));
  try {
    route(r, path);
  } catch (const ApiError& e) {
    send(r, e);
  } catch (const std::exception& e) {
    send(r, ApiError(500, "server_error", e.what()));
  }
}

void Server::route(evhttp_request* r, std::string_view path) {
  const auto method = evhttp_request_get_command(r);
  const bool get = method == EVHTTP_REQ_GET || method == EVHTTP_REQ_HEAD, post = method == EVHTTP_REQ_POST;
  const auto needs = [&](bool holds, const char* wanted) {
    if (!holds)
      throw ApiError(405, "invalid_request_error", cat(path, " takes ", wanted), "", "method_not_allowed");
  };
  if (path == "/") {
    needs(get, "GET");
    return send(r, 200, "text/html; charset=utf-8", kPage);
  }
  if (path == "/health") {
    needs(get, "GET");
    return send(r, stopping_ ? 503 : 200, "application/json",
                stopping_ ? R"({"status":"shutting down"})" : R"({"status":"ok"})");
  }
  if (!options_.api_key.empty()) {
    const char* given = evhttp_find_header(evhttp_request_get_input_headers(r), "Authorization");
    const std::string_view key = given ? given : "";
    if (!key.starts_with("Bearer ") || !same_secret(key.substr(7), options_.api_key))
      throw ApiError(401, "invalid_request_error",
                     given ? "the API key is wrong" : "this server wants 'Authorization: Bearer KEY'", "",
                     "invalid_api_key");
  }
  if (path == "/metrics") {
    needs(get, "GET");
    return send(r, 200, "text/plain; version=0.0.4", metrics_.text(worker_->state()));
  }
  const std::string_view call = path.starts_with("/v1/") ? path.substr(3) : path;
  if (call == "/models" || call == cat("/models/", options_.model)) {
    needs(get, "GET");
    return send(r, 200, "application/json", models_json(options_.model, llm_, created_));
  }
  if (call != "/chat/completions" && call != "/completions" && call != "/embeddings")
    throw ApiError(404, "invalid_request_error", cat("there is no ", path), "", "not_found");
  needs(post, "POST");
  if (stopping_) throw ApiError(503, "server_error", "the server is shutting down", "", "shutting_down");
  evbuffer* input = evhttp_request_get_input_buffer(r);
  std::string body(evbuffer_get_length(input), '\0');
  evbuffer_remove(input, body.data(), body.size());
  begin(r, call, body);
}

void Server::begin(evhttp_request* r, std::string_view path, std::string_view body) {
  const auto admit = [&](std::size_t choices) {
    if (std::int64_t(active_ + choices) > options_.max_active)
      throw ApiError(429, "rate_limit_error",
                     cat(active_, " sequences run or wait, at most ", options_.max_active, " may"), "",
                     "queue_full");
  };
  admit(1);
  if (path == "/embeddings") {
    if (!llm_.embeds())
      throw ApiError(501, "invalid_request_error", "this server generates; start one with --embeddings", "",
                     "unsupported_endpoint");
    EmbeddingCall call = parse_embedding(body, llm_, options_.model);
    worker_->compute(add_job(r, 1).id, [this, call = std::move(call)] {
      std::vector<std::vector<float>> vectors;
      for (const auto& input : call.inputs) vectors.push_back(llm_.embed(input));
      return embedding_json(call, vectors, options_.model);
    });
    return;
  }
  if (llm_.embeds())
    throw ApiError(501, "invalid_request_error", "this server gives embeddings alone", "",
                   "unsupported_endpoint");
  Call call = path == "/completions" ? parse_completion(body, llm_, options_.model)
                                     : parse_chat(body, llm_, options_.model);
  admit(call.requests.size());
  Job& job = add_job(r, call.requests.size());
  job.stream = call.stream;
  job.last_token.resize(job.choices);
  job.reply = std::make_unique<Reply>(call, cat(run_, job.id), std::int64_t(std::time(nullptr)),
                                      options_.model, llm_.tokenizer());
  worker_->submit(job.id, std::move(call.requests));
}

/// From here on the answer comes later; a client that goes away ends the job.
Server::Job& Server::add_job(evhttp_request* r, std::size_t choices) {
  const std::uint64_t id = next_++;
  Job& job = jobs_[id];
  job.server = this, job.id = id, job.request = r, job.choices = choices;
  active_ += choices;
  evhttp_connection* connection = evhttp_request_get_connection(r);
  bufferevent* b = evhttp_connection_get_bufferevent(connection);
  evhttp_connection_set_closecb(
      connection,
      [](evhttp_connection*, void* arg) {
        Job& gone = *static_cast<Job*>(arg);
        ++gone.server->metrics_.clients_gone;
        gone.server->worker_->cancel(gone.id);
        // libevent has let go of a request whose answer had begun.
        if (!evhttp_request_get_connection(gone.request)) evhttp_request_free(gone.request);
        gone.server->drop(gone);
      },
      &job);
  // Nothing is read while the answer is made, but that the client has gone.
  const timeval idle = time_of(options_.idle_seconds);
  bufferevent_set_timeouts(b, nullptr, &idle);
  bufferevent_setcb(
      b, nullptr, nullptr,
      [](bufferevent*, short what, void* c) {
        if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
          evhttp_connection_free(static_cast<evhttp_connection*>(c));
      },
      connection);
  bufferevent_enable(b, EV_READ);
  return job;
}

/// Forgets the job.
void Server::drop(Job& job) {
  active_ -= job.choices;
  jobs_.erase(job.id);
  stop_when_done();
}

/// The end of a stream, or the answer.
void Server::finish(Job& job, const std::string& last) {
  evhttp_connection* connection = evhttp_request_get_connection(job.request);
  evhttp_connection_set_closecb(connection, nullptr, nullptr);
  const timeval idle = time_of(options_.idle_seconds);
  bufferevent_set_timeouts(evhttp_connection_get_bufferevent(connection), &idle, &idle);
  evhttp_request* r = job.request;
  if (job.stream) {
    Owned<evbuffer, evbuffer_free> buffer(evbuffer_new());
    evbuffer_add(buffer.get(), last.data(), last.size());
    evhttp_send_reply_chunk(r, buffer.get());
    evhttp_send_reply_end(r);
  } else {
    send(r, 200, "application/json", last);
  }
  drop(job);
}

void Server::fail(Job& job, const ApiError& error) {
  worker_->cancel(job.id);
  if (job.stream && evhttp_request_get_response_code(job.request) == 200)
    return finish(job, error_event(error));
  evhttp_connection_set_closecb(evhttp_request_get_connection(job.request), nullptr, nullptr);
  send(job.request, error);
  drop(job);
}

void Server::count(Job& job, const Update& u) {
  const auto now = Clock::now();
  auto& last = job.last_token[std::size_t(u.choice)];
  for (std::size_t i = 0; i < u.tokens.size(); ++i) {
    if (last)
      metrics_.between_tokens.add(std::chrono::duration<double>(now - *last).count());
    else
      metrics_.first_token.add(std::chrono::duration<double>(now - job.start).count());
    last = now;
  }
  if (!u.done) return;
  metrics_.prompt_tokens += u.done->prompt_tokens, metrics_.reused_tokens += u.done->reused_tokens;
  metrics_.generated_tokens += std::int64_t(u.done->ids.size());
}

void Server::take_updates() {
  for (Update& u : worker_->updates()) {
    const auto found = jobs_.find(u.job);
    if (found == jobs_.end()) continue;  // its client has gone
    Job& job = found->second;
    if (u.done && u.done->reason == engine::FinishReason::error) {
      fail(job, u.refused ? ApiError(400, "invalid_request_error", u.done->error)
                          : ApiError(500, "server_error", u.done->error, "", "generation_failed"));
      continue;
    }
    if (!job.reply) {
      finish(job, u.text);
      continue;
    }
    count(job, u);
    const std::string events = job.reply->add(std::move(u));
    if (!events.empty()) {
      if (!std::exchange(job.begun, true)) {
        ++metrics_.answers[200];
        evkeyvalq* headers = evhttp_request_get_output_headers(job.request);
        evhttp_add_header(headers, "Content-Type", "text/event-stream");
        evhttp_add_header(headers, "Cache-Control", "no-cache");
        evhttp_send_reply_start(job.request, 200, "OK");
      }
      Owned<evbuffer, evbuffer_free> buffer(evbuffer_new());
      evbuffer_add(buffer.get(), events.data(), events.size());
      evhttp_send_reply_chunk(job.request, buffer.get());
    }
    if (job.reply->complete()) finish(job, job.reply->end());
  }
}

void Server::shut_down() {
  if (stopping_) return;
  stopping_ = Clock::now();
  evhttp_del_accept_socket(http_.get(), listening_);
  stop_when_done();
}

void Server::stop_when_done() {
  if (!stopping_ || !jobs_.empty()) return;
  const timeval flush = time_of(0.25);  // what was answered last is still to be written
  event_base_loopexit(base_.get(), &flush);
}

void Server::check_times() {
  const bool out_of_time = stopping_ && seconds_since(*stopping_) > options_.drain_seconds;
  std::vector<std::uint64_t> late;
  for (const auto& [id, job] : jobs_)
    if (out_of_time || seconds_since(job.start) > options_.request_seconds) late.push_back(id);
  for (const std::uint64_t id : late)
    fail(jobs_.at(id), out_of_time
                           ? ApiError(503, "server_error", "the server is shutting down", "", "shutting_down")
                           : ApiError(504, "server_error",
                                      cat("an answer takes at most ", options_.request_seconds, " seconds"),
                                      "", "timeout"));
}

}  // namespace

void serve(engine::LLM& llm, const ServeOptions& options, const std::function<void(int port)>& ready) {
  Server server(llm, options);
  if (ready) ready(server.port());
  server.run();
}

}  // namespace cgp::serve
