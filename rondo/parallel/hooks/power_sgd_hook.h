#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

namespace rondo {

// Makes the columns of a matrix orthonormal, in place. The matrix has at least as many rows as columns. Uses
// modified Gram-Schmidt for up to two columns and for half precision, otherwise a QR factorisation, as
// PyTorch's PowerSGD does, so that results are comparable. `epsilon` is added to the norms of Gram-Schmidt. A
// zero column stays zero, where a division by its norm would give NaN.
void orthogonalize(at::Tensor& matrix, double epsilon);

// Options of PowerSGD, with the names and defaults of PyTorch's PowerSGDState, without batching of equal
// shapes.
struct PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;  // number of columns of P and Q
  // Number of backward passes with a plain all-reduce before compression begins. At least 2 with error
  // feedback or warm start, because the bucket layout changes after the first pass.
  std::int64_t start_iter = 1000;
  // Minimum ratio of elements before / after at which a matrix is compressed.
  double min_compression_rate = 2;
  // Whether to add the compression error of a step to the next step's gradients.
  bool use_error_feedback = true;
  bool warm_start = true;                // whether a step starts from the last step's Q
  double orthogonalization_epsilon = 0;  // added to the norm of a column
  std::uint32_t random_seed = 0;         // seed of the first Q
};

// The state of one model's PowerSGD hook, which sends gradients as products of low-rank matrices. M (n x m)
// is sent as P (n x rank) and Q (m x rank) with M ~ P Q^T, with one power iteration per training step.
// Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019. The order of computation and the random numbers are those of PyTorch's
// powerSGD_hook, so that training runs are comparable step by step.
//
// The hook differs from PyTorch's in two cases where PyTorch's stays NaN permanently. A zero gradient (an
// unused parameter) is compressed to zero. After a step with a NaN or an infinity (a loss scale that was too
// high), error feedback and warm start are reset.
//
// Used by the thread that drives the backward pass.
class PowerSgdState {
 public:
  // Throws UsageError if an option is out of range.
  PowerSgdState(Group group, const PowerSgdOptions& options);

  // Starts computing the mean of the bucket over the ranks, as a hook does.
  BucketFuture run(const GradBucket& bucket);

  // Sizes of the messages before and after compression.
  struct CompressionStats {
    double rate = 0;                   // before / after; 0 before compression has begun
    std::int64_t elements_before = 0;  // elements of gradients
    std::int64_t elements_after = 0;   // elements sent
  };
  // Returns the sums over all steps since compression began.
  CompressionStats compression_stats() const;

  // Returns the options given to the constructor.
  const PowerSgdOptions& options() const { return options_; }

  // See CommHook.
  CommState save() const;
  // See CommHook. Throws DataError for a state that save() did not make.
  void restore(const CommState& state);

 private:
  // State of a bucket: the first rows persist between steps, the views belong to the current step.
  struct Memory {
    std::vector<std::size_t> members;  // the bucket's parameters
    at::Tensor error;                  // compression error of earlier steps, on this rank
    at::Tensor first;                  // message of the first round: uncompressed gradients, then every P
    at::Tensor second;                 // message of the second round: every Q
    std::vector<at::Tensor> matrices;  // compressed gradients, views of the bucket
    std::vector<at::Tensor> vectors;   // uncompressed gradients, views of the bucket
    std::vector<at::Tensor> ps;        // views of `first`, one per matrix
    std::vector<at::Tensor> qs;        // views of `second`, one per matrix
    std::int64_t uncompressed = 0;     // elements at the front of `first`
    at::Tensor restored;               // saved content of `second`, until it is used
  };

  Memory& memory_of(const GradBucket& bucket);
  void divide(const GradBucket& bucket, Memory& memory);
  bool take_restored(Memory& memory) const;
  void place_matrices(const at::Tensor& buffer, Memory& memory);
  void draw_qs(Memory& memory);
  BucketFuture compress(const GradBucket& bucket);
  BucketFuture compute_qs(Memory& memory);
  at::Tensor decompress(Memory& memory, const at::Tensor& input, const at::Tensor& buffer);

  const Group group_;
  const PowerSgdOptions options_;
  std::mt19937 random_;  // generator of the seeds of Q, the same on all ranks
  std::int64_t iteration_ = 0;
  std::int64_t elements_before_ = 0;
  std::int64_t elements_after_ = 0;
  std::map<std::size_t, Memory> memories_;  // by bucket index
};

// Returns the hook of a state that the caller keeps access to.
CommHook power_sgd_hook(std::shared_ptr<PowerSgdState> state);
// Returns the hook with its own state. Throws UsageError if an option is out of range.
CommHook power_sgd_hook(const Group& group, const PowerSgdOptions& options = {});

}  // namespace rondo
