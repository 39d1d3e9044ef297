#include "rondo/control/http_client.h"

#include <gtest/gtest.h>

#include "rondo/base/error.h"
#include "rondo/control/http_page.h"

namespace rondo::http_client_test {
namespace {

using control::check_http_url;
using control::HttpClient;
using control::HttpPage;

const std::function<bool()> kNever = [] { return false; };

TEST(HttpClient, ReturnsTheStatusAndTheBody) {
  const HttpPage page({.address = "127.0.0.1:0"}, [] { return "figures"; });
  HttpClient client({.url = page.url(), .headers = {{"X-Key", "value"}}, .certificates = {}});
  for (int request = 0; request < 3; ++request) {
    const control::HttpResponse response = client.post("{}", kNever);
    EXPECT_EQ(response.status, 405);
    EXPECT_EQ(response.body, "GET only\n");
    EXPECT_EQ(response.error, "");
  }
}

TEST(HttpClient, GoesThroughNoProxyToThisHost) {
  const HttpPage page({.address = "127.0.0.1:0"}, [] { return "figures"; });
  ::setenv("http_proxy", "http://127.0.0.1:1", 1);
  HttpClient client({.url = page.url(), .headers = {}, .certificates = {}});
  EXPECT_EQ(client.post("{}", kNever).status, 405);
  ::unsetenv("http_proxy");
}

TEST(HttpClient, SaysWhyThereIsNoResponse) {
  HttpClient client({.url = "http://127.0.0.1:1/v1/traces", .headers = {}, .certificates = {}});
  const control::HttpResponse response = client.post("{}", kNever);
  EXPECT_EQ(response.status, 0);
  EXPECT_NE(response.error.find("127.0.0.1"), std::string::npos) << response.error;
}

TEST(HttpClient, KnowsWhichTextsAreUrls) {
  for (const char* url :
       {"http://localhost:4318", "https://host/path?x=1", "http://[::1]:4318", "http://a@b"})
    EXPECT_NO_THROW(check_http_url(url, "endpoint")) << url;
  for (const char* url :
       {"", "localhost:4318", "ftp://host", "http://", "http:///path", "http://[]:1", "http://a b"}) {
    try {
      check_http_url(url, "endpoint");
      ADD_FAILURE() << url;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("endpoint"), std::string::npos);
    }
  }
}

TEST(HttpClient, ShowsUrlsWithoutNameAndPassword) {
  using control::without_user;
  EXPECT_EQ(without_user("https://user:secret@host:80/path?x=@1"), "https://host:80/path?x=@1");
  EXPECT_EQ(without_user("http://a@b@[::1]"), "http://[::1]");
  for (const std::string url : {"http://host/a@b", "http://host?a@b", "host@path", ""})
    EXPECT_EQ(without_user(url), url);
}

}  // namespace
}  // namespace rondo::http_client_test
