#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/control/secret.h"

namespace rondo::control {

// What a listener and a connection allow; both sides are to have the same.
struct Limits {
  Bytes largest_message = MiB(80);
  int queue = 16;  // messages of one peer that wait to be sent or taken
};

// A request, and what its answer goes to.
struct Request {
  std::string peer;          // opaque
  std::uint64_t number = 0;  // the peer's
  std::string body;
};

// Takes requests of the processes of a job that have its secret, and answers them. One thread uses an object.
class Listener {
 public:
  // Listens at `address`, "host:port"; port 0 is a free one. Throws CommunicationError naming the address.
  Listener(const std::string& address, const JobSecret& secret, const Limits& limits = {});
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // "host:port" with the port that it has.
  const std::string& address() const;
  // The next request; empty when none comes in `patience`.
  std::optional<Request> receive(Duration patience);
  // False when the peer is gone, or takes no more for now: its queue is full. What was answered is sent even
  // when the listener ends at once, for two seconds at most.
  bool answer(const Request& request, const std::string& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::control
