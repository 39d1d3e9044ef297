#include "rondo/launch/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"

namespace rondo::launch {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

constexpr Duration kLongestAttempt = std::chrono::seconds(3);
constexpr Duration kPause = std::chrono::milliseconds(50);
constexpr Duration kReminder = std::chrono::seconds(10);

// `error` is set when the name does not resolve.
AddressList resolve(const std::string& host, int port, std::string& error) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  error = code == 0 ? "" : str("the name '", host, "' does not resolve: ", gai_strerror(code));
  return {code == 0 ? found : nullptr, freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> text{};
  const int code = getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return code == 0 ? text.data() : "";
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 24 == 127;
  }
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// Whoever asks for loopback by its own name means it.
bool means_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

// Returns the errno of what failed.
int try_listen(const addrinfo& entry, Listener& listener) {
  Descriptor descriptor(socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!descriptor.valid()) return errno;
  const int on = 1;
  setsockopt(descriptor.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(descriptor.number(), entry.ai_addr, entry.ai_addrlen) != 0) return errno;
  if (listen(descriptor.number(), SOMAXCONN) != 0) return errno;
  listener.address = numeric(entry.ai_addr, entry.ai_addrlen);
  listener.descriptor = descriptor.release();
  return 0;
}

// Returns the errno of the connection; 0: `descriptor` is it.
int try_connect(const addrinfo& entry, Duration limit, Descriptor& descriptor) {
  descriptor = Descriptor(socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!descriptor.valid()) return errno;
  if (connect(descriptor.number(), entry.ai_addr, entry.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{descriptor.number(), POLLOUT, 0};
  if (poll(&ready, 1, static_cast<int>(milliseconds(limit)) + 1) == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(descriptor.number(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// Empty when `host` names no address of this host that others could reach, and neither does `interface`.
std::optional<Listener> listen_at_named_address(const std::string& host, int port,
                                                const std::string& interface) {
  std::string error;
  Listener listener{-1, host};
  std::string candidate = host;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const AddressList found = resolve(candidate, port, error);
    for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
      if (is_loopback(entry->ai_addr) && !means_loopback(candidate)) continue;
      const int code = try_listen(*entry, listener);
      if (code == 0 || code == EADDRINUSE) return listener;
    }
    candidate = address_of_interface(interface);
    if (candidate.empty()) break;
  }
  return std::nullopt;
}

}  // namespace

std::string address_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(all, freeifaddrs);
  for (const auto& [family, size] :
       {std::pair{AF_INET, sizeof(sockaddr_in)}, std::pair{AF_INET6, sizeof(sockaddr_in6)}}) {
    for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family || name != entry->ifa_name)
        continue;
      return numeric(entry->ifa_addr, static_cast<socklen_t>(size));
    }
  }
  return {};
}

std::string local_address_towards(const std::string& host) {
  std::string error;
  const AddressList found = resolve(host, 9, error);
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const Descriptor probe(socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // Connecting a datagram socket only looks up the route.
    if (!probe.valid() || connect(probe.number(), entry->ai_addr, entry->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (getsockname(probe.number(), reinterpret_cast<sockaddr*>(&own), &size) != 0) continue;
    return numeric(reinterpret_cast<const sockaddr*>(&own), size);
  }
  return {};
}

std::string wait_for_address(const std::string& host, Duration patience) {
  const Deadline deadline = Deadline::after(patience);
  while (true) {
    std::string error;
    if (resolve(host, 9, error) != nullptr || deadline.passed()) return error;
    std::this_thread::sleep_for(std::min<Duration>(kPause, deadline.remaining()));
  }
}

Listener listen_at(const std::string& host, int port, const std::string& interface) {
  if (std::optional<Listener> listener = listen_at_named_address(host, port, interface)) return *listener;
  log::warning("'", host,
               "' is no address of this host that others could reach, so the store of rank 0 listens on ",
               "every address, port ", port, "; --interface or GLOO_SOCKET_IFNAME would limit it to one");
  return {-1, means_loopback(host) ? host : "127.0.0.1"};
}

Descriptor listen_for_others(const std::string& host, int port, const std::string& interface) {
  if (const auto listener = listen_at_named_address(host, port, interface))
    return Descriptor(listener->descriptor);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(nullptr, std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const AddressList all(found, freeaddrinfo);
  for (const int family : {AF_INET6, AF_INET}) {  // the first takes connections of both
    for (const addrinfo* entry = all.get(); entry != nullptr; entry = entry->ai_next) {
      Listener listener;
      if (entry->ai_family == family && try_listen(*entry, listener) == 0)
        return Descriptor(listener.descriptor);
    }
  }
  return {};
}

Connection connect_to(const std::string& host, int port, Duration limit) {
  Connection connection;
  const AddressList found = resolve(host, port, connection.reason);
  for (const addrinfo* entry = found.get(); entry != nullptr; entry = entry->ai_next) {
    const int code = try_connect(*entry, limit, connection.descriptor);
    if (code == 0) {
      connection.reason.clear();
      return connection;
    }
    connection.reason = errno_text(code);
  }
  connection.descriptor.reset();
  return connection;
}

std::string wait_for_listener(const std::string& host, int port, Duration timeout) {
  const Deadline deadline = Deadline::after(timeout);
  TimePoint reminder = Clock::now() + kReminder;
  while (true) {
    std::string reason =
        connect_to(host, port, std::min<Duration>(kLongestAttempt, deadline.remaining())).reason;
    if (reason.empty()) return {};
    if (deadline.passed()) return reason;
    if (Clock::now() >= reminder) {
      log::warning("still waiting for rank 0 at ", host, ":", port, " (", reason, ")");
      reminder = Clock::now() + kReminder;
    }
    std::this_thread::sleep_for(std::min<Duration>(kPause, deadline.remaining()));
  }
}

}  // namespace rondo::launch
