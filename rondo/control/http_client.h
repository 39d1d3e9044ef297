#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::control {

// A server's response to a request, or the reason why there is none.
struct HttpResponse {
  int status = 0;                           // 200, 503; 0 without a response
  std::string body = {};                    // at most HttpClient::kLongestBody bytes of it
  Duration retry_after = Duration::zero();  // of the header Retry-After; zero without one
  std::string error = {};                   // with status 0: "Connection refused"
};

// Sends requests to one URL over a connection that is kept, by libcurl. Proxies are those of the environment
// (https_proxy, no_proxy), and none for this host itself. Redirections are not followed. Not thread-safe;
// blocks no signal.
class HttpClient {
 public:
  static constexpr std::size_t kLongestBody = 65'536;

  struct Options {
    std::string url;                                           // "http://host:4318/v1/traces"
    std::vector<std::pair<std::string, std::string>> headers;  // besides those of every request
    Duration timeout = std::chrono::seconds(10);               // of a request with its connection
    std::string certificates;  // a file of certificates to trust; empty: those of the system
  };
  // Throws Error where libcurl cannot be loaded.
  explicit HttpClient(const Options& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Posts `body` and blocks until the response or the timeout. `cancelled` is asked about once a second, and
  // more often while bytes move; true ends the request with an error.
  HttpResponse post(const std::string& body, const std::function<bool()>& cancelled);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the URL without its name and password, for messages.
std::string without_user(const std::string& url);

// Throws UsageError naming `what` unless `url` begins with http:// or https:// and a host.
void check_http_url(const std::string& url, const std::string& what);

}  // namespace rondo::control
