#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "rondo/backend/engine/codec_state.h"
#include "rondo/backend/hierarchical/transports.h"
#include "rondo/collective/request.h"

namespace rondo::hierarchical {

// The codec state of one buffer between hosts: a codec for each of the executor's two threads, and the error
// feedback of this rank's parts and of its sums, one after the other.
struct Compression {
  std::unique_ptr<collective::Codec> encoder;  // first thread
  std::unique_ptr<collective::Codec> decoder;  // second thread
  ErrorFeedback feedback;
};

// The Compression of every buffer that is reduced repeatedly, as gradient buckets are. The key of a buffer is
// its storage, offset and length; entries of freed storages are removed. Any thread.
class CompressionTable {
 public:
  // `codec` is a name for make_codec; with "none" or an empty name nothing is compressed.
  explicit CompressionTable(std::string codec);
  bool active() const { return !codec_.empty(); }
  const std::string& codec() const { return codec_; }
  std::shared_ptr<Compression> find(const at::Tensor& buffer);

  // Adds copies of the error feedback of all live buffers to `state`, numbered in the order of their last
  // use: "3/elements" is the length of buffer 3. Call it with no operation in flight.
  void save(CommState& state);
  // Assigns the error feedback in `state` to the next new buffers, one after the other: the first step of a
  // resumed training reduces its buffers in the order of the last step before. Drops the rest with a warning
  // if a buffer has another length.
  void restore(const CommState& state);

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::shared_ptr<Compression> compression;
    std::int64_t elements = 0;
    std::uint64_t last_use = 0;
  };
  std::shared_ptr<Compression> make(std::int64_t elements);
  using Key = std::tuple<const void*, std::int64_t, std::int64_t>;

  std::string codec_;
  std::mutex mutex_;  // protects the fields below
  std::map<Key, Entry> entries_;
  std::uint64_t uses_ = 0;
  std::deque<std::pair<std::int64_t, ErrorFeedback>> restored_;  // with their lengths, for later buffers
};

// Collectives over several hosts. Requests are those of the shared-memory engine (collective/request.h) with
// group ranks: `root` is a group rank, and pieces are numbered by group rank.

// Broadcasts from the root to one rank of every other host, from host to host in a chain so that no host
// sends the buffer twice, and then within each host.
std::unique_ptr<Operation> broadcast(const CollectiveRequest& request, const HostMap& map);

// Reduces within every host to one rank, which sends to the root; the root adds in host order. Only the
// root's buffer changes.
std::unique_ptr<Operation> reduce(const CollectiveRequest& request, const HostMap& map);

// Sends every rank's piece once to each other host, and broadcasts it within that host.
std::unique_ptr<Operation> all_gather(const CollectiveRequest& request, const HostMap& map);

// Reduces each rank's piece within every host and sends the sum to the rank, which adds the sums in host
// order.
std::unique_ptr<Operation> reduce_scatter(const CollectiveRequest& request, const HostMap& map);

// Runs gather, scatter and all_to_all: each rank sends its messages directly to their receivers, on any host,
// each preceded by its size. A receiver that expects another size throws MismatchError. all_to_all's request
// must have the bytes of each piece.
std::unique_ptr<Operation> exchange(const CollectiveRequest& request, const HostMap& map);

struct AllReduceOptions {
  // Largest number of ranks of a host that exchange with other hosts; 0: as many as the smallest host has.
  int inter_host_ranks = 0;
  std::size_t chunk_bytes = kChunkBytes;
};

// Reduces in three steps. The first reduces within the host, so that every rank (or, on hosts of different
// sizes, the first `inter_host_ranks`) holds a part. The second exchanges the part with the ranks of the same
// local rank on other hosts. The third gathers the parts within the host.
//
// `request` has its buffer as input and output; Reduction::average divides by the number of all ranks.
// Between two hosts, and for small parts, each host sends its part to all others. Between more hosts, parts
// are reduced and gathered in pieces, so that a host sends 2(H-1)/H of the buffer, which is the minimum. Sums
// are added in host order, the same on all ranks. With `compression` (float32 only) parts are sent encoded,
// and every rank gets the sum of the decoded values.
std::unique_ptr<Operation> all_reduce(const CollectiveRequest& request, const HostMap& map,
                                      const AllReduceOptions& options,
                                      std::shared_ptr<Compression> compression);

// Computes sums that depend on the ranks' numbers alone, not on the hosts of the ranks, the number of hosts,
// or the boundaries of chunks. One rank adds each element in the order of ranks 0, 1, 2, ... and rounds once,
// as in the shared-memory engine, so the result has that engine's bits. `request` is an all_reduce in place
// or a reduce_scatter.
//
// Each rank gets its piece of a chunk from all others, within the host through shared memory. Values of one
// host cannot be added before they leave it, so with H hosts of L ranks a host sends (H-1)/H L S in
// reduce_scatter and (H-1)/H (L+1) S in all_reduce.
std::unique_ptr<Operation> rank_order_sum(const CollectiveRequest& request, const HostMap& map);

}  // namespace rondo::hierarchical
