#include "rondo/control/zeromq.h"

#include <array>

#include "rondo/control/loaded_library.h"

namespace rondo::control {
namespace {

// The library name of ZeroMQ since 4.1; then the path that CMake found, for an installation outside of the
// search path.
constexpr std::array kNames = {"libzmq.so.5", RONDO_ZEROMQ_LIBRARY};

ZeroMq load() {
  const LoadedLibrary library(
      kNames, "processes of a job exchange messages through ZeroMQ",
      "Version 4.2 or newer with CURVE is needed; on Debian or Ubuntu: apt-get install libzmq5");
  ZeroMq result{};
  library.find(result.ctx_new, "zmq_ctx_new");
  library.find(result.ctx_shutdown, "zmq_ctx_shutdown");
  library.find(result.ctx_term, "zmq_ctx_term");
  library.find(result.socket, "zmq_socket");
  library.find(result.close, "zmq_close");
  library.find(result.setsockopt, "zmq_setsockopt");
  library.find(result.getsockopt, "zmq_getsockopt");
  library.find(result.bind, "zmq_bind");
  library.find(result.connect, "zmq_connect");
  library.find(result.socket_monitor, "zmq_socket_monitor");
  library.find(result.poll, "zmq_poll");
  library.find(result.send, "zmq_send");
  library.find(result.msg_init, "zmq_msg_init");
  library.find(result.msg_close, "zmq_msg_close");
  library.find(result.msg_recv, "zmq_msg_recv");
  library.find(result.msg_more, "zmq_msg_more");
  library.find(result.msg_data, "zmq_msg_data");
  library.find(result.msg_size, "zmq_msg_size");
  library.find(result.last_error, "zmq_errno");
  library.find(result.strerror, "zmq_strerror");
  library.find(result.z85_encode, "zmq_z85_encode");
  library.find(result.curve_keypair, "zmq_curve_keypair");
  library.find(result.curve_public, "zmq_curve_public");
  return result;
}

}  // namespace

const ZeroMq& zeromq() {
  static const ZeroMq functions = load();
  return functions;
}

}  // namespace rondo::control
