#include "rondo/launch/network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {
namespace {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

constexpr Duration kLongestAttempt = std::chrono::seconds(3);
constexpr Duration kPause = std::chrono::milliseconds(50);
constexpr Duration kReminder = std::chrono::seconds(10);

// Resolves a name; sets `error` on failure and clears it on success.
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

// Returns whether the host is a literal name of the loopback interface.
bool means_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

// Binds and listens. Returns 0 or errno.
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

// Connects within `limit`. Returns 0 with `descriptor` connected, or errno.
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

// Listens at an address of this host that other hosts can reach, named by `host` or else of `interface`.
// Empty if there is none.
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
  for (const int family : {AF_INET6, AF_INET}) {  // an IPv6 listener also accepts IPv4
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

namespace {

// Binds and listens on all addresses like PyTorch's TCPStore: IPv6 with mapped IPv4 if the host has IPv6.
// Returns 0 if the port is free, else errno.
int try_listen(int family, int port, int* bound_port) {
  const Descriptor listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return errno;
  const int on = 1;
  const int off = 0;
  // Only for a given port. With SO_REUSEADDR the system might pick a port in TIME_WAIT, which a program
  // without the option cannot bind.
  if (port != 0) setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  socklen_t size = 0;
  if (family == AF_INET6) {
    setsockopt(listener.number(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    auto* any = reinterpret_cast<sockaddr_in6*>(&address);
    any->sin6_family = AF_INET6;
    any->sin6_addr = in6addr_any;
    any->sin6_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof *any;
  } else {
    auto* any = reinterpret_cast<sockaddr_in*>(&address);
    any->sin_family = AF_INET;
    any->sin_addr.s_addr = htonl(INADDR_ANY);
    any->sin_port = htons(static_cast<std::uint16_t>(port));
    size = sizeof *any;
  }
  if (bind(listener.number(), reinterpret_cast<sockaddr*>(&address), size) != 0) return errno;
  if (listen(listener.number(), 1) != 0) return errno;
  if (bound_port != nullptr) {
    getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &size);
    // sin_port and sin6_port are at the same offset.
    *bound_port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
  }
  return 0;
}

int try_listen(int port, int* bound_port) {
  const int error = try_listen(AF_INET6, port, bound_port);
  return error == EAFNOSUPPORT || error == EADDRNOTAVAIL ? try_listen(AF_INET, port, bound_port) : error;
}

struct KnownListener {
  std::string address;
  unsigned long inode = 0;
};

// Parses a line of /proc/net/tcp: "sl local rem st tx:rx tr:when retrnsmt uid timeout inode". Addresses are
// hexadecimal words in host byte order.
std::optional<KnownListener> parse_listener(const std::string& line, int port, int family) {
  std::istringstream fields(line);
  fields.imbue(std::locale::classic());
  std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
  fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
  const std::size_t colon = local.find(':');
  if (state != "0A" || colon == std::string::npos) return std::nullopt;
  if (std::stoi(local.substr(colon + 1), nullptr, 16) != port) return std::nullopt;
  std::array<std::uint32_t, 4> words{};
  for (std::size_t word = 0; word * 8 < colon && word < words.size(); ++word) {
    words[word] = static_cast<std::uint32_t>(std::stoul(local.substr(word * 8, 8), nullptr, 16));
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, words.data(), text.data(), text.size());
  const std::string host = family == AF_INET6 ? str("[", text.data(), "]") : std::string(text.data());
  return KnownListener{str(host, ":", port), std::strtoul(inode.c_str(), nullptr, 10)};
}

std::optional<KnownListener> find_listener(int port) {
  for (const auto& [path, family] :
       {std::pair{"/proc/net/tcp", AF_INET}, std::pair{"/proc/net/tcp6", AF_INET6}}) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);  // headings
    while (std::getline(file, line)) {
      if (auto found = parse_listener(line, port, family)) return found;
    }
  }
  return std::nullopt;
}

// Returns the process that has the socket open: "pid 123 (python3)". Visible only for own processes or as
// root.
std::string process_of_socket(unsigned long inode) {
  namespace fs = std::filesystem;
  const std::string wanted = str("socket:[", inode, "]");
  std::error_code ignored;
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    for (fs::directory_iterator fd(process.path() / "fd", ignored), end; !ignored && fd != end;
         fd.increment(ignored)) {
      std::error_code unreadable;
      if (fs::read_symlink(fd->path(), unreadable).string() != wanted) continue;
      std::string name;
      std::getline(std::ifstream(process.path() / "comm"), name);
      return str("pid ", pid, " (", name, ")");
    }
    ignored.clear();
  }
  return {};
}

bool is_of_this_host(const std::string& address) {
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, nullptr, &found) != 0) return false;
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> results(found, freeaddrinfo);
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    // Only an address of this host can be bound.
    const Descriptor probe(socket(entry->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (probe.valid() && bind(probe.number(), entry->ai_addr, entry->ai_addrlen) == 0) return true;
  }
  return false;
}

}  // namespace

int find_free_port() {
  int port = 0;
  const int error = try_listen(0, &port);
  if (error != 0) throw Error("cannot find a free TCP port: " + errno_text(error));
  return port;
}

std::string port_owner(int port) {
  const auto listener = find_listener(port);
  if (!listener) return {};
  const std::string process = process_of_socket(listener->inode);
  return str(process.empty() ? "a process of another user" : process, ", which listens on ",
             listener->address);
}

std::string why_port_is_taken(int port) {
  const int error = try_listen(port, nullptr);
  if (error == 0) return {};
  const std::string owner = port_owner(port);
  return str(errno_text(error), owner.empty() ? "" : str(" by ", owner));
}

void require_free_port(const std::string& address, int port) {
  if (!is_of_this_host(address)) return;
  const std::string reason = why_port_is_taken(port);
  if (reason.empty()) return;
  throw UsageError(str("the master address ", address, ":", port, " cannot be used: ", reason,
                       "; choose another --master-port, or leave it out to get a free one"));
}

}  // namespace rondo::launch
