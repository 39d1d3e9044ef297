#include "rondo/control/http_client.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/control/curl.h"

namespace rondo::control {
namespace {

constexpr Duration kConnectTimeout = std::chrono::seconds(5);

long whole_milliseconds(Duration duration) {
  return std::max<long>(1, static_cast<long>(milliseconds(duration)));
}

// A URL without its user: "http://", "host:80", "/path". All but the last are empty without a scheme.
struct UrlParts {
  std::string_view scheme, host_and_port, path;
};

UrlParts parts_of(std::string_view url) {
  const std::size_t colon = url.find("://");
  if (colon == std::string_view::npos) return {{}, {}, url};
  const std::size_t begin = colon + 3;
  const std::size_t end = std::min(url.size(), url.find_first_of("/?#", begin));
  const std::string_view authority = url.substr(begin, end - begin);
  return {url.substr(0, begin), authority.substr(authority.rfind('@') + 1), url.substr(end)};
}

// Returns "host" or "::1"; empty if there is none.
std::string host_of(std::string_view url) {
  const std::string_view host = parts_of(url).host_and_port;
  if (!host.starts_with('[')) return std::string(host.substr(0, host.find(':')));
  const std::size_t end = host.find(']');
  return std::string(host.substr(1, end == std::string_view::npos ? 0 : end - 1));
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::size_t keep_body(char* bytes, std::size_t size, std::size_t count, void* body) {
  auto& kept = *static_cast<std::string*>(body);
  kept.append(bytes, std::min(size * count, HttpClient::kLongestBody - kept.size()));
  return size * count;
}

int ask_whether_cancelled(void* cancelled, std::int64_t, std::int64_t, std::int64_t, std::int64_t) {
  return (*static_cast<const std::function<bool()>*>(cancelled))() ? 1 : 0;
}

}  // namespace

std::string without_user(const std::string& url) {
  const UrlParts parts = parts_of(url);
  return str(parts.scheme, parts.host_and_port, parts.path);
}

void check_http_url(const std::string& url, const std::string& what) {
  const bool is_http = url.starts_with("http://") || url.starts_with("https://");
  if (!is_http || host_of(url).empty() || url.find_first_of(" \t\r\n") != std::string::npos)
    throw UsageError(str(what, " ", url, ": expected a URL, such as http://localhost:4318"));
}

struct HttpClient::State {
  Curl::Handle handle = nullptr;
  Curl::List headers = nullptr;
  std::array<char, kCurlErrorSize> error{};

  ~State() {
    if (handle != nullptr) curl().easy_cleanup(handle);
    if (headers != nullptr) curl().slist_free_all(headers);
  }
};

HttpClient::HttpClient(const Options& options) : state_(std::make_unique<State>()) {
  const Curl& library = curl();
  State& state = *state_;
  state.handle = library.easy_init();
  if (state.handle == nullptr) throw Error("libcurl cannot create a handle");
  const auto add_header = [&](const std::string& line) {
    state.headers = library.slist_append(state.headers, line.c_str());
  };
  // libcurl would otherwise wait for "100 Continue" before longer bodies.
  add_header("Expect:");
  for (const auto& [name, value] : options.headers) add_header(str(name, ": ", value));
  const auto set = [&](CurlOption option, auto value) { library.easy_setopt(state.handle, option, value); };
  set(kCurlUrl, options.url.c_str());
  set(kCurlUserAgent, "rondo/" RONDO_VERSION);
  set(kCurlHttpHeader, state.headers);
  set(kCurlProtocols, kCurlHttp | kCurlHttps);
  set(kCurlNoSignal, 1L);
  set(kCurlQuickExit, 1L);  // an older libcurl rejects this option, which does no harm
  set(kCurlTimeoutMs, whole_milliseconds(options.timeout));
  set(kCurlConnectTimeoutMs, whole_milliseconds(std::min(options.timeout, kConnectTimeout)));
  set(kCurlErrorBuffer, state.error.data());
  set(kCurlWriteFunction, &keep_body);
  set(kCurlProgressFunction, &ask_whether_cancelled);
  set(kCurlNoProgress, 0L);
  if (is_loopback(host_of(options.url))) set(kCurlProxy, "");
  if (!options.certificates.empty()) set(kCurlCaInfo, options.certificates.c_str());
}

HttpClient::~HttpClient() = default;

HttpResponse HttpClient::post(const std::string& body, const std::function<bool()>& cancelled) {
  const Curl& library = curl();
  State& state = *state_;
  HttpResponse response;
  state.error.front() = '\0';
  library.easy_setopt(state.handle, kCurlPostSize, static_cast<long>(body.size()));
  library.easy_setopt(state.handle, kCurlPostFields, body.c_str());
  library.easy_setopt(state.handle, kCurlWriteData, &response.body);
  library.easy_setopt(state.handle, kCurlProgressData, &cancelled);
  const int result = library.easy_perform(state.handle);
  if (result != 0) {
    response.error = state.error.front() != '\0' ? state.error.data() : library.easy_strerror(result);
    response.body.clear();
    return response;
  }
  long status = 0;
  std::int64_t retry_after = 0;
  library.easy_getinfo(state.handle, kCurlResponseCode, &status);
  library.easy_getinfo(state.handle, kCurlRetryAfter, &retry_after);
  response.status = static_cast<int>(status);
  response.retry_after = bounded_duration(std::chrono::seconds(retry_after));
  return response;
}

}  // namespace rondo::control
