#pragma once

#include <zmq.h>

#include <memory>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/connection.h"

namespace rondo::control {

// The functions of ZeroMQ's C interface that rondo calls, each as zmq.h declares it.
struct ZeroMq {
  decltype(&zmq_ctx_new) ctx_new;
  decltype(&zmq_ctx_shutdown) ctx_shutdown;
  decltype(&zmq_ctx_term) ctx_term;
  decltype(&zmq_socket) socket;
  decltype(&zmq_close) close;
  decltype(&zmq_setsockopt) setsockopt;
  decltype(&zmq_getsockopt) getsockopt;
  decltype(&zmq_bind) bind;
  decltype(&zmq_connect) connect;
  decltype(&zmq_socket_monitor) socket_monitor;
  decltype(&zmq_poll) poll;
  decltype(&zmq_send) send;
  decltype(&zmq_msg_init) msg_init;
  decltype(&zmq_msg_close) msg_close;
  decltype(&zmq_msg_recv) msg_recv;
  decltype(&zmq_msg_more) msg_more;
  decltype(&zmq_msg_data) msg_data;
  decltype(&zmq_msg_size) msg_size;
  decltype(&zmq_errno) last_error;
  decltype(&zmq_strerror) strerror;
  decltype(&zmq_z85_encode) z85_encode;
  decltype(&zmq_curve_keypair) curve_keypair;
  decltype(&zmq_curve_public) curve_public;
};

// Returns ZeroMQ's functions. The first call loads the library, which stays until the process ends: it loads
// a dozen other libraries, which processes without messages should not wait for. Throws Error if the library
// cannot be loaded. Any thread.
const ZeroMq& zeromq();

// RAII handles of ZeroMQ's C interface.

// Waits for unsent messages as long as their sockets' linger times.
struct ZmqContextEnd {
  void operator()(void* context) const {
    zeromq().ctx_shutdown(context);
    zeromq().ctx_term(context);
  }
};
struct ZmqSocketEnd {
  int linger_ms = 0;  // time that unsent messages get when the socket is closed
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
    throw_zmq(str("ZeroMQ rejects ", name));
}
inline void set_option(const ZmqSocket& socket, int option, const std::string& value, const char* name) {
  if (zeromq().setsockopt(socket.get(), option, value.data(), value.size()) != 0)
    throw_zmq(str("ZeroMQ rejects ", name));
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

  // Receives a part. Returns false if there is none (with ZMQ_DONTWAIT) or after a signal.
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
