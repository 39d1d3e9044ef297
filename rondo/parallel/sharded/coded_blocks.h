#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/backend/coded_collectives.h"
#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"
#include "rondo/parallel/schedule/bucket_future.h"
#include "rondo/parallel/sharded/flat_layout.h"

namespace rondo {

// About how many bytes a rank needs beside everything else for `codec` ("none": none), of a model with so
// many bytes of float32 gradients that `ranks` share: error feedback and encodings. Throws as
// collective::make_codec.
Bytes codec_memory(const std::string& codec, Bytes gradients, int ranks);

// One of the operations, one after the other, by which a block of gradients becomes what the optimizer needs.
struct BlockStep {
  const char* collective;
  Bytes bytes;                          // that this rank's part of the model moves
  std::function<BucketFuture()> start;  // begins it, without waiting; the one before it is finished
};

// A unit's float32 gradients as encodings of a codec, block by block: each rank sends every other one the
// encoding of its shard, which adds them up (coded_collectives.h); copies of the shard are combined by an
// all-reduce, and where every rank needs the whole sum each one sends the encoding of its own. What an
// encoding leaves out is added to the gradients of the next pass. Calls as of FlatGradients.
class CodedBlocks {
 public:
  // `replicas`: ranks that hold the same shard; not a member: there are none. `gathers`: every rank needs the
  // whole sum.
  CodedBlocks(const std::string& codec, const FlatLayout& layout, const Group& shards, const Group& replicas,
              bool gathers);

  // Encodes block `index`, of which parts[r] goes to rank r, and returns what is to be done, in order. The
  // last step leaves the sum of this rank's part in `sum`, and where all ranks need it the whole in `parts`.
  std::vector<BlockStep> encode(std::size_t index, const std::vector<at::Tensor>& parts,
                                const at::Tensor& sum, Bytes bytes);

  // The error feedback by name: the tensors themselves.
  std::map<std::string, at::Tensor> memory() const;

 private:
  struct Block {
    std::unique_ptr<CodedReduceScatter> scatter;  // null with one rank
    std::unique_ptr<CodedAllReduce> copies;       // null without copies
    std::unique_ptr<CodedAllGather> gather;       // null where nobody needs the whole
    std::vector<at::Tensor> residuals;            // by rank, of its part; views
    at::Tensor sum_residual;                      // of this rank's sum; a view
  };

  const bool gathers_;
  std::vector<Block> blocks_;
  at::Tensor residual_;      // of the whole buffer; undefined for a codec without
  at::Tensor sum_residual_;  // of this rank's shard, where sums are encoded for all
};

}  // namespace rondo
