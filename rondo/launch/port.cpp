#include "rondo/launch/port.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
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

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch {
namespace {

// Binds and listens as PyTorch's TCPStore does: every address, IPv6 with IPv4 inside where there is IPv6.
// Returns the errno of what failed, 0 when the port is free.
int try_listen(int family, int port, int* bound_port) {
  const Descriptor listener(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener.valid()) return errno;
  const int on = 1;
  const int off = 0;
  // Of a port that is asked for. With it the system may pick one that a connection has just left, which a
  // program that listens without it cannot have.
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
    // The port stands at the same place in both families.
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

// One line of /proc/net/tcp: "sl local rem st tx:rx tr:when retrnsmt uid timeout inode"; addresses are words
// of the host's byte order in hexadecimal.
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

// "pid 123 (python3)": the process that has the socket open; only visible for own processes, or as root.
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
    // Only an own address can be bound.
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

void require_free_port(const std::string& address, int port) {
  if (!is_of_this_host(address)) return;
  const int error = try_listen(port, nullptr);
  if (error == 0) return;
  const std::string owner = port_owner(port);
  throw UsageError(str("the master address ", address, ":", port, " cannot be used: ", errno_text(error),
                       owner.empty() ? "" : str(" by ", owner),
                       "; choose another --master-port, or leave it out to get a free one"));
}

}  // namespace rondo::launch
