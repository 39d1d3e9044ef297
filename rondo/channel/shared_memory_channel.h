#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rondo/channel/channel.h"
#include "rondo/channel/failure.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/channel/store.h"
#include "rondo/channel/waiting.h"

namespace rondo {

// A channel between the processes (or threads) of one host: a byte ring in shared memory for each ordered
// pair of ranks. The sender copies into the ring; the receiver takes pieces directly from it while the sender
// fills the rest. Messages up to the free room of the ring do not wait for the receiver.
//
// A wait spins briefly, then yields, then sleeps on a futex, and checks every few milliseconds that all
// processes are alive. The error at the deadline names ranks that are stopped by a signal.
class SharedMemoryChannel final : public Channel {
 public:
  struct Options {
    std::string name = "channel";  // distinct for each channel that meets in one store
    int rank = 0;
    int size = 1;
    // Longest wait of the rendezvous, and of an exchange without a deadline.
    Duration timeout = std::chrono::minutes(5);
    // Called when a waiting exchange checks its peers; its exception ends the exchange.
    std::function<void()> look = {};
  };
  // Connects the ranks. Collective over the store. Throws TimeoutError naming the ranks that did not arrive,
  // and PeerLostError naming those whose process has ended (also on ranks that only see others fail because
  // of it).
  SharedMemoryChannel(Store& store, const Options& options);
  // Marks this rank as left.
  ~SharedMemoryChannel() override;

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override;

 private:
  struct RankFile;
  struct Ring;
  class Transfers;
  friend class Transfers;

  RankFile& file(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  Ring& ring(int from, int to) const;
  bool waits_for(int rank, int peer) const;
  std::string rank_key(int rank) const;
  std::string failure_key(int rank) const;
  void meet(Store& store, const PublishedMemory& own);
  void wait_until_attached(const Deadline& deadline);
  void check_peers_periodically(std::span<const Outgoing> outgoing);
  void run(Transfers& transfers, const Wait& wait);
  void notify(int peer) const;
  // Other ranks that cannot continue, or have left.
  struct Peers {
    std::vector<int> lost;    // the process has ended without a recorded failure
    std::vector<int> failed;  // with a recorded failure
    std::vector<int> left;    // left in an orderly way
  };
  Peers look_at_peers() const;
  void throw_if_any_failed(const Peers& peers) const;
  void throw_if_peer_failed(Transfers& transfers) const;
  [[noreturn]] void throw_timeout(Duration waited) const;
  void fail(const std::exception_ptr& error);
  static void record(RankFile& own, const ChannelFailure& failure);
  std::string who(int rank) const;
  std::string prefix() const;

  Options options_;
  std::vector<std::shared_ptr<SharedMemory>> files_;
  std::vector<RankFile*> ranks_;
  std::vector<pid_t> pids_;
  PeerWatch watch_;
  int spin_limit_;
  std::uint32_t exchanges_ = 0;
  TimePoint next_look_{};
};

}  // namespace rondo
