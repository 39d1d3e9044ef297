#pragma once

#include <zmq.h>

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

// ZeroMQ's library, loaded by the first call and kept until the process ends: it brings a dozen other
// libraries along, which processes that send no message should not wait for. Throws Error where the library
// cannot be loaded. Any thread.
const ZeroMq& zeromq();

}  // namespace rondo::control
