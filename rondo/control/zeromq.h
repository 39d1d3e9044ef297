#pragma once

#include <memory>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/listener.h"
#include "rondo/control/zeromq_library.h"

// Handles of ZeroMQ's C interface that close themselves.
namespace rondo::control {

// Waits for messages that are still to be sent as long as their sockets say.
struct ZmqContextEnd {
  void operator()(void* context) const {
    zeromq().ctx_shutdown(context);
    zeromq().ctx_term(context);
  }
};
struct ZmqSocketEnd {
  int linger_ms = 0;  // how long what was sent may take to leave when the socket is closed
  void operator()(void* socket) const {
    zeromq().setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zeromq().close(socket);
  }
};
using ZmqContext = std::unique_ptr<void, ZmqContextEnd>;
using ZmqSocket = std::unique_ptr<void, ZmqSocketEnd>;

[[noreturn]] inline void throw_zmq(const std::string& what) {
  throw CommunicationError(str(what, ": ", zeromq().strerror(zeromq().last_error())), {});
}

template <class Value>
void set_option(const ZmqSocket& socket, int option, const Value& value, const char* name) {
  if (zeromq().setsockopt(socket.get(), option, &value, sizeof value) != 0)
    throw_zmq(str("ZeroMQ refuses ", name));
}
inline void set_option(const ZmqSocket& socket, int option, const std::string& value, const char* name) {
  if (zeromq().setsockopt(socket.get(), option, value.data(), value.size()) != 0)
    throw_zmq(str("ZeroMQ refuses ", name));
}

inline void set_limits(const ZmqSocket& socket, const Limits& limits) {
  set_option(socket, ZMQ_SNDHWM, limits.queue, "the length of a queue");
  set_option(socket, ZMQ_RCVHWM, limits.queue, "the length of a queue");
  set_option(socket, ZMQ_MAXMSGSIZE, static_cast<std::int64_t>(limits.largest_message.count),
             "the size of a message");
}

// A part of a message.
class ZmqMessage {
 public:
  ZmqMessage() { zeromq().msg_init(&message_); }
  ZmqMessage(const ZmqMessage&) = delete;
  ZmqMessage& operator=(const ZmqMessage&) = delete;
  ~ZmqMessage() { zeromq().msg_close(&message_); }

  // False when none is there (with ZMQ_DONTWAIT) or a signal came.
  bool receive(const ZmqSocket& socket, int flags) {
    return zeromq().msg_recv(&message_, socket.get(), flags) >= 0;
  }
  bool more() { return zeromq().msg_more(&message_) != 0; }
  std::string text() {
    return {static_cast<const char*>(zeromq().msg_data(&message_)), zeromq().msg_size(&message_)};
  }

 private:
  zmq_msg_t message_;
};

}  // namespace rondo::control
