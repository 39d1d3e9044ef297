#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rondo/collective/codec/codec.h"

// State that codecs and communication hooks keep between steps: error feedback, and its form in checkpoints.
namespace rondo {

// State by name that a resumed run needs to continue exactly; it differs by rank.
using CommState = std::map<std::string, at::Tensor>;

// The error feedback of a tensor that is encoded repeatedly: float32 on the CPU, undefined where nothing is
// kept.
struct ErrorFeedback {
  at::Tensor values;  // errors of this rank's values
  at::Tensor sums;    // errors of the sums that this rank encodes for other ranks

  // Makes both tensors that long, with zeros where the length changes. Keeps nothing for a length of 0 and
  // for a codec without error feedback.
  void reserve(const collective::Codec& codec, std::int64_t value_count, std::int64_t sum_count);
  // Adds the defined tensors to `state`, not copied, as "residual" and "sum_residual" after `prefix`.
  void add_to(CommState& state, const std::string& prefix = {}) const;
};

// Returns `count` values of `residual` from `begin` on, for Codec::encode(). Empty if it is undefined.
std::span<float> residual_part(const at::Tensor& residual, std::int64_t begin, std::int64_t count);

// Returns copies of the tensors.
CommState copy_of(const CommState& state);
// Returns the entries whose names begin with `prefix`, without it.
CommState entries_behind(const std::string& prefix, const CommState& state);
// Returns copies of the tensors, and their codec's name.
CommState save_feedback(const CommState& feedback, const std::string& codec);
// Copies the result of save_feedback() to the tensors in `feedback`, for restore_own_state(): returns the
// reason if it is of another codec or of other tensors.
std::string restore_feedback(const CommState& feedback, const std::string& codec, const CommState& saved);

// Calls `restore` with entry `rank` of `of_ranks`, the states that all ranks saved, in rank order. Returns an
// empty string on success, otherwise the reason, as a clause after "its saved state": "is of 3 ranks, this
// run has 2", or the result of `restore`. `ranks`: number of ranks of this run. Does not communicate.
std::string restore_own_state(const std::vector<CommState>& of_ranks, int rank, int ranks,
                              const std::function<std::string(const CommState&)>& restore);
// Returns the reason, for restore_own_state(), why a model with the codec or hook `own` cannot use a state
// that was saved with `saved`; empty if the names are equal. An empty name means none.
std::string codec_mismatch(const std::string& saved, const std::string& own);
// Returns the warning that a codec starts without its saved error feedback, for a reason from
// restore_own_state(). Returns an empty string for an empty reason.
std::string codec_restart_warning(const std::string& reason);

// Returns the numbers as a tensor for a CommState.
at::Tensor numbers_to_tensor(const std::vector<std::size_t>& numbers);
// Returns the numbers in an int64 tensor on the CPU.
std::vector<std::size_t> tensor_to_numbers(const at::Tensor& tensor);

// Returns the bytes of the text as a tensor for a CommState.
at::Tensor text_to_tensor(const std::string& text);
// Returns the text of an entry of `state`, as text_to_tensor() makes it; empty without the entry.
std::string text_in(const CommState& state, const std::string& name);

}  // namespace rondo
