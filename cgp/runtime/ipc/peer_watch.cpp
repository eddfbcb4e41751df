// SPDX-License-Identifier: Apache-2.0
#include "cgp/runtime/ipc/peer_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "cgp/base/error.h"
#include "cgp/base/text.h"

namespace cgp::runtime {
namespace {

using text::cat;

constexpr int kConnectMilliseconds = 30'000;
constexpr char kGoodbye = 'b';

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(std::string what) {
  const int code = errno;
  throw Error({"processes of a communicator are connected by sockets of this host",
               {},
               cat(what, ": ", std::strerror(code)),
               "run all of them on one host and in one network namespace"});
}

// A socket without a file: its name goes with the process.
struct Name {
  sockaddr_un address{};
  socklen_t bytes = 0;
  explicit Name(std::span<const std::byte> name) {
    address.sun_family = AF_UNIX;
    const auto n = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), n);
    bytes = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + n);
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string random_name() {
  std::random_device random;
  std::string s = "cgp";
  for (int i = 0; i < 4; ++i) s += cat("-", text::hex(random()));
  s.resize(64, '-');
  return s;
}

}  // namespace

struct PeerWatch::State {
  int rank = 0;
  OnLost on_lost;
  std::vector<Descriptor> peers;  // by rank; none for the own
  Descriptor stop{::eventfd(0, EFD_CLOEXEC)};
  std::thread thread;

  void run() {
    std::vector<pollfd> waits;
    std::vector<int> ranks;
    for (std::size_t r = 0; r < peers.size(); ++r)
      if (peers[r].get() >= 0) {
        waits.push_back({peers[r].get(), POLLIN, 0});
        ranks.push_back(int(r));
      }
    waits.push_back({stop.get(), POLLIN, 0});
    for (;;) {
      if (::poll(waits.data(), waits.size(), -1) < 0) {
        if (errno == EINTR) continue;
        return;
      }
      if (waits.back().revents) return;
      for (std::size_t i = 0; i + 1 < waits.size(); ++i) {
        if (!waits[i].revents) continue;
        char said = 0;
        const auto n = ::recv(waits[i].fd, &said, 1, 0);
        waits[i].fd = -1;  // poll leaves it out from here on
        if (n != 1 || said != kGoodbye) on_lost(ranks[i]);
      }
    }
  }
};

PeerWatch::PeerWatch(int rank, int size, const AllGatherBytes& all_gather, OnLost on_lost)
    : state_(std::make_unique<State>()) {
  state_->rank = rank;
  state_->on_lost = std::move(on_lost);
  state_->peers.resize(std::size_t(size));
  const auto open_socket = [] { return Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)); };
  const Descriptor listener = open_socket();
  const std::string own = random_name();
  const Name own_name(std::as_bytes(std::span(own)));
  if (listener.get() < 0 || ::bind(listener.get(), own_name.get(), own_name.bytes) ||
      ::listen(listener.get(), size))
    fail("a socket to listen on");
  const auto names = all_gather(std::as_bytes(std::span(own)));
  if (int(names.size()) != size)
    throw ArgumentError(cat("all_gather gave the bytes of ", names.size(), " ranks; there are ", size));
  // Each connects to those before it and says who it is.
  for (int r = 0; r < rank; ++r) {
    const Name name(names[std::size_t(r)]);
    Descriptor s = open_socket();
    const auto me = std::uint32_t(rank);
    if (s.get() < 0 || ::connect(s.get(), name.get(), name.bytes) ||
        ::send(s.get(), &me, sizeof me, MSG_NOSIGNAL) != sizeof me)
      fail(cat("rank ", r, " cannot be reached by rank ", rank));
    state_->peers[std::size_t(r)] = std::move(s);
  }
  for (int left = size - 1 - rank; left > 0; --left) {
    pollfd wait{listener.get(), POLLIN, 0};
    errno = ETIMEDOUT;
    if (::poll(&wait, 1, kConnectMilliseconds) != 1)
      fail(cat(left, " ranks after rank ", rank, " did not come"));
    Descriptor s(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::uint32_t who = 0;
    if (s.get() < 0 || ::recv(s.get(), &who, sizeof who, MSG_WAITALL) != sizeof who ||
        who >= std::uint32_t(size) || int(who) <= rank || state_->peers[who].get() >= 0)
      fail(cat("a rank after rank ", rank, " could not say who it is"));
    state_->peers[who] = std::move(s);
  }
  if (size > 1) state_->thread = std::thread([s = state_.get()] { s->run(); });
}

PeerWatch::~PeerWatch() {
  if (!state_) return;
  if (state_->thread.joinable()) {
    const std::uint64_t one = 1;
    (void)!::write(state_->stop.get(), &one, sizeof one);
    state_->thread.join();
  }
  for (const Descriptor& d : state_->peers)
    if (d.get() >= 0) ::send(d.get(), &kGoodbye, 1, MSG_NOSIGNAL);
}
PeerWatch::PeerWatch(PeerWatch&&) noexcept = default;

}  // namespace cgp::runtime
