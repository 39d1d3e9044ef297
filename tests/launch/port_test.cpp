#include "rondo/launch/network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/descriptor.h"

namespace rondo::launch::port_test {
namespace {

// Listens like a server, even on a port in TIME_WAIT.
Descriptor listen_on_loopback(int port) {
  Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(listener.number(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) listener.reset();
  if (listener.valid()) listen(listener.number(), 1);
  return listener;
}

TEST(Port, AFreeOneIsFreeAndLeftFree) {
  const int port = find_free_port();
  require_free_port("127.0.0.1", port);
  EXPECT_EQ(port_owner(port), "");
  EXPECT_TRUE(listen_on_loopback(port).valid());
}

TEST(Port, ATakenOneNamesItsOwner) {
  const int port = find_free_port();
  const Descriptor listener = listen_on_loopback(port);
  ASSERT_TRUE(listener.valid());
  EXPECT_EQ(port_owner(port), str("pid ", getpid(), " (launch_test), which listens on 127.0.0.1:", port));
  try {
    require_free_port("127.0.0.1", port);
    FAIL();
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(str("127.0.0.1:", port)), std::string::npos) << message;
    EXPECT_NE(message.find(str("pid ", getpid())), std::string::npos) << message;
  }
}

TEST(Port, AnotherHostsIsNotOurs) {
  const int port = find_free_port();
  const Descriptor listener = listen_on_loopback(port);
  require_free_port("192.0.2.1", port);  // an address reserved for documentation
}

}  // namespace
}  // namespace rondo::launch::port_test
