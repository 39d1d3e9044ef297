// Behaviour common to all channels. Ranks are threads here; tests/collective/schedule_faults_test.cpp uses
// processes.
#include "rondo/channel/channel.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <latch>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory_channel.h"
#include "rondo/channel/shared_store.h"
#include "rondo/channel/store.h"
#include "rondo/channel/thread_channel.h"
#include "tests/channel/channels.h"

namespace rondo::channel_test {
namespace {

using Body = std::function<void(std::unique_ptr<Channel>&)>;

class ChannelTest : public ::testing::TestWithParam<const char*> {
 protected:
  void run_ranks(int size, const Body& body) const { rondo::tests::run_channels(GetParam(), size, body); }
};

INSTANTIATE_TEST_SUITE_P(All, ChannelTest, ::testing::Values("threads", "shm"),
                         [](const auto& info) { return std::string(info.param); });

Wait soon() { return {Deadline::after(std::chrono::seconds(60)), nullptr}; }

std::vector<std::byte> numbers(std::size_t bytes, int seed) {
  std::vector<std::byte> values(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    values[i] = static_cast<std::byte>((i * 7 + i / 251 + static_cast<std::size_t>(seed)) & 0xff);
  return values;
}

TEST_P(ChannelTest, EverybodySendsToEverybodyAtOnce) {
  run_ranks(4, [](std::unique_ptr<Channel>& channel) {
    // Larger than any buffer, so that only concurrent sends and receives succeed; and a few odd sizes.
    for (const std::size_t bytes :
         {std::size_t{3000001}, std::size_t{0}, std::size_t{1}, std::size_t{262144 - 64}}) {
      std::vector<std::vector<std::byte>> sent;
      std::vector<std::vector<std::byte>> received(4, std::vector<std::byte>(bytes));
      for (int peer = 0; peer < 4; ++peer) sent.push_back(numbers(bytes, channel->rank() * 4 + peer));
      std::vector<Outgoing> outgoing;
      std::vector<Incoming> incoming;
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == channel->rank()) continue;
        const auto at = static_cast<std::size_t>(peer);
        outgoing.push_back({peer, 5, sent[at]});
        incoming.push_back({peer, 5, bytes, [&, at](std::span<const std::byte> piece, std::size_t offset) {
                              EXPECT_EQ(offset % kPieceAlignment, 0U);
                              EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece.data()) % kPieceAlignment, 0U);
                              std::memcpy(received[at].data() + offset, piece.data(), piece.size());
                            }});
      }
      channel->exchange(outgoing, incoming, soon());
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == channel->rank()) continue;
        ASSERT_TRUE(received[static_cast<std::size_t>(peer)] == numbers(bytes, peer * 4 + channel->rank()));
      }
    }
  });
}

TEST_P(ChannelTest, MessagesOfAPairArriveInOrder) {
  run_ranks(2, [](std::unique_ptr<Channel>& channel) {
    std::vector<std::vector<std::byte>> values;
    for (int i = 0; i < 300; ++i) values.push_back(numbers(static_cast<std::size_t>(i) * 97, i));
    if (channel->rank() == 0) {
      std::vector<Outgoing> outgoing;
      for (int i = 0; i < 300; ++i) outgoing.push_back({1, i, values[static_cast<std::size_t>(i)]});
      channel->exchange(outgoing, {}, soon());
    } else {
      for (int i = 0; i < 300; ++i) {
        std::vector<std::byte> received(static_cast<std::size_t>(i) * 97);
        channel->recv(0, i, received, soon());
        ASSERT_TRUE(received == values[static_cast<std::size_t>(i)]) << i;
      }
    }
  });
}

TEST_P(ChannelTest, SizeOrTagMismatchShowsBothSides) {
  for (const bool size_differs : {true, false}) {
    std::atomic<int> failed = 0;
    run_ranks(2, [&](std::unique_ptr<Channel>& channel) {
      std::vector<std::byte> bytes(channel->rank() == 0 && size_differs ? 24 : 16);
      const Tag tag = channel->rank() == 0 && !size_differs ? 7 : 8;
      const Outgoing out{1 - channel->rank(), tag, bytes};
      const Incoming in{1 - channel->rank(), tag, bytes.size(), [](auto, auto) {}};
      try {
        channel->exchange({&out, 1}, {&in, 1}, soon());
      } catch (const MismatchError& e) {
        ++failed;
        const std::string text = e.what();
        EXPECT_NE(text.find(size_differs ? "24 bytes" : "message 7"), std::string::npos) << text;
        EXPECT_NE(text.find(size_differs ? "16 bytes" : "message 8"), std::string::npos) << text;
      }
    });
    EXPECT_EQ(failed, 2);
  }
}

TEST_P(ChannelTest, UninvolvedRanksNameLostRankToo) {
  std::atomic<int> raised = 0;
  run_ranks(4, [&](std::unique_ptr<Channel>& channel) {
    if (channel->rank() == 3) return channel.reset();
    // Rank 0 waits for 1, 1 for 2, and 2 for 3.
    std::vector<std::byte> bytes(8);
    try {
      channel->recv(channel->rank() + 1, 0, bytes, soon());
    } catch (const PeerLostError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{3}) << e.what();
      ++raised;
    }
    // The channel stays failed, for the same reason.
    EXPECT_THROW(channel->recv(channel->rank() + 1, 0, bytes, soon()), PeerLostError);
  });
  EXPECT_EQ(raised, 3);
}

TEST_P(ChannelTest, DeadlineErrorNamesTheBlockingRank) {
  std::atomic<int> raised = 0;
  std::latch all_there(3);
  run_ranks(4, [&](std::unique_ptr<Channel>& channel) {
    if (channel->rank() == 3) {
      while (raised < 3) std::this_thread::yield();
      return;
    }
    std::vector<std::byte> bytes(8);
    all_there.arrive_and_wait();  // a thread that starts late must not count as missing
    try {
      channel->recv(channel->rank() + 1, 0, bytes, {Deadline::after(std::chrono::seconds(3)), nullptr});
    } catch (const TimeoutError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{3}) << e.what();
    }
    ++raised;
  });
  EXPECT_EQ(raised, 3);
}

TEST_P(ChannelTest, CancellingEndsTheWait) {
  const CancelToken token;
  std::atomic<bool> ended = false;
  run_ranks(2, [&](std::unique_ptr<Channel>& channel) {
    if (channel->rank() == 1) {
      std::vector<std::byte> bytes(8);
      EXPECT_THROW(channel->recv(0, 0, bytes, {Deadline::never(), &token}), CancelledError);
      ended = true;
    } else {
      token.cancel();
      while (!ended) std::this_thread::yield();
    }
  });
}

TEST_P(ChannelTest, WhatTheReceiverThrowsReachesBothSides) {
  std::atomic<int> raised = 0;
  run_ranks(2, [&](std::unique_ptr<Channel>& channel) {
    std::vector<std::byte> bytes(1 << 20);
    try {
      if (channel->rank() == 0) {
        const Incoming in{1, 0, bytes.size(), [](auto, auto) { throw UsageError("cannot add these"); }};
        channel->exchange({}, {&in, 1}, soon());
      } else {
        channel->send(0, 0, bytes, soon());
        channel->send(0, 0, bytes, soon());
      }
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("cannot add these"), std::string::npos) << e.what();
      ++raised;
    }
  });
  EXPECT_EQ(raised, 2);
}

TEST(SharedMemoryChannelTest, ARankThatDoesNotComeIsNamed) {
  MemoryStore store;
  try {
    SharedMemoryChannel channel(store, {"test", 0, 2, std::chrono::milliseconds(50)});
    FAIL() << "rank 1 is missing";
  } catch (const TimeoutError& e) {
    EXPECT_EQ(e.ranks(), std::vector<int>{1}) << e.what();
  }
}

// Rank 2 finds rank 0 ended, which gave up because rank 1 had ended before it.
TEST(SharedMemoryChannelTest, NamesTheRankThatEndedFirst) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  waitpid(gone, nullptr, 0);
  MemoryStore store;
  store.set("channel/test/1", to_string(SharedMemoryAddress{gone, 3, 1}));
  for (const int rank : {0, 2}) {
    try {
      SharedMemoryChannel channel(store, {"test", rank, 3, std::chrono::seconds(60)});
      FAIL() << "rank 1 has ended";
    } catch (const PeerLostError& e) {
      EXPECT_EQ(e.ranks(), std::vector<int>{1}) << e.what();
    }
  }
}

TEST(SharedMemoryChannelTest, AllThatWereKilledAreNamed) {
  const auto store = SharedStore::create();
  std::vector<pid_t> victims;
  for (const int rank : {1, 2}) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      try {
        const SharedMemoryChannel channel(*store, {"test", rank, 3, std::chrono::seconds(60)});
        store->set(str("there/", rank), "");
        while (true) pause();
      } catch (const std::exception&) {
      }
      _exit(1);
    }
    victims.push_back(child);
  }
  SharedMemoryChannel channel(*store, {"test", 0, 3, std::chrono::seconds(60)});
  for (const int rank : {1, 2}) store->get(str("there/", rank), soon());
  for (const pid_t victim : victims) kill(victim, SIGKILL);
  for (const pid_t victim : victims) waitpid(victim, nullptr, 0);
  std::vector<std::byte> bytes(8);
  try {
    channel.recv(1, 0, bytes, soon());
    FAIL() << "ranks 1 and 2 are gone";
  } catch (const PeerLostError& e) {
    EXPECT_EQ(e.ranks(), (std::vector<int>{1, 2})) << e.what();
  }
}

}  // namespace
}  // namespace rondo::channel_test
