#include "rondo/control/listener.h"

#include <array>
#include <cstring>

#include "rondo/control/zeromq.h"

namespace rondo::control {

struct Listener::State {
  ZmqContext context;
  ZmqSocket socket;
  std::string address;
};

Listener::Listener(const std::string& address, const JobSecret& secret, const Limits& limits)
    : state_(std::make_unique<State>()) {
  state_->context.reset(zeromq().ctx_new());
  state_->socket.reset(zeromq().socket(state_->context.get(), ZMQ_ROUTER));
  if (!state_->socket) throw_zmq("ZeroMQ makes no socket");
  // Who asks waits for the last answer, which a listener may give right before it ends.
  state_->socket.get_deleter().linger_ms = 2000;
  const ZmqSocket& socket = state_->socket;
  const int server = 1, refuse_unreachable = 1, handshake_ms = 5000;
  set_option(socket, ZMQ_CURVE_SERVER, server, "CURVE");
  set_option(socket, ZMQ_CURVE_SECRETKEY, secret.secret_key(), "the job's key");
  set_option(socket, ZMQ_ROUTER_MANDATORY, refuse_unreachable, "errors for peers that are gone");
  set_option(socket, ZMQ_HANDSHAKE_IVL, handshake_ms, "the time of a handshake");
  set_limits(socket, limits);
  // A peer that is gone without a word is found out, and its queue given back.
  const int beat_ms = 2000, silence_ms = 10000;
  set_option(socket, ZMQ_HEARTBEAT_IVL, beat_ms, "heartbeats");
  set_option(socket, ZMQ_HEARTBEAT_TIMEOUT, silence_ms, "heartbeats");
  if (zeromq().bind(socket.get(), str("tcp://", address).c_str()) != 0)
    throw_zmq(str("cannot listen at ", address));
  std::array<char, 256> endpoint{};
  std::size_t size = endpoint.size();
  zeromq().getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint.data(), &size);
  state_->address = std::string(endpoint.data()).substr(6);  // behind "tcp://"
}

Listener::~Listener() = default;

const std::string& Listener::address() const { return state_->address; }

std::optional<Request> Listener::receive(Duration patience) {
  zmq_pollitem_t item{state_->socket.get(), 0, ZMQ_POLLIN, 0};
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
  if (zeromq().poll(&item, 1, static_cast<long>(ms)) <= 0) return std::nullopt;
  Request request;
  int parts = 0;
  for (bool more = true; more; ++parts) {
    ZmqMessage part;
    if (!part.receive(state_->socket, ZMQ_DONTWAIT)) return std::nullopt;
    if (parts == 0) request.peer = part.text();
    if (parts == 1) request.body = part.text();
    more = part.more();
  }
  // Requests have one part behind the peer's name; others are of no program of ours.
  if (parts != 2 || request.body.size() < sizeof request.number) return std::nullopt;
  std::memcpy(&request.number, request.body.data(), sizeof request.number);
  request.body.erase(0, sizeof request.number);
  return request;
}

bool Listener::answer(const Request& request, const std::string& body) {
  void* const socket = state_->socket.get();
  std::string framed(reinterpret_cast<const char*>(&request.number), sizeof request.number);
  framed += body;
  return zeromq().send(socket, request.peer.data(), request.peer.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
         zeromq().send(socket, framed.data(), framed.size(), ZMQ_DONTWAIT) >= 0;
}

}  // namespace rondo::control
