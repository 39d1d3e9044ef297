#include "rondo/control/http_page.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "rondo/base/error.h"

namespace rondo::http_page_test {
namespace {

int port_of(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }

int connected(int port) {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(descriptor, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return descriptor;
}

void send_text(int descriptor, const std::string& text) {
  EXPECT_EQ(::send(descriptor, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Reads until the header and the announced number of bytes have arrived, as a client does.
std::string answer_of(int descriptor) {
  std::string answer;
  for (char bytes[4096];;) {
    const std::size_t head = answer.find("\r\n\r\n");
    const std::size_t length = answer.find("Content-Length: ");
    if (head != std::string::npos && length != std::string::npos &&
        answer.size() >= head + 4 + std::stoul(answer.substr(length + 16)))
      break;
    const ssize_t got = ::recv(descriptor, bytes, sizeof bytes, 0);
    if (got <= 0) break;
    answer.append(bytes, static_cast<std::size_t>(got));
  }
  ::close(descriptor);
  return answer;
}

std::string asked(int port, const std::string& request) {
  const int descriptor = connected(port);
  send_text(descriptor, request);
  return answer_of(descriptor);
}

TEST(HttpPage, AnswersWithTheTextOfTheMoment) {
  std::atomic<int> calls = 0;
  const control::HttpPage page({.address = "127.0.0.1:0"},
                               [&] { return "calls " + std::to_string(++calls); });
  EXPECT_EQ(page.url().find("http://127.0.0.1:"), 0U);
  const int port = port_of(page.url());
  for (int call = 1; call <= 200; ++call) {  // more than the connections that it remembers
    const std::string answer = asked(port, "GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(answer.find("HTTP/1.0 200"), 0U) << answer;
    EXPECT_NE(answer.find("\r\n\r\ncalls " + std::to_string(call)), std::string::npos) << answer;
  }
}

TEST(HttpPage, RefusesEverythingElse) {
  const control::HttpPage page({.address = "127.0.0.1:0"}, [] { return "figures"; });
  const int port = port_of(page.url());
  EXPECT_NE(asked(port, "GET /etc/passwd HTTP/1.0\r\n\r\n").find(" 404 "), std::string::npos);
  EXPECT_NE(asked(port, "POST /metrics HTTP/1.0\r\n\r\n").find(" 405 "), std::string::npos);
  EXPECT_NE(asked(port, "\r\n\r\n").find(" 400 "), std::string::npos);
  EXPECT_NE(asked(port, std::string(9000, 'x')).find(" 431 "), std::string::npos);
  const int slow = connected(port);  // incomplete request that never continues
  send_text(slow, "GET /met");
  const int pieces = connected(port);
  send_text(pieces, "GET /metrics HTTP/1.0\r\n");
  send_text(pieces, "\r\n");
  EXPECT_NE(answer_of(pieces).find("figures"), std::string::npos);
  ::close(slow);
}

TEST(HttpPage, NamesAnAddressThatItCannotHave) {
  const control::HttpPage page({.address = "127.0.0.1:0"}, [] { return ""; });
  const std::string taken = "127.0.0.1:" + std::to_string(port_of(page.url()));
  try {
    const control::HttpPage other({.address = taken}, [] { return ""; });
    FAIL() << "two pages at one address";
  } catch (const CommunicationError& e) {
    EXPECT_NE(std::string(e.what()).find(taken), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace rondo::http_page_test
