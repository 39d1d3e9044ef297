#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <thread>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/control/connection.h"
#include "rondo/control/message.h"
#include "rondo/control/secret.h"
#include "tests/errors.h"
#include "tests/temporary_directory.h"

namespace rondo::control_test {
namespace {

using control::Connection;
using control::JobSecret;
using control::Limits;
using control::Listener;
using control::MessageReader;
using control::MessageWriter;
using testing::expect_facts;
using testing::message_of;

Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

// Answers every request with "<body>!" until it is destroyed.
class Echo {
 public:
  explicit Echo(const JobSecret& secret, const Limits& limits = {},
                const std::string& address = "127.0.0.1:0")
      : listener_(address, secret, limits), thread_([this](std::stop_token stop) {
          while (!stop.stop_requested()) {
            if (const auto request = listener_.receive(std::chrono::milliseconds(20)))
              listener_.answer(*request, request->body + "!");
          }
        }) {}
  const std::string& address() const { return listener_.address(); }

 private:
  Listener listener_;
  std::jthread thread_;
};

// Suspends a thread at any point, as a busy machine may do. One at a time.
class HeldThread {
 public:
  explicit HeldThread(pthread_t thread) {
    if (pipe(held_) != 0 || pipe(let_go_) != 0) throw Error("no pipes");
    struct sigaction action {};
    action.sa_handler = [](int) {
      char byte = 0;
      (void)(write(held_[1], &byte, 1) + read(let_go_[0], &byte, 1));
    };
    sigaction(SIGUSR1, &action, &before_);
    pthread_kill(thread, SIGUSR1);
    char byte = 0;
    EXPECT_EQ(read(held_[0], &byte, 1), 1);
  }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;
  ~HeldThread() {
    const char byte = 0;
    EXPECT_EQ(write(let_go_[1], &byte, 1), 1);
    sigaction(SIGUSR1, &before_, nullptr);
  }

 private:
  static inline int held_[2];
  static inline int let_go_[2];
  struct sigaction before_ {};
};

// Returns whether a TCP connection to this port of this host is open, or closed by the other side only.
bool is_connected_to(const std::string& address) {
  constexpr int kEstablished = 1, kCloseWait = 8;
  const auto port = static_cast<unsigned>(parse_integer(address.substr(address.rfind(':') + 1), "port"));
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    unsigned remote_port = 0, state = 0;
    if (std::sscanf(line.c_str(), " %*d: %*x:%*x %*x:%x %x", &remote_port, &state) == 2 &&
        remote_port == port && (state == kEstablished || state == kCloseWait))
      return true;
  }
  return false;
}

// A server ends after its last worker has said goodbye. That worker waits for the answer, and may read it
// only after the server has ended.
TEST(Listener, SendsItsLastAnswerBeforeItEnds) {
  const JobSecret secret = JobSecret::make();
  auto listener = std::make_unique<Listener>("127.0.0.1:0", secret);
  const std::string address = listener->address();
  Connection connection(address, secret, "worker 0", "server 0");
  const pthread_t asker = pthread_self();
  std::jthread thread([&] {
    std::optional<control::Request> request;
    while (!request) request = listener->receive(std::chrono::milliseconds(20));
    const HeldThread held(asker);
    // More than one send transfers.
    listener->answer(*request, std::string(MiB(16).count, 'x'));
    listener.reset();
    // The client's kernel sees the connection end before the client reads.
    for (const Deadline deadline = soon(); is_connected_to(address) && !deadline.passed();)
      std::this_thread::yield();
    EXPECT_FALSE(is_connected_to(address));
  });
  EXPECT_EQ(connection.ask("goodbye", soon()).size(), MiB(16).count);
}

TEST(JobSecret, IsReadFromPrivateFileOnly) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() / "secret";
  const JobSecret made = JobSecret::make();
  std::ofstream(path) << made.text() << "\n";
  chmod(path.c_str(), 0600);
  EXPECT_EQ(JobSecret::from_file(path).public_key(), made.public_key());
  const int descriptor = open(path.c_str(), O_RDONLY);
  EXPECT_EQ(JobSecret::from_descriptor(descriptor).secret_key(), made.secret_key());
  close(descriptor);

  chmod(path.c_str(), 0640);
  const std::string message = message_of<UsageError>([&] { JobSecret::from_file(path); });
  expect_facts(message, {path.c_str(), "0640", "0600"});
  EXPECT_EQ(message.find(made.text()), std::string::npos);
}

TEST(JobSecret, RefusesWhatIsNone) {
  expect_facts(message_of<UsageError>([] { JobSecret::parse("abc", "the file"); }), {"the file", "64", "3"});
  const std::string letters(64, 'g');
  const std::string message = message_of<UsageError>([&] { JobSecret::parse(letters, "the file"); });
  EXPECT_EQ(message.find(letters), std::string::npos);
  const auto both = [](std::string_view) { return std::optional<std::string>("7"); };
  expect_facts(message_of<UsageError>([&] { JobSecret::find(both); }),
               {"RONDO_SECRET_FILE", "RONDO_SECRET_FD"});
  const auto neither = [](std::string_view) { return std::optional<std::string>(); };
  EXPECT_FALSE(JobSecret::find(neither));
  expect_facts(message_of<UsageError>([&] { JobSecret::require(neither); }), {"RONDO_SECRET_FILE", "0600"});
  EXPECT_NE(JobSecret::make().text(), JobSecret::make().text());
}

TEST(MessageReader, GivesBackWhatWasWritten) {
  const std::string message = MessageWriter().number<std::uint32_t>(7).text("name").number(1.5).take();
  MessageReader reader(message, "a test");
  EXPECT_EQ(reader.number<std::uint32_t>("first"), 7U);
  EXPECT_EQ(reader.text("second", 10), "name");
  EXPECT_EQ(reader.number<double>("third", 0.0, 2.0), 1.5);
  reader.end();
}

TEST(MessageReader, NamesTheFieldThatCannotBe) {
  const std::string message = MessageWriter().text("a long text").number(5).take();
  MessageReader reader(message, "worker 3");
  expect_facts(message_of<DataError>([&] { reader.text("title", 4); }), {"worker 3", "title", "11", "4"});
  const std::string number = MessageWriter().number(5).take();
  MessageReader range(number, "worker 3");
  expect_facts(message_of<DataError>([&] { range.number<int>("mode", 0, 2); }), {"mode", "5", "0", "2"});
  MessageReader rest(number, "worker 3");
  expect_facts(message_of<DataError>([&] { rest.end(); }), {"worker 3", "4"});
}

// For any bytes, each field is inside the message, or the reader throws DataError.
TEST(MessageReader, TrustsNoBytes) {
  std::mt19937_64 random(1);
  const std::string whole =
      MessageWriter().number<std::uint64_t>(3).text("abc").bytes({}).number(1.0F).take();
  for (int i = 0; i < 20000; ++i) {
    std::string message = whole.substr(0, random() % (whole.size() + 1));
    for (int change = static_cast<int>(random() % 4); change > 0 && !message.empty(); --change)
      message[random() % message.size()] = static_cast<char>(random());
    MessageReader reader(message, "nobody");
    try {
      reader.number<std::uint64_t>("count", 0, 10);
      const std::string_view text = reader.text("text", 100);
      EXPECT_GE(text.data(), message.data());
      EXPECT_LE(text.data() + text.size(), message.data() + message.size());
      reader.bytes("bytes", 100);
      reader.number<float>("float");
      reader.end();
    } catch (const DataError&) {
    }
  }
}

TEST(Connection, IsAnsweredByWhoHasTheSecret) {
  const JobSecret secret = JobSecret::make();
  const Echo echo(secret);
  Connection connection(echo.address(), secret, "worker 1", "server 0");
  EXPECT_EQ(connection.ask("hello", soon()), "hello!");
  const std::string large(3 << 20, 'x');
  EXPECT_EQ(connection.ask(large, soon()).size(), large.size() + 1);
}

TEST(Connection, SaysBothSidesWhenTheSecretIsAnother) {
  const Echo echo(JobSecret::make());
  const JobSecret other = JobSecret::make();
  Connection connection(echo.address(), other, "worker 1", "server 0");
  expect_facts(message_of<CommunicationError>([&] { connection.ask("hello", soon()); }),
               {"worker 1", "server 0", echo.address().c_str(), "secret", "made here"});
}

TEST(Connection, TimesOutAndReportsItsProgress) {
  const JobSecret secret = JobSecret::make();
  Listener nobody("127.0.0.1:0", secret);  // never answers
  Connection connection(nobody.address(), secret, "worker 1", "server 0");
  expect_facts(
      message_of<TimeoutError>([&] { connection.ask("hello", Deadline::after(std::chrono::seconds(2))); }),
      {"worker 1", "server 0", "5 bytes"});
}

// Returns a socket at a port of this host, 0 for any; others may listen there meanwhile.
int socket_at(int port) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
  setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(port));
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(made, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0) << errno_text(errno);
  return made;
}

// An address reserved for this test, even while no socket listens there: the kernel assigns it to no one
// else.
class OwnAddress {
 public:
  OwnAddress() : holder_(socket_at(0)) {
    sockaddr_in place{};
    socklen_t size = sizeof place;
    EXPECT_EQ(getsockname(holder_, reinterpret_cast<sockaddr*>(&place), &size), 0) << errno_text(errno);
    port_ = ntohs(place.sin_port);
  }
  OwnAddress(const OwnAddress&) = delete;
  OwnAddress& operator=(const OwnAddress&) = delete;
  ~OwnAddress() { close(holder_); }
  int port() const { return port_; }
  std::string text() const { return str("127.0.0.1:", port_); }

 private:
  int holder_;
  int port_ = 0;
};

// Accepts the next connection at `address` and closes it.
void hang_up_on_one(const OwnAddress& address) {
  const int listener = socket_at(address.port());
  ASSERT_EQ(listen(listener, 1), 0) << errno_text(errno);
  pollfd arrival{listener, POLLIN, 0};
  ASSERT_EQ(poll(&arrival, 1, 60'000), 1) << "nobody connects";
  const int taken = accept(listener, nullptr, nullptr);
  close(listener);  // first, so that no further connection is accepted
  close(taken);
}

TEST(Connection, AsksAgainWhenTheListenerWasAway) {
  const JobSecret secret = JobSecret::make();
  const OwnAddress address;
  auto echo = std::make_unique<Echo>(secret, Limits{}, address.text());
  Connection connection(address.text(), secret, "worker 1", "server 0");
  EXPECT_EQ(connection.ask("one", soon()), "one!");
  echo.reset();
  std::jthread later([&] {
    hang_up_on_one(address);
    echo = std::make_unique<Echo>(secret, Limits{}, address.text());
  });
  EXPECT_EQ(connection.ask("two", soon()), "two!");
  later.join();
}

// A listener that is killed, or too slow for a handshake, closes the connection without having checked the
// secret.
TEST(Connection, OneFailedHandshakeIsNoRefusal) {
  const JobSecret secret = JobSecret::make();
  const OwnAddress address;
  std::unique_ptr<Echo> echo;
  std::jthread later([&] {
    hang_up_on_one(address);
    echo = std::make_unique<Echo>(secret, Limits{}, address.text());
  });
  Connection connection(address.text(), secret, "worker 1", "server 0");
  EXPECT_EQ(connection.ask("one", soon()), "one!");
  later.join();
}

TEST(Listener, RefusesAMessageThatIsTooLarge) {
  const JobSecret secret = JobSecret::make();
  const Echo echo(secret, {.largest_message = KiB(4)});
  Connection connection(echo.address(), secret, "worker 1", "server 0");
  EXPECT_EQ(connection.ask("small", soon()), "small!");
  EXPECT_THROW(connection.ask(std::string(1 << 20, 'x'), Deadline::after(std::chrono::milliseconds(500))),
               CommunicationError);
}

}  // namespace
}  // namespace rondo::control_test
