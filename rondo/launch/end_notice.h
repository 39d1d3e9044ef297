#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::launch {

// Notices between the launchers of a multi-host job that the job is over before all ranks have joined.
// Without a notice, ranks would wait for an exited rank until the join timeout. Launchers do not link
// libtorch, so this file implements the part of c10d's TCPStore protocol that it needs.

// Returns the key under which rank 0's store holds the reason why an attempt of the job is over.
std::string end_key(int attempt);

// Returns the key of the launcher's store under which a rank reports that it is joining ("1") or has joined
// ("0").
std::string joining_key(int rank);

// Key of the launcher's store under which a rank repeats the notice of another launcher.
inline constexpr const char* kEndNoticeKey = "rondo/told";

// Limits for sending a notice.
struct NoticeLimits {
  Deadline deadline;
  std::vector<int> interrupts;  // descriptors; sending stops when one is readable
};

// Sets `key` to `text` in the c10d::TCPStore (libtorch 2.3 or later) at host:port. Retries until a server
// listens there, at least once. Returns whether the store acknowledged the value.
bool notify_store(const std::string& host, int port, std::string_view key, std::string_view text,
                  const NoticeLimits& limits);

// Sends `text` to every client that connects to host:port, until `readers` clients have acknowledged it.
// Listens at rank 0's address (listen_at()). Does nothing if the port is taken.
void serve_notice(const std::string& host, int port, const std::string& interface, std::string_view text,
                  int readers, const NoticeLimits& limits);

// Reads the text of a launcher's serve_notice() at host:port: one line of at most 1000 bytes. Empty if a
// c10d::TCPStore listens there, if nothing listens, or if there is no answer within 1 s.
std::optional<std::string> read_notice(const std::string& host, int port);

// Calls read_notice() until there is a notice or `deadline` has passed, at least once.
std::optional<std::string> wait_for_notice(const std::string& host, int port, Deadline deadline);

}  // namespace rondo::launch
