#include "rondo/control/connection.h"

#include <algorithm>
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
  if (!state_->socket) throw_zmq("ZeroMQ cannot create a socket");
  // The client waits for the last answer, which a listener may give right before it ends.
  state_->socket.get_deleter().linger_ms = 2000;
  const ZmqSocket& socket = state_->socket;
  const int server = 1, refuse_unreachable = 1, handshake_ms = 5000;
  set_option(socket, ZMQ_CURVE_SERVER, server, "CURVE");
  set_option(socket, ZMQ_CURVE_SECRETKEY, secret.secret_key(), "the job's key");
  set_option(socket, ZMQ_ROUTER_MANDATORY, refuse_unreachable, "errors for peers that are gone");
  set_option(socket, ZMQ_HANDSHAKE_IVL, handshake_ms, "the time of a handshake");
  set_limits(socket, limits);
  // Heartbeats detect a silent peer and free its queue.
  const int beat_ms = 2000, silence_ms = 10000;
  set_option(socket, ZMQ_HEARTBEAT_IVL, beat_ms, "heartbeats");
  set_option(socket, ZMQ_HEARTBEAT_TIMEOUT, silence_ms, "heartbeats");
  if (zeromq().bind(socket.get(), str("tcp://", address).c_str()) != 0)
    throw_zmq(str("cannot listen at ", address));
  std::array<char, 256> endpoint{};
  std::size_t size = endpoint.size();
  zeromq().getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint.data(), &size);
  state_->address = std::string(endpoint.data()).substr(6);  // text after "tcp://"
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
  // Requests have one part after the peer's name; other messages are ignored.
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

namespace {

// Number of refusals that prove a different secret. A listener with another key closes the connection in the
// handshake; one that is being killed may do so too, once. ZeroMQ reports such a connection twice: a
// handshake that failed without a detail, and a disconnection.
constexpr int kRefusalsThatCount = 2;

}  // namespace

struct Connection::State {
  std::string address;
  std::string who;
  std::string whom;
  std::string secret_origin;
  ZmqContext context;
  ZmqSocket socket;
  ZmqSocket events;  // monitor of the connection: the only report of a refused handshake
  std::uint64_t asked = 0;
  bool connected = false;  // the handshake of the current connection is done
  bool met = false;        // an earlier handshake succeeded
  int refusals = 0;        // connections that ended during the handshake
  int losses = 0;          // connections that ended later

  void take_events() {
    for (;;) {
      ZmqMessage event;
      if (!event.receive(events, ZMQ_DONTWAIT)) return;
      std::uint16_t kind = 0;
      std::memcpy(&kind, event.text().data(), sizeof kind);
      for (bool more = event.more(); more;) {
        ZmqMessage rest;
        if (!rest.receive(events, ZMQ_DONTWAIT)) return;
        more = rest.more();
      }
      if (kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        connected = met = true;
        refusals = 0;
      } else if (kind == ZMQ_EVENT_DISCONNECTED && connected) {
        connected = false;
        ++losses;
      } else if (kind == ZMQ_EVENT_DISCONNECTED || kind == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL ||
                 kind == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
        ++refusals;
      }
    }
  }
};

Connection::Connection(std::string address, const JobSecret& secret, std::string who, std::string whom,
                       const Limits& limits)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.address = std::move(address);
  state.who = std::move(who);
  state.whom = std::move(whom);
  state.secret_origin = secret.origin();
  state.context.reset(zeromq().ctx_new());
  state.socket.reset(zeromq().socket(state.context.get(), ZMQ_DEALER));
  if (!state.socket) throw_zmq("ZeroMQ cannot create a socket");
  const ZmqSocket& socket = state.socket;
  std::array<char, 41> own_public{}, own_secret{};
  if (zeromq().curve_keypair(own_public.data(), own_secret.data()) != 0)
    throw_zmq("ZeroMQ cannot create a CURVE keys");
  set_option(socket, ZMQ_CURVE_SERVERKEY, secret.public_key(), "the job's key");
  set_option(socket, ZMQ_CURVE_PUBLICKEY, std::string(own_public.data()), "a key of this process");
  set_option(socket, ZMQ_CURVE_SECRETKEY, std::string(own_secret.data()), "a key of this process");
  set_limits(socket, limits);
  // Without ZMQ_IMMEDIATE: with it, a connection that ends discards answers that arrived and were not read
  // yet.
  const int again_ms = 20, slowest_again_ms = 200;
  set_option(socket, ZMQ_RECONNECT_IVL, again_ms, "reconnecting");
  set_option(socket, ZMQ_RECONNECT_IVL_MAX, slowest_again_ms, "reconnecting");
  constexpr const char* kEvents = "inproc://events";
  zeromq().socket_monitor(socket.get(), kEvents, ZMQ_EVENT_ALL);
  state.events.reset(zeromq().socket(state.context.get(), ZMQ_PAIR));
  zeromq().connect(state.events.get(), kEvents);
  if (zeromq().connect(socket.get(), str("tcp://", state.address).c_str()) != 0)
    throw_zmq(str(state.who, " cannot connect to ", state.whom, " at ", state.address));
}

Connection::~Connection() = default;

const std::string& Connection::address() const { return state_->address; }
const std::string& Connection::whom() const { return state_->whom; }

std::string Connection::ask(const std::string& body, const Deadline& deadline) {
  State& state = *state_;
  // The number distinguishes the answer from a late one to an earlier request that timed out.
  const std::uint64_t number = ++state.asked;
  std::string framed(reinterpret_cast<const char*>(&number), sizeof number);
  framed += body;
  bool sent = false;
  int losses = 0;
  while (true) {
    state.take_events();
    if (!state.met && state.refusals >= kRefusalsThatCount) {
      throw CommunicationError(
          str(state.whom, " at ", state.address, " refuses ", state.who,
              ": it has another job secret than the one of ", state.who, " (", state.secret_origin,
              "). All processes of a job must be given the same secret, in RONDO_SECRET_FILE"),
          {});
    }
    if (sent && losses != state.losses) sent = false;  // the request may be lost with the connection
    losses = state.losses;
    // The message waits here, not in the queue of a connection that may never be made.
    if (!sent && state.connected)
      sent = zeromq().send(state.socket.get(), framed.data(), framed.size(), ZMQ_DONTWAIT) >= 0;
    std::array<zmq_pollitem_t, 2> items = {zmq_pollitem_t{state.socket.get(), 0, ZMQ_POLLIN, 0},
                                           zmq_pollitem_t{state.events.get(), 0, ZMQ_POLLIN, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining()).count();
    zeromq().poll(items.data(), 2, static_cast<long>(std::clamp<long long>(left, 1, sent ? 100 : 5)));
    ZmqMessage answer;
    if (answer.receive(state.socket, ZMQ_DONTWAIT)) {
      const std::string text = answer.text();
      if (text.size() >= sizeof number && std::memcmp(text.data(), &number, sizeof number) == 0)
        return text.substr(sizeof number);
      continue;
    }
    if (!deadline.passed()) continue;
    throw TimeoutError(str(state.whom, " at ", state.address, " did not answer ", state.who, " in time: ",
                           !state.met         ? "no connection was established"
                           : !state.connected ? "the connection is lost"
                           : !sent            ? "its queue is full"
                                              : "it has received the request",
                           ", a message of ", body.size(), " bytes"),
                       {});
  }
}

}  // namespace rondo::control
