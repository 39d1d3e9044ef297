#pragma once

#include <functional>
#include <memory>
#include <string>

namespace rondo::control {

// A server of one text by HTTP: GET PATH returns the text, everything else an error. A thread of its own
// serves; it reads requests of at most 8 KiB, one per connection, and the answer tells the client to close
// the connection. There is no secret: every client that reaches the address may read.
class HttpPage {
 public:
  struct Options {
    std::string address;  // "host:port"; port 0 is a free one
    std::string path = "/metrics";
    std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
  };
  // Starts to serve. The page's thread calls `text` at each request. Throws CommunicationError naming the
  // address.
  HttpPage(Options options, std::function<std::string()> text);
  ~HttpPage();
  HttpPage(const HttpPage&) = delete;
  HttpPage& operator=(const HttpPage&) = delete;

  // Returns "http://127.0.0.1:9464/metrics", with the actual port.
  const std::string& url() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::control
