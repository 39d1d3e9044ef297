#include "rondo/control/http_page.h"

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <thread>

#include "rondo/control/zeromq.h"

namespace rondo::control {
namespace {

constexpr std::size_t kLongestRequest = 8192;
constexpr std::size_t kMostConnections = 64;  // connections with an incomplete request

std::string http_answer(std::string_view status, const std::string& type, const std::string& body) {
  return str("HTTP/1.0 ", status, "\r\nContent-Type: ", type, "\r\nContent-Length: ", body.size(),
             "\r\nConnection: close\r\n\r\n", body);
}

}  // namespace

struct HttpPage::State {
  Options options;
  std::function<std::string()> text;
  std::string url;
  ZmqContext context;
  ZmqSocket socket;  // ZMQ_STREAM: raw bytes by connection; used only by the thread while it runs
  std::map<std::string, std::string> begun;  // thread only: incomplete requests by connection
  std::deque<std::string>
      answered;  // used by the thread only: most recently answered connections, which may still be open
  std::atomic<bool> ends = false;  // checked by the thread several times a second
  std::thread thread;

  std::string answer_to(std::string_view request) const {
    const std::string plain = "text/plain; charset=utf-8";
    const std::string_view line = request.substr(0, request.find('\r'));
    const std::size_t method_end = line.find(' ');
    if (method_end == std::string_view::npos)
      return http_answer("400 Bad Request", plain, "no request line\n");
    std::string_view target = line.substr(method_end + 1);
    target = target.substr(0, target.find_first_of(" ?"));
    if (line.substr(0, method_end) != "GET")
      return http_answer("405 Method Not Allowed", plain, "GET only\n");
    if (target != options.path)
      return http_answer("404 Not Found", plain, str("the only page is ", options.path, "\n"));
    try {
      return http_answer("200 OK", options.content_type, text());
    } catch (const std::exception& e) {
      return http_answer("500 Internal Server Error", plain, str(e.what(), "\n"));
    }
  }

  // An empty part would close the connection at once and discard unsent data. So the client, which knows the
  // length of the answer, closes it; only a client that keeps it open too long is disconnected.
  void send(const std::string& peer, const std::string& bytes) {
    if (zeromq().send(socket.get(), peer.data(), peer.size(), ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0)
      zeromq().send(socket.get(), bytes.data(), bytes.size(), ZMQ_DONTWAIT);
  }

  void take(const std::string& peer, const std::string& bytes) {
    if (!begun.contains(peer) && begun.size() >= kMostConnections) {
      send(begun.begin()->first, "");
      begun.erase(begun.begin());
    }
    std::string& request = begun[peer];
    request += bytes;
    const bool whole = request.find("\r\n\r\n") != std::string::npos;
    if (!whole && request.size() <= kLongestRequest) return;
    send(peer, whole ? answer_to(request)
                     : http_answer("431 Request Header Fields Too Large", "text/plain", "too long\n"));
    begun.erase(peer);
    answered.push_back(peer);
    if (answered.size() <= kMostConnections) return;
    send(answered.front(), "");
    answered.pop_front();
  }

  void serve() {
    while (!ends.load(std::memory_order_relaxed)) {
      zmq_pollitem_t item{socket.get(), 0, ZMQ_POLLIN, 0};
      if (zeromq().poll(&item, 1, 100) <= 0) continue;
      ZmqMessage peer, bytes;
      if (!peer.receive(socket, ZMQ_DONTWAIT) || !peer.more() || !bytes.receive(socket, ZMQ_DONTWAIT))
        continue;
      take(peer.text(), bytes.text());
    }
  }
};

HttpPage::HttpPage(Options options, std::function<std::string()> text) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->text = std::move(text);
  state_->context.reset(zeromq().ctx_new());
  state_->socket.reset(zeromq().socket(state_->context.get(), ZMQ_STREAM));
  if (!state_->socket) throw_zmq("ZeroMQ cannot create a socket");
  const ZmqSocket& socket = state_->socket;
  const int no_word_of_connections = 0;
  set_option(socket, ZMQ_STREAM_NOTIFY, no_word_of_connections, "silence about connections");
  if (zeromq().bind(socket.get(), str("tcp://", state_->options.address).c_str()) != 0)
    throw_zmq(str("cannot listen at ", state_->options.address));
  std::array<char, 256> endpoint{};
  std::size_t size = endpoint.size();
  zeromq().getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, endpoint.data(), &size);
  state_->url = str("http://", std::string_view(endpoint.data()).substr(6), state_->options.path);
  state_->thread = std::thread([state = state_.get()] { state->serve(); });
}

HttpPage::~HttpPage() {
  state_->ends.store(true, std::memory_order_relaxed);
  state_->thread.join();
}

const std::string& HttpPage::url() const { return state_->url; }

}  // namespace rondo::control
