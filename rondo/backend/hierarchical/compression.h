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

#include "rondo/collective/codec/codec.h"

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

}  // namespace rondo::hierarchical
