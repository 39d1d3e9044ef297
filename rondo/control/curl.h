#pragma once

#include <cstddef>

namespace rondo::control {

// The part of libcurl's C interface that rondo uses. Its names, numbers and types have been the same since
// libcurl.so.4 (2006; CURLINFO_RETRY_AFTER since 7.66), so no header of libcurl is needed to build rondo;
// tests/control/curl_interface_test.cpp compares them with <curl/curl.h>.
struct Curl {
  using Handle = void*;
  using List = void*;  // list of header lines

  int (*global_init)(long flags);
  Handle (*easy_init)();
  int (*easy_setopt)(Handle handle, int option, ...);
  int (*easy_perform)(Handle handle);
  int (*easy_getinfo)(Handle handle, int info, ...);
  void (*easy_cleanup)(Handle handle);
  const char* (*easy_strerror)(int code);
  List (*slist_append)(List list, const char* text);
  void (*slist_free_all)(List list);
};

// CURLoption, each with the type of its argument.
enum CurlOption : int {
  kCurlNoProgress = 43,           // long
  kCurlPostSize = 60,             // long: bytes of kCurlPostFields
  kCurlNoSignal = 99,             // long
  kCurlTimeoutMs = 155,           // long: timeout of a whole request
  kCurlConnectTimeoutMs = 156,    // long
  kCurlProtocols = 181,           // long: allowed protocols, bits of kCurlHttp and kCurlHttps
  kCurlQuickExit = 322,           // long, since 7.87: a cleanup does not wait for a name to be resolved
  kCurlWriteData = 10001,         // pointer
  kCurlUrl = 10002,               // text
  kCurlProxy = 10004,             // text; "" disables proxies, even if the environment names one
  kCurlErrorBuffer = 10010,       // char[kCurlErrorSize]
  kCurlPostFields = 10015,        // text, which is not copied
  kCurlUserAgent = 10018,         // text
  kCurlHttpHeader = 10023,        // List
  kCurlProgressData = 10057,      // pointer
  kCurlCaInfo = 10065,            // text: a file of certificates
  kCurlWriteFunction = 20011,     // size_t (*)(char*, size_t, size_t, void*)
  kCurlProgressFunction = 20219,  // int (*)(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t)
};

// CURLINFO.
enum CurlInfo : int {
  kCurlResponseCode = 0x200000 + 2,  // long*
  kCurlRetryAfter = 0x600000 + 57    // curl_off_t*: seconds, from seconds or a date; 0 is none
};

inline constexpr long kCurlHttp = 1, kCurlHttps = 2;  // CURLPROTO
inline constexpr long kCurlGlobalDefault = 3;
inline constexpr std::size_t kCurlErrorSize = 256;

// Returns libcurl's functions. The first call loads the library, which stays until the process ends. Throws
// Error naming the package if it cannot be loaded. Any thread.
const Curl& curl();

}  // namespace rondo::control
