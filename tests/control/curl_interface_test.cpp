// rondo declares libcurl's interface itself (control/curl.h); here it is compared with libcurl's header.

#include <gtest/gtest.h>

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>

#include "rondo/control/curl.h"

namespace rondo::curl_interface_test {
namespace {

using namespace control;

TEST(CurlInterface, IsThatOfTheHeader) {
  EXPECT_EQ(static_cast<int>(kCurlNoProgress), CURLOPT_NOPROGRESS);
  EXPECT_EQ(static_cast<int>(kCurlPostSize), CURLOPT_POSTFIELDSIZE);
  EXPECT_EQ(static_cast<int>(kCurlNoSignal), CURLOPT_NOSIGNAL);
  EXPECT_EQ(static_cast<int>(kCurlTimeoutMs), CURLOPT_TIMEOUT_MS);
  EXPECT_EQ(static_cast<int>(kCurlConnectTimeoutMs), CURLOPT_CONNECTTIMEOUT_MS);
  EXPECT_EQ(static_cast<int>(kCurlWriteData), CURLOPT_WRITEDATA);
  EXPECT_EQ(static_cast<int>(kCurlUrl), CURLOPT_URL);
  EXPECT_EQ(static_cast<int>(kCurlProxy), CURLOPT_PROXY);
  EXPECT_EQ(static_cast<int>(kCurlErrorBuffer), CURLOPT_ERRORBUFFER);
  EXPECT_EQ(static_cast<int>(kCurlPostFields), CURLOPT_POSTFIELDS);
  EXPECT_EQ(static_cast<int>(kCurlUserAgent), CURLOPT_USERAGENT);
  EXPECT_EQ(static_cast<int>(kCurlHttpHeader), CURLOPT_HTTPHEADER);
  EXPECT_EQ(static_cast<int>(kCurlProgressData), CURLOPT_XFERINFODATA);
  EXPECT_EQ(static_cast<int>(kCurlCaInfo), CURLOPT_CAINFO);
  EXPECT_EQ(static_cast<int>(kCurlWriteFunction), CURLOPT_WRITEFUNCTION);
  EXPECT_EQ(static_cast<int>(kCurlProgressFunction), CURLOPT_XFERINFOFUNCTION);
  EXPECT_EQ(static_cast<int>(kCurlResponseCode), CURLINFO_RESPONSE_CODE);
#if LIBCURL_VERSION_NUM >= 0x074200
  EXPECT_EQ(static_cast<int>(kCurlRetryAfter), CURLINFO_RETRY_AFTER);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  EXPECT_EQ(static_cast<int>(kCurlQuickExit), CURLOPT_QUICK_EXIT);
#endif
  EXPECT_EQ(kCurlHttp, CURLPROTO_HTTP);
  EXPECT_EQ(kCurlHttps, CURLPROTO_HTTPS);
  EXPECT_EQ(kCurlGlobalDefault, CURL_GLOBAL_DEFAULT);
  EXPECT_EQ(kCurlErrorSize, static_cast<std::size_t>(CURL_ERROR_SIZE));
  static_assert(sizeof(curl_off_t) == sizeof(std::int64_t));
}

}  // namespace
}  // namespace rondo::curl_interface_test
#else
TEST(CurlInterface, IsThatOfTheHeader) { GTEST_SKIP() << "libcurl's headers are not installed"; }
#endif
