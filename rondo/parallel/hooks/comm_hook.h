#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/schedule/bucket_future.h"

namespace rondo {

// What a communication hook sees of a bucket: a flat tensor with the gradients of some parameters of one
// dtype and device, one after the other. A value: a hook may keep a copy. (PyTorch's dist.GradBucket.)
class GradBucket {
 public:
  // `members` are the parameters' numbers in the model, the same on all ranks and in every run.
  GradBucket(std::size_t index, bool is_last, at::Tensor buffer, std::vector<at::Tensor> parameters,
             std::vector<std::size_t> members)
      : index_(index),
        is_last_(is_last),
        buffer_(std::move(buffer)),
        parameters_(std::move(parameters)),
        members_(std::move(members)) {}

  // Number within the backward pass, in order of communication. Buckets are laid out anew after the first
  // pass, when the order of gradients is known.
  std::size_t index() const { return index_; }
  // Whether it is the last of the backward pass.
  bool is_last() const { return is_last_; }

  // The gradients of this rank, not divided; one dimension. The hook may write to it. With set_local_samples
  // they are multiplied by samples / mean samples, so that the mean over ranks is the weighted mean.
  const at::Tensor& buffer() const { return buffer_; }
  // For hooks around hooks: what buffer() gives from now on.
  void set_buffer(at::Tensor buffer) { buffer_ = std::move(buffer); }

  // The buffer's parts, one a parameter and of its shape, contiguous: views.
  std::vector<at::Tensor> gradients() const;
  // Whose gradients are in the bucket.
  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  const std::vector<std::size_t>& members() const { return members_; }  // where each of them lies in buffer()

 private:
  std::size_t index_;
  bool is_last_;
  at::Tensor buffer_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::size_t> members_;
};

// What has to be kept for a run to go on as if it had not been interrupted, by name; differs by rank.
using CommState = std::map<std::string, at::Tensor>;

// Replaces the all-reduce of DistributedDataParallel: called on each rank for each bucket, in the same order,
// as soon as its gradients are complete. Its result, as long as the buffer, becomes the gradients: the hook
// itself divides by the number of ranks. It runs during the backward pass, so it should start a message and
// return; later rounds go into the future. (PyTorch's DDP communication hook.)
struct CommHook {
  // Compared across ranks, so it tells settings too: "codec int8".
  std::string name;
  std::function<BucketFuture(GradBucket&)> run;  // reduces one bucket
  // What the hook remembers from pass to pass (error feedback, drawn numbers), as copies, and back; null when
  // it remembers nothing. Between backward passes.
  std::function<CommState()> save = {};
  std::function<void(const CommState&)> restore = {};  // goes on from what save() gave
};

// Calls `restore` with this rank's entry of the states that all ranks of `group` saved, in rank order.
// Returns why nothing was restored, as a clause after "its saved state" ("is of 3 ranks, this run has 2", or
// what `restore` returns); empty when it was. Communicates nothing.
std::string restore_own_state(const std::vector<CommState>& of_ranks, const Group& group,
                              const std::function<std::string(const CommState&)>& restore);
// The warning that a codec starts without its saved error feedback, for a reason of restore_own_state();
// empty for an empty one.
std::string codec_restart_warning(const std::string& reason);

// A list of numbers as a tensor of a state.
at::Tensor numbers_to_tensor(const std::vector<std::size_t>& numbers);
// And back: the numbers of an int64 tensor in the host's memory.
std::vector<std::size_t> tensor_to_numbers(const at::Tensor& tensor);

// The bytes of a text as a tensor of a state, and back.
at::Tensor text_to_tensor(const std::string& text);
std::string tensor_to_text(const at::Tensor& tensor);  // of a tensor on the CPU

}  // namespace rondo
