#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::launch {

// How the launchers of a job on several hosts tell each other's ranks that the job is over before all ranks
// have joined: those that wait for a rank that has ended would do so until the limit for joining. A launcher
// needs no libtorch, so this file has what it uses of c10d's TCPStore.

// Key under which the store of rank 0 says why an attempt of the job is over.
std::string end_key(int attempt);

// Key of the launcher's store under which a rank says that it is joining ("1"), or has joined ("0").
std::string joining_key(int rank);

// Key of the launcher's store under which a rank repeats what another launcher has told it.
inline constexpr const char* kToldKey = "rondo/told";

// Limits for sending a notice.
struct NoticeLimits {
  Deadline deadline;
  std::vector<int> interrupts;  // descriptors: until one of them is readable
};

// Sets `key` to `text` in the c10d::TCPStore that listens at host:port, of libtorch 2.3 or later. Tries, once
// at least, until somebody listens there. Returns whether the store has taken it.
bool notify_store(const std::string& host, int port, std::string_view key, std::string_view text,
                  const NoticeLimits& limits);

// Tells everybody who connects to host:port `text`, until `readers` have taken it. Listens where rank 0 has
// (listen_at()); does nothing where the port is taken.
void serve_notice(const std::string& host, int port, const std::string& interface, std::string_view text,
                  int readers, const NoticeLimits& limits);

// The text that serve_notice() of a launcher tells at host:port: one line of at most 1000 bytes. Empty where
// a c10d::TCPStore listens, nobody, or somebody who has not answered after a second.
std::optional<std::string> read_notice(const std::string& host, int port);

// Calls read_notice() until there is a notice or `deadline` has passed, once at least.
std::optional<std::string> wait_for_notice(const std::string& host, int port, Deadline deadline);

}  // namespace rondo::launch
