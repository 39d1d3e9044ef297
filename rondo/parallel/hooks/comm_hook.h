#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "rondo/backend/engine/codec_state.h"
#include "rondo/parallel/schedule/bucket_future.h"

namespace rondo {

// A bucket as seen by a communication hook: a flat tensor with the gradients of some parameters of one dtype
// and device, one after the other. A hook may keep a copy. Equivalent to PyTorch's dist.GradBucket.
class GradBucket {
 public:
  // `members`: the parameters' indices in the model, the same on all ranks and in every run.
  GradBucket(std::size_t index, bool is_last, at::Tensor buffer, std::vector<at::Tensor> parameters,
             std::vector<std::size_t> members)
      : index_(index),
        is_last_(is_last),
        buffer_(std::move(buffer)),
        parameters_(std::move(parameters)),
        members_(std::move(members)) {}

  // Returns the position of the bucket in the backward pass, in order of communication. The bucket layout
  // changes after the first pass, when the order of gradients is known.
  std::size_t index() const { return index_; }
  // Returns true for the last bucket of the backward pass.
  bool is_last() const { return is_last_; }

  // Returns this rank's gradients, not divided, as one dimension. The hook may write to the buffer. With
  // set_local_samples() the gradients are multiplied by samples / mean samples, so that the mean over ranks
  // is the weighted mean.
  const at::Tensor& buffer() const { return buffer_; }
  // Replaces the buffer; for hooks that wrap other hooks.
  void set_buffer(at::Tensor buffer) { buffer_ = std::move(buffer); }

  // Returns views of the buffer, one per parameter and of its shape, contiguous.
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> parts;
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : parameters_) {
      parts.push_back(buffer_.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
      offset += parameter.numel();
    }
    return parts;
  }
  // Returns the parameters with gradients in the bucket, in the order of the buffer.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // Returns the parameters' indices in the model, in the order of the buffer.
  const std::vector<std::size_t>& members() const { return members_; }

 private:
  std::size_t index_;
  bool is_last_;
  at::Tensor buffer_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> members_;
};

// A function that replaces the all-reduce of DistributedDataParallel. It is called on each rank for each
// bucket, in the same order, as soon as the bucket's gradients are complete. The result, as long as the
// buffer, becomes the gradients; the hook itself divides by the number of ranks. The function runs during the
// backward pass, so it should start a message and return; later rounds are added to the future. Equivalent to
// PyTorch's DDP communication hook.
struct CommHook {
  // Name including the settings, such as "codec int8"; compared across ranks.
  std::string name;
  std::function<BucketFuture(GradBucket&)> run;  // reduces one bucket
  // Returns a copy of the hook's state (error feedback, random generator). Null if the hook has none. Called
  // between backward passes, like `restore`.
  std::function<CommState()> save = {};
  std::function<void(const CommState&)> restore = {};  // restores the result of save()
};

}  // namespace rondo
