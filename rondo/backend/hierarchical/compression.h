#pragma once

#include <ATen/core/Tensor.h>

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

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::shared_ptr<Compression> compression;
  };
  using Key = std::tuple<const void*, std::int64_t, std::int64_t>;

  std::string codec_;
  std::mutex mutex_;  // protects entries_
  std::map<Key, Entry> entries_;
};

}  // namespace rondo::hierarchical
