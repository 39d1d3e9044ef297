#include "rondo/control/curl.h"

#include <array>

#include "rondo/base/error.h"
#include "rondo/control/loaded_library.h"

namespace rondo::control {
namespace {

// With OpenSSL, then with GnuTLS: one interface.
constexpr std::array kNames = {"libcurl.so.4", "libcurl-gnutls.so.4"};

Curl load() {
  const LoadedLibrary library(kNames, "HTTP requests are sent through libcurl",
                              "On Debian or Ubuntu: apt-get install libcurl4");
  Curl result{};
  library.find(result.global_init, "curl_global_init");
  library.find(result.easy_init, "curl_easy_init");
  library.find(result.easy_setopt, "curl_easy_setopt");
  library.find(result.easy_perform, "curl_easy_perform");
  library.find(result.easy_getinfo, "curl_easy_getinfo");
  library.find(result.easy_cleanup, "curl_easy_cleanup");
  library.find(result.easy_strerror, "curl_easy_strerror");
  library.find(result.slist_append, "curl_slist_append");
  library.find(result.slist_free_all, "curl_slist_free_all");
  if (result.global_init(kCurlGlobalDefault) != 0) throw Error("libcurl cannot be initialised");
  return result;
}

}  // namespace

const Curl& curl() {
  static const Curl functions = load();
  return functions;
}

}  // namespace rondo::control
