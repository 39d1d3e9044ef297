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

#include "rondo/backend/hierarchical/transports.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/collective/request.h"

namespace rondo::hierarchical {

// How the parts of one buffer travel between hosts, and what their encodings have left out so far (error
// feedback). One rank's; the pipeline's two threads each use a codec of their own.
struct Compression {
  std::unique_ptr<collective::Codec> encoder;  // first thread
  std::unique_ptr<collective::Codec> decoder;  // second thread
  std::vector<float> residual;                 // of this rank's parts, one after the other
  std::vector<float> sum_residual;             // of the sums that this rank encodes for others
};

// Keeps the Compression of every buffer that is reduced again and again, as gradient buckets are. A buffer is
// known by its storage, place and length; what belongs to a storage that is gone is forgotten. Any thread.
class CompressionTable {
 public:
  // `codec` as make_codec knows it; "none" or empty: nothing is compressed.
  explicit CompressionTable(std::string codec);
  bool active() const { return !codec_.empty(); }
  const std::string& codec() const { return codec_; }
  std::shared_ptr<Compression> find(const at::Tensor& buffer);

  // What encodings of one buffer have left out.
  struct Memory {
    std::int64_t elements = 0;  // of the buffer
    std::vector<float> residual = {};
    std::vector<float> sum_residual = {};
  };
  // Of all buffers that are still there, in the order of their last use; while no operation is under way.
  std::vector<Memory> save();
  // The next buffers that are new get these, one after the other: the first step of a resumed training
  // reduces its buffers in the order of the last step before. When a buffer of another length comes, the rest
  // is dropped with a warning.
  void restore(std::vector<Memory> memories);

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
  std::mutex mutex_;  // protects the following
  std::map<Key, Entry> entries_;
  std::uint64_t uses_ = 0;
  std::deque<Memory> restored_;  // for buffers to come
};

// Collectives over several hosts. Requests are those of the shared-memory
// engine (collective/shared_memory/request.h) with group ranks for ranks: `root` is a group rank, and pieces
// are numbered by group rank.

// From the root to one rank of every other host, from host to host in a chain so that no host sends the
// buffer twice, and within each host from there.
std::unique_ptr<Operation> broadcast(const CollectiveRequest& request, const HostMap& map);

// Within every host to one rank, from there to the root, which adds in host order. Only the root's buffer
// changes.
std::unique_ptr<Operation> reduce(const CollectiveRequest& request, const HostMap& map);

// Every rank's piece goes once to each other host, and is handed out there.
std::unique_ptr<Operation> all_gather(const CollectiveRequest& request, const HostMap& map);

// For each rank's piece, every host adds up its own part and sends it there; the rank adds in host order.
std::unique_ptr<Operation> reduce_scatter(const CollectiveRequest& request, const HostMap& map);

// gather, scatter and all_to_all: a message from each rank that has something to each that wants it, whatever
// the hosts, behind its size. A rank that expects another size gets MismatchError. all_to_all's request must
// have the bytes of each piece.
std::unique_ptr<Operation> exchange(const CollectiveRequest& request, const HostMap& map);

struct AllReduceOptions {
  // Ranks of a host that exchange with other hosts, at most; 0: as many as the smallest host has.
  int inter_host_ranks = 0;
  std::size_t chunk_bytes = kChunkBytes;
};

// Reduces within the host so that every rank (or, on hosts of different sizes, the first `inter_host_ranks`)
// holds a part, exchanges the part with the ranks of the same local rank on other hosts, and gathers the
// parts within the host.
//
// `request` has its buffer as input and output; Reduction::average divides by the number of all ranks.
// Between two hosts, and for small parts, each sends its part to all others; between more, parts are reduced
// and gathered in pieces, so that a host sends 2(H-1)/H of the buffer, which is the least possible. Sums are
// added in host order, the same on all ranks. With `compression` (float32 only) parts travel encoded, and
// every rank gets the sum of what the encodings stand for.
std::unique_ptr<Operation> all_reduce(const CollectiveRequest& request, const HostMap& map,
                                      const AllReduceOptions& options,
                                      std::shared_ptr<Compression> compression);

// Sums that depend on the ranks' numbers alone, not on which ranks share a host, how many there are, or where
// a chunk ends: every element is added by one rank in the order of ranks 0, 1, 2, ... and rounded once, as in
// the shared-memory engine, and so has that engine's bits. `request` is an all_reduce in place or a
// reduce_scatter.
//
// Each rank gets its piece of a chunk from all others, within the host through shared memory. Numbers of one
// host cannot be added before they leave it, so with H hosts of L ranks a host sends (H-1)/H L S in
// reduce_scatter and (H-1)/H (L+1) S in all_reduce.
std::unique_ptr<Operation> rank_order_sum(const CollectiveRequest& request, const HostMap& map);

}  // namespace rondo::hierarchical
