#include "rondo/launch/end_notice.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/launch/network.h"

namespace rondo::launch {
namespace {

constexpr Duration kConnectLimit = std::chrono::seconds(3);
constexpr Duration kPauseBetweenTries = std::chrono::milliseconds(50);
// A launcher answers immediately; other listeners may not answer at all.
constexpr Duration kAnswerLimit = std::chrono::seconds(1);
constexpr std::size_t kLongestNotice = 1000;

constexpr std::string_view kNotice = "rondo: over: ";  // followed by the text and a newline
constexpr std::string_view kTaken = "rondo: taken\n";  // a reader's acknowledgement

// Values of c10d::detail::QueryType, validationMagicNumber (TCPStoreBackend.hpp) and TCPStore::keyPrefix_.
constexpr std::uint8_t kValidate = 0;
constexpr std::uint8_t kSet = 1;
constexpr std::uint8_t kPing = 13;
constexpr std::uint32_t kMagicNumber = 0x3C85F7CE;
constexpr std::string_view kKeyPrefix = "/";
constexpr std::uint32_t kPingNumber = 0x6F76720A;  // arbitrary

template <class Value>
void append_value(std::string& message, Value value) {
  std::array<char, sizeof value> bytes{};
  std::memcpy(bytes.data(), &value, sizeof value);
  message.append(bytes.data(), bytes.size());
}

void append_text(std::string& message, std::string_view text) {
  append_value<std::uint64_t>(message, text.size());
  message += text;
}

enum class Waited { ready, late, interrupted };

// Waits until one of `watched` is ready, an interrupt is readable or the deadline passes.
Waited wait_for_any(std::vector<pollfd> watched, const NoticeLimits& limits) {
  const std::size_t own = watched.size();
  for (const int descriptor : limits.interrupts) watched.push_back({descriptor, POLLIN, 0});
  const Duration left = std::min<Duration>(limits.deadline.remaining(), std::chrono::hours(1));
  poll(watched.data(), watched.size(), static_cast<int>(milliseconds(left)) + 1);
  const bool interrupted = std::any_of(watched.begin() + static_cast<std::ptrdiff_t>(own), watched.end(),
                                       [](const pollfd& interrupt) { return interrupt.revents != 0; });
  if (interrupted) return Waited::interrupted;
  return limits.deadline.passed() ? Waited::late : Waited::ready;
}

// Waits before the next try. Returns false if there must not be another one.
bool pause_between_tries(const NoticeLimits& limits) {
  if (limits.deadline.passed()) return false;
  const Deadline end = Deadline::after(std::min(kPauseBetweenTries, limits.deadline.remaining()));
  return wait_for_any({}, {end, limits.interrupts}) != Waited::interrupted;
}

// send_all() and receive_more() work on non-blocking sockets. Both return false if the connection is lost or
// the deadline passes.
bool send_all(int socket, std::string_view message, const NoticeLimits& limits) {
  while (!message.empty()) {
    const ssize_t sent = send(socket, message.data(), message.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      message.remove_prefix(static_cast<std::size_t>(sent));
    } else if ((errno != EAGAIN && errno != EINTR) ||
               wait_for_any({{socket, POLLOUT, 0}}, limits) != Waited::ready) {
      return false;
    }
  }
  return true;
}

// Waits for data and appends it to `received`.
bool receive_more(int socket, std::string& received, const NoticeLimits& limits) {
  while (true) {
    std::array<char, 512> bytes{};
    const ssize_t count = recv(socket, bytes.data(), bytes.size(), 0);
    if (count > 0) received.append(bytes.data(), static_cast<std::size_t>(count));
    if (count >= 0) return count > 0;
    if ((errno != EAGAIN && errno != EINTR) || wait_for_any({{socket, POLLIN, 0}}, limits) != Waited::ready)
      return false;
  }
}

// Returns the handshake of a connection to a c10d::TCPStore. Requests may follow in the same message.
std::string hello() {
  std::string message;
  append_value(message, kValidate);
  append_value(message, kMagicNumber);
  return message;
}

// Appends a ping. A c10d::TCPStore answers with ping_answer() after it has processed the preceding requests.
void append_ping(std::string& message) {
  append_value(message, kPing);
  append_value(message, kPingNumber);
}

std::string ping_answer() {
  std::string answer;
  append_value(answer, kPingNumber);
  return answer;
}

bool set_in_store(int socket, std::string_view key, std::string_view text, const NoticeLimits& limits) {
  std::string message = hello();
  append_value(message, kSet);
  append_text(message, str(kKeyPrefix, key));
  append_text(message, text);
  append_ping(message);
  const std::string answer = ping_answer();
  std::string received;
  if (!send_all(socket, message, limits)) return false;
  while (received.size() < answer.size()) {
    if (!receive_more(socket, received, limits)) return false;
  }
  return received == answer;
}

// A client that is connected to serve_notice().
struct Visitor {
  Descriptor connection;
  std::string received;  // received data, limited to kLongestVisit bytes
  bool gone = false;
};

constexpr std::size_t kLongestVisit = 256;

// Receives data; returns whether the visitor has acknowledged the notice in this call.
bool has_just_taken(Visitor& visitor) {
  const auto taken = [&] { return visitor.received.find(kTaken) != std::string::npos; };
  const bool before = taken();
  std::array<char, 64> bytes{};
  const ssize_t count = recv(visitor.connection.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count > 0 && visitor.received.size() < kLongestVisit)
    visitor.received.append(bytes.data(), static_cast<std::size_t>(count));
  visitor.gone = count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
  return !before && taken();
}

}  // namespace

std::string end_key(int attempt) { return str("rondo/attempt/", attempt, "/over"); }

std::string joining_key(int rank) { return str("rondo/joining/", rank); }

bool notify_store(const std::string& host, int port, std::string_view key, std::string_view text,
                  const NoticeLimits& limits) {
  while (true) {
    const Connection connection = connect_to(host, port, kConnectLimit);
    if (connection.descriptor.valid()) {
      return set_in_store(connection.descriptor.number(), key, text,
                          {Deadline::after(kAnswerLimit), limits.interrupts});
    }
    if (!pause_between_tries(limits)) return false;
  }
}

void serve_notice(const std::string& host, int port, const std::string& interface, std::string_view text,
                  int readers, const NoticeLimits& limits) {
  const Descriptor listener = listen_for_others(host, port, interface);
  if (!listener.valid()) return;
  set_nonblocking(listener.number());
  std::string line(text.substr(0, kLongestNotice));
  std::replace(line.begin(), line.end(), '\n', ' ');
  const std::string notice = str(kNotice, line, "\n");
  std::vector<Visitor> visitors;
  while (readers > 0) {
    std::vector<pollfd> watched = {{listener.number(), POLLIN, 0}};
    for (const Visitor& visitor : visitors) watched.push_back({visitor.connection.number(), POLLIN, 0});
    if (wait_for_any(watched, limits) != Waited::ready) return;
    for (Visitor& visitor : visitors) {
      if (has_just_taken(visitor)) --readers;
    }
    std::erase_if(visitors, [](const Visitor& visitor) { return visitor.gone; });
    Descriptor connection(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // The notice fits into the socket's buffer.
    if (connection.valid() && send(connection.number(), notice.data(), notice.size(), MSG_NOSIGNAL) > 0)
      visitors.push_back({std::move(connection), {}});
  }
}

std::optional<std::string> read_notice(const std::string& host, int port) {
  const Connection connection = connect_to(host, port, kConnectLimit);
  if (!connection.descriptor.valid()) return std::nullopt;
  const int socket = connection.descriptor.number();
  const NoticeLimits limits{Deadline::after(kAnswerLimit), {}};
  // A store answers this immediately and sends nothing unasked.
  std::string question = hello();
  append_ping(question);
  if (!send_all(socket, question, limits)) return std::nullopt;
  std::string received;
  std::size_t end = std::string::npos;
  while (end == std::string::npos) {
    if (received.size() > kNotice.size() + kLongestNotice || !receive_more(socket, received, limits))
      return std::nullopt;
    if (received.compare(0, kNotice.size(), kNotice, 0, received.size()) != 0) return std::nullopt;
    end = received.find('\n');
  }
  send_all(socket, kTaken, limits);
  return printable(received.substr(kNotice.size(), end - kNotice.size()), kLongestNotice);
}

std::optional<std::string> wait_for_notice(const std::string& host, int port, Deadline deadline) {
  while (true) {
    if (auto notice = read_notice(host, port)) return notice;
    if (!pause_between_tries({deadline, {}})) return std::nullopt;
  }
}

}  // namespace rondo::launch
