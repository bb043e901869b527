#include "lifeline.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "lockstep/base/helper_thread.hpp"
#include "lockstep/base/log.hpp"

namespace lockstep {

namespace {
constexpr double kPulseEvery_s = 1;
constexpr double kReach_s = 1.5;  // time limit for one address
constexpr double kGrace_s = 0.3;  // from a lost connection to the report: the job may be ending
constexpr double kOthers_s = 3;   // as kGrace_s, if other ranks of that host can report the death
constexpr std::size_t kAddresses = 6;

/// Where a rank can be reached, and a number that only ranks of this job know.
struct Endpoint {
  std::uint64_t token = 0;
  std::uint16_t port = 0;
  std::uint16_t count = 0;
  std::array<in_addr_t, kAddresses> addresses{};
};

void limit_waiting(int socket, double seconds) {
  const timeval limit{static_cast<time_t>(seconds), static_cast<suseconds_t>(1e6 * (seconds - std::floor(seconds)))};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

void shut(int& socket) {
  if (socket >= 0) ::close(socket);
  socket = -1;
}

/// Addresses of this host, those of the loopback interface last.
void list_addresses(Endpoint& endpoint) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  for (const bool loopback : {false, true})
    for (const ifaddrs* i = list; i != nullptr && endpoint.count < kAddresses; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || (i->ifa_flags & IFF_UP) == 0) continue;
      if (((i->ifa_flags & IFF_LOOPBACK) != 0) != loopback) continue;
      endpoint.addresses[endpoint.count++] = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr.s_addr;
    }
  freeifaddrs(list);
}

bool send_all(int socket, const void* bytes, std::size_t size) {
  return ::send(socket, bytes, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool receive_token(int socket, std::uint64_t expected) {
  std::uint64_t token = 0;
  return ::recv(socket, &token, sizeof token, MSG_WAITALL) == sizeof token && token == expected;
}

/// A connection to the endpoint, or -1. Another program may listen there: addresses are not unique between networks.
int connect_to(const Endpoint& endpoint) {
  for (std::size_t i = 0; i < endpoint.count; ++i) {
    int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) return -1;
    limit_waiting(socket, kReach_s);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(endpoint.port);
    to.sin_addr.s_addr = endpoint.addresses[i];
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
        send_all(socket, &endpoint.token, sizeof endpoint.token) && receive_token(socket, ~endpoint.token))
      return socket;
    shut(socket);
  }
  return -1;
}

/// Waits for a peer that knows the token; -1 once the listening socket is shut down.
int accept_peer(int listener, std::uint64_t token) {
  for (;;) {
    int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) return -1;
    limit_waiting(socket, kReach_s);
    const std::uint64_t reply = ~token;
    if (receive_token(socket, token) && send_all(socket, &reply, sizeof reply)) return socket;
    shut(socket);
  }
}
}  // namespace

Lifeline::Lifeline(Communicator& world, const std::vector<int>& ring, const std::vector<bool>& alone,
                   const RankBoard& mine, Events events)
    : mine_(mine), events_(std::move(events)) {
  connect(world, ring);
  const auto at = std::find(ring.begin(), ring.end(), world.rank());
  if (at == ring.end()) return;
  patience_s_ = alone[static_cast<std::size_t>(at + 1 - ring.begin()) % ring.size()] ? kGrace_s : kOthers_s;
  if ((next_.socket < 0 && previous_.socket < 0) || ::pipe2(wake_, O_CLOEXEC) != 0) return;
  thread_ = helper_thread([this] { run(); });
}

Lifeline::~Lifeline() {
  if (thread_.joinable()) {
    send(previous_, Kind::leaving);
    shut(wake_[1]);
    thread_.join();
  }
  for (int* file : {&next_.socket, &previous_.socket, &wake_[0], &wake_[1]}) shut(*file);
}

void Lifeline::connect(Communicator& world, const std::vector<int>& ring) {
  const auto at = std::find(ring.begin(), ring.end(), world.rank());
  const bool member = at != ring.end();
  Endpoint mine;
  int listener = -1;
  if (member) {
    list_addresses(mine);
    (void)!getrandom(&mine.token, sizeof mine.token, 0);
    listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    socklen_t size = sizeof here;
    if (listener >= 0 && ::bind(listener, reinterpret_cast<const sockaddr*>(&here), size) == 0 &&
        ::listen(listener, 8) == 0 && ::getsockname(listener, reinterpret_cast<sockaddr*>(&here), &size) == 0)
      mine.port = ntohs(here.sin_port);
    else
      mine.count = 0;
  }
  const Gathered endpoints = world.all_gather(
      member ? std::as_bytes(std::span(&mine, 1)) : std::span<const std::byte>(), "addresses of the hosts");
  std::jthread acceptor;
  if (member) {
    acceptor = helper_thread([&] { previous_.socket = accept_peer(listener, mine.token); });
    next_rank_ = ring[static_cast<std::size_t>(at + 1 - ring.begin()) % ring.size()];
    next_.socket = connect_to(values_of<Endpoint>(endpoints.of(next_rank_)).at(0));
  }
  const std::int64_t unreachable =
      world.all_reduced(std::int64_t{member && next_.socket < 0 ? 1 : 0}, ReduceOp::sum, "connections between hosts");
  if (member) {
    ::shutdown(listener, SHUT_RDWR);
    acceptor.join();
    shut(listener);
  }
  if (unreachable > 0 && world.rank() == 0)
    log::info(unreachable, " of ", ring.size(),
              " hosts cannot be reached by TCP from the previous host: the death of a rank there is detected only "
              "after dist.timeout");
}

void Lifeline::announce_end() {
  send(next_, Kind::ending);
  send(previous_, Kind::ending);
}

void Lifeline::send(Link& link, Kind kind) {
  const std::lock_guard lock(sending_);
  if (link.socket < 0) return;
  if (link.unsent.empty() || kind != Kind::alive) {
    const Pulse pulse{kind, seen_on(mine_, Process::running)};
    link.unsent.append(reinterpret_cast<const char*>(&pulse), sizeof pulse);
  }
  // A peer that does not read, such as a stopped one, must not hold up this rank.
  const ssize_t sent = ::send(link.socket, link.unsent.data(), link.unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) link.unsent.erase(0, static_cast<std::size_t>(sent));
}

/// Reads the pulses that have arrived. Returns false at the end of the connection.
bool Lifeline::receive(Link& link) {
  char bytes[4 * sizeof(Pulse)];
  const ssize_t size = ::recv(link.socket, bytes, sizeof bytes, MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (size <= 0) return false;
  link.received.append(bytes, static_cast<std::size_t>(size));
  while (link.received.size() >= sizeof(Pulse)) {
    Pulse pulse;
    std::memcpy(static_cast<void*>(&pulse), link.received.data(), sizeof pulse);
    link.received.erase(0, sizeof pulse);
    if (link.said != Kind::ending) link.said = pulse.kind;
    if (&link == &next_) last_ = pulse;
  }
  return true;
}

void Lifeline::run() {
  bool ending = false;  // the job is being ended
  for (std::int64_t pulsed_ns = 0, lost_ns = 0;;) {
    const std::int64_t now = monotonic_ns();
    const auto passed_s = [&](std::int64_t since_ns) { return 1e-9 * static_cast<double>(now - since_ns); };
    if (passed_s(pulsed_ns) > kPulseEvery_s) {
      pulsed_ns = now;
      send(previous_, Kind::alive);
    }
    if (lost_ns != 0 && passed_s(lost_ns) > patience_s_) {
      lost_ns = 0;
      RankSeen seen = last_.rank;
      seen.identity.rank = next_rank_;
      seen.process = Process::dead;
      seen.answered = true;
      if (!ending) events_.died(seen);
    }
    pollfd files[] = {{wake_[0], POLLIN, 0}, {next_.socket, POLLIN, 0}, {previous_.socket, POLLIN, 0}};
    if (::poll(files, 3, lost_ns != 0 ? 50 : 500) < 0) continue;
    if (files[0].revents != 0) return;
    if (files[1].revents != 0 && !receive(next_)) {
      if (next_.said == Kind::alive) lost_ns = now;
      close(next_);
    }
    if (files[2].revents != 0 && !receive(previous_)) close(previous_);
    if (!ending && (next_.said == Kind::ending || previous_.said == Kind::ending)) {
      ending = true;
      announce_end();
      events_.ending();
    }
  }
}

void Lifeline::close(Link& link) {
  const std::lock_guard lock(sending_);
  shut(link.socket);
}

}  // namespace lockstep
