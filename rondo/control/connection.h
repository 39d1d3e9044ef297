#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/control/secret.h"

namespace rondo::control {

// Limits of a listener and a connection; both sides should have the same.
struct Limits {
  Bytes largest_message = MiB(80);
  int queue = 16;  // messages of one peer that wait to be sent or received
};

// A request and the address of its answer.
struct Request {
  std::string peer;          // opaque
  std::uint64_t number = 0;  // assigned by the peer
  std::string body;
};

// A server that receives requests of processes with the job's secret, and answers them. One thread uses an
// object.
class Listener {
 public:
  // Listens at `address`, "host:port"; with port 0 at a free one. Throws CommunicationError naming the
  // address.
  Listener(const std::string& address, const JobSecret& secret, const Limits& limits = {});
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Returns "host:port" with the actual port.
  const std::string& address() const;
  // Returns the next request; nullopt if none arrives within `patience`.
  std::optional<Request> receive(Duration patience);
  // Answers a request. Returns false if the peer is lost, or if its queue is full. Answers are sent even if
  // the listener is destroyed right afterwards, for two seconds at most.
  bool answer(const Request& request, const std::string& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A client of one listener. Reconnects automatically. One thread uses an object.
class Connection {
 public:
  // Starts to connect, without waiting. `address` is "host:port"; `who` and `whom` name the two sides for
  // messages ("worker 1", "server 0"). Throws CommunicationError for an invalid address.
  Connection(std::string address, const JobSecret& secret, std::string who, std::string whom,
             const Limits& limits = {});
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends `body` and returns the answer. If the connection is lost meanwhile, sends it again on the next one,
  // so a listener may see a request twice. Throws TimeoutError naming both sides and the progress if there is
  // no answer in time, and CommunicationError if the listener has another secret.
  std::string ask(const std::string& body, const Deadline& deadline);
  const std::string& address() const;
  const std::string& whom() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::control
