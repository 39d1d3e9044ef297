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
  int status = 0;         // such as 200 or 503; 0 without a response
  std::string body = {};  // at most the first HttpClient::kLongestBody bytes of the response
  Duration retry_after = Duration::zero();  // value of the header Retry-After; zero without one
  std::string error = {};                   // with status 0: "Connection refused"
};

// Sends requests to one URL over a connection that is kept, by libcurl. Uses the proxies of the environment
// (https_proxy, no_proxy), and none for this host itself. Does not follow redirections. Not thread-safe;
// blocks no signals.
class HttpClient {
 public:
  static constexpr std::size_t kLongestBody = 65'536;

  struct Options {
    std::string url;                                           // "http://host:4318/v1/traces"
    std::vector<std::pair<std::string, std::string>> headers;  // additional header lines
    Duration timeout = std::chrono::seconds(10);               // limit of a request, including the connection
    std::string certificates;  // a file of certificates to trust; empty: those of the system
  };
  // Throws Error where libcurl cannot be loaded.
  explicit HttpClient(const Options& options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Posts `body` and blocks until the response or the timeout. Calls `cancelled` about once a second, and
  // more often while bytes are transferred; if it returns true, the request ends with an error.
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
