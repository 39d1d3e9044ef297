#pragma once

#include <memory>
#include <string>

#include "rondo/base/time.h"
#include "rondo/control/listener.h"
#include "rondo/control/secret.h"

namespace rondo::control {

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
