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

// Makes the columns of a matrix of at least as many rows as columns orthonormal, in place: modified
// Gram-Schmidt for up to two columns and for half precision, a QR factorisation beyond (as PyTorch's PowerSGD
// does, so that results compare). `epsilon` is added to the norms of Gram-Schmidt. A column of zeros stays
// zero, where dividing by its norm would give NaN.
void orthogonalize(at::Tensor& matrix, double epsilon);

// PyTorch's names and defaults (PowerSGDState), without the batching of equal shapes.
struct PowerSgdOptions {
  std::int64_t matrix_approximation_rank = 1;  // number of columns of P and Q
  // Backward passes with a plain all-reduce before compression begins; with error feedback or warm start at
  // least 2, because buckets are laid out anew after the first.
  std::int64_t start_iter = 1000;
  // A matrix is compressed when that saves more than this factor.
  double min_compression_rate = 2;
  bool use_error_feedback = true;        // adds what a step left out to the next one's gradients
  bool warm_start = true;                // begins with the last step's Q
  double orthogonalization_epsilon = 0;  // added to the norm of a column
  std::uint32_t random_seed = 0;         // of the first Q
};

// Gradients as products of low-rank matrices: M (n x m) travels as P (n x rank) and Q (m x rank) with M ~ P
// Q^T, one step of power iteration a training step. Source: Vogels, Karimireddy, Jaggi, "PowerSGD: Practical
// Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019; the order of computation and the
// random numbers are those of PyTorch's powerSGD_hook, so that training runs compare step by step.
//
// Two differences, where PyTorch's hook turns into NaN for good: a gradient that is zero (an unused
// parameter) is compressed to zero, and after a step with a NaN or an infinity (a loss scale that was too
// high) the error feedback and the warm start begin anew.
//
// The state of one model's hook; used by the thread that drives the backward pass.
class PowerSgdState {
 public:
  // Throws UsageError when an option is out of range.
  PowerSgdState(Group group, const PowerSgdOptions& options);

  // Starts the mean of the bucket over the ranks, as a hook.
  BucketFuture run(const GradBucket& bucket);

  // How much less has travelled.
  struct CompressionStats {
    double rate = 0;                   // before / after; 0 before compression has begun
    std::int64_t elements_before = 0;  // of gradients
    std::int64_t elements_after = 0;   // that travelled
  };
  // Over all steps since compression began.
  CompressionStats compression_stats() const;

  // As given.
  const PowerSgdOptions& options() const { return options_; }

  // See CommHook.
  CommState save() const;
  // See CommHook. Throws DataError for what save() did not make.
  void restore(const CommState& state);

 private:
  // What is kept of a bucket between steps, and its parts in this step.
  struct Memory {
    std::vector<std::size_t> members;  // the bucket's parameters
    at::Tensor error;                  // what earlier steps left out, on this rank
    at::Tensor first;                  // what the first round sends: uncompressed gradients, then every P
    at::Tensor second;                 // the second round: every Q
    std::vector<at::Tensor> matrices;  // compressed gradients, views of the bucket
    std::vector<at::Tensor> vectors;   // the others
    std::vector<at::Tensor> ps;        // views of `first`, by matrix
    std::vector<at::Tensor> qs;        // views of `second`
    std::int64_t uncompressed = 0;     // elements at the front of `first`
    at::Tensor restored;               // what `second` was when it was saved
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
  std::mt19937 random_;  // draws the seeds of Q, the same on all ranks
  std::int64_t iteration_ = 0;
  std::int64_t elements_before_ = 0;
  std::int64_t elements_after_ = 0;
  std::map<std::size_t, Memory> memories_;  // by bucket
};

// The hook of a state that the caller looks at.
CommHook power_sgd_hook(std::shared_ptr<PowerSgdState> state);
// The hook with a state of its own. Throws UsageError when an option is out of range.
CommHook power_sgd_hook(const Group& group, const PowerSgdOptions& options = {});

}  // namespace rondo
