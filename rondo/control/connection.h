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

// Asks one listener. Connects again by itself when the listener was away. One thread uses an object.
class Connection {
 public:
  // `address` is "host:port"; `who` and `whom` name the two sides for messages ("worker 1", "server 0").
  // Does not wait. Throws CommunicationError for an address that cannot be.
  Connection(std::string address, const JobSecret& secret, std::string who, std::string whom,
             const Limits& limits = {});
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends `body` and returns the answer. When the connection is lost meanwhile it is sent again on the next
  // one, so a listener may see a request twice. Throws TimeoutError naming both sides and how far it came
  // when none is there in time, and CommunicationError when the listener has another secret.
  std::string ask(const std::string& body, const Deadline& deadline);
  const std::string& address() const;
  const std::string& whom() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::control
