#pragma once

#include <functional>
#include <memory>
#include <string>

namespace rondo::control {

// One text that others fetch by HTTP: GET PATH answers with it, everything else with an error. A thread of
// its own serves; it reads requests of at most 8 KiB, one a connection, and the answer says that the
// connection is to be closed. Whoever reaches the address may read: there is no secret.
class HttpPage {
 public:
  struct Options {
    std::string address;  // "host:port"; port 0 is a free one
    std::string path = "/metrics";
    std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
  };
  // `text` is called by the page's thread at each request. Throws CommunicationError naming the address.
  HttpPage(Options options, std::function<std::string()> text);
  ~HttpPage();
  HttpPage(const HttpPage&) = delete;
  HttpPage& operator=(const HttpPage&) = delete;

  // "http://127.0.0.1:9464/metrics", with the port that it has.
  const std::string& url() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::control
