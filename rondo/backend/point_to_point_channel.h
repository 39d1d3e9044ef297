#pragma once

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "rondo/channel/channel.h"
#include "rondo/channel/failure.h"
#include "rondo/channel/store.h"

namespace rondo {

// Channel over the send and recv of any c10d backend on CPU tensors (Gloo, MPI, native): plans run wherever
// c10d does. A received message is handed over whole, from a buffer that the channel keeps.
//
// Failures are found as fast as the backend finds them. Who failed is told through the store, so that ranks
// which only see their neighbour give up still name the rank that is to blame; without the store's host, the
// neighbour.
class PointToPointChannel final : public Channel {
 public:
  // Ranks are those of `backend`, which nobody else uses meanwhile. `name` must be distinct for each channel
  // that shares a store. `timeout` bounds an exchange without a deadline; Duration::max() leaves that to the
  // timeout of the backend's own operations.
  PointToPointChannel(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<Store> store,
                      std::string name, Duration timeout);

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
  // c10d cannot be told to stop waiting: a cancelled exchange ends when what it waits for at that moment
  // does. Tags and sizes that differ are found by backends that compare them, and otherwise end at the
  // deadline.
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override;

 private:
  void run(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming, const Wait& wait);
  // `needed` are the peers of what is not finished, this one last; it is then taken off.
  void finish(c10d::Work& work, std::vector<int>& needed, const Deadline& deadline);
  [[noreturn]] void fail(const std::vector<int>& needed, const Deadline& deadline, const std::string& reason);
  int find_culprit(const std::vector<int>& needed, bool near_deadline);
  std::optional<std::string> await_answer(int rank, Duration limit);
  void close_connections();
  std::string key(int rank) const;

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::shared_ptr<Store> store_;
  std::string name_;
  Duration timeout_;
  std::vector<at::Tensor> buffers_;        // for received messages, kept between exchanges
  std::optional<ChannelFailure> failure_;  // the first one
};

}  // namespace rondo
