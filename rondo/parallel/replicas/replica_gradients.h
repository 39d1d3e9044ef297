#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/collective/dtype.h"
#include "rondo/parallel/replicas/replica_threads.h"

namespace rondo {

class ReplicaEngines;

// Algorithms for reducing the gradients of a process's replicas; TensorFlow's cross-device operations.
enum class CrossDeviceOps {
  all_reduce,         // each replica reduces a part of all gradients, and writes the result to all replicas
  hierarchical_copy,  // in pairs, then pairs of pairs, and back
  nccl,               // NCCL reduces dense gradients between the replicas' GPUs
  one_device          // the first replica reduces, the others copy
};

// Parses a name of the above. Throws UsageError naming `what`.
CrossDeviceOps parse_cross_device_ops(const std::string& text, const std::string& what);
std::vector<std::string> cross_device_ops_names();

// Reduces the gradients of a process's replicas in place. Afterwards each replica's gradients are
//   sum(weight_r * gradient_r) / sum(weight_r),
// bit for bit the same on all replicas. A missing gradient counts as zero if another replica has one, and
// stays undefined if none has. Sparse gradients are concatenated (rows and values of all replicas) and
// coalesced. Elements are added in the order of replicas (hierarchical_copy: in the order of its tree; nccl:
// in the engine's order).
class ReplicaGradients {
 public:
  // Options of the reduction.
  struct Options {
    CrossDeviceOps ops = CrossDeviceOps::all_reduce;
    // Number of packs of about equal size that replicas divide among themselves; 0: each gradient separately.
    int num_packs = 1;
    // Whether only replica 0 gets the result, for all_reduce.
    bool to_first_only = false;
    bool adds = false;  // whether to compute the plain sum, without weights; with all_reduce
    // Communicators of the replicas, for nccl; null for one replica.
    std::shared_ptr<ReplicaEngines> engines = {};
  };

  // `models`: the replicas' models, which are alike. Reduces gradients of the parameters that are trainable
  // now. `threads` must outlive the object.
  ReplicaGradients(ReplicaThreads& threads, const std::vector<torch::nn::Module*>& models,
                   const Options& options);

  // Reduces the gradients. Every replica calls it within ReplicaThreads::run() with its weight, zero or more.
  // If all weights are zero, all replicas have equal weights. Throws UsageError for a parameter whose
  // gradient is sparse on one replica and dense on another.
  void combine(double weight);
  // Copies the gradients of replica 0 to the others. Every replica calls it within ReplicaThreads::run().
  void copy_from_first();
  // Returns the time at which all replicas had their gradients in the last combine(), as monotonic_ns(). For
  // replica 0.
  std::int64_t met_ns() const { return met_ns_; }

 private:
  // A replica's gradient.
  struct Place {
    std::byte* data = nullptr;
    at::Tensor gradient = {};  // undefined if there is none
  };
  // Data that a replica publishes to the others.
  struct alignas(64) Slot {
    std::vector<Place> places;
    double weight = 0;
  };
  // A dense gradient on the CPU, on all replicas.
  struct Segment {
    std::size_t parameter;
    DType type;
    std::size_t element_bytes;
    std::size_t bytes;
  };

  void publish(int replica, double weight);
  // Gives this replica zero gradients where only others have one, with the layout of the first gradient.
  // Returns true if any replica needed that.
  bool complete(int replica);
  std::vector<double> weights() const;
  std::vector<Segment> segments() const;
  // Returns the packs of `segments`, as subranges.
  std::vector<std::span<const Segment>> packs_of(std::span<const Segment> segments) const;
  // Calls visit(segment, offset, bytes) for this replica's part of the pack.
  template <class Visit>
  void for_part(std::span<const Segment> pack, int replica, const Visit& visit) const;

  void reduce_in_parts(std::span<const Segment> segments, int replica, const std::vector<double>& weights);
  void reduce_in_pairs(std::span<const Segment> segments, int replica, const std::vector<double>& weights);
  void reduce_at_first(std::span<const Segment> segments, int replica, const std::vector<double>& weights);
  void reduce_by_engines(int replica, const std::vector<double>& weights);
  // Returns true if replica 0 reduces the gradient: it is sparse, or it is not on the CPU and no engine
  // reduces it.
  bool is_other(const at::Tensor& gradient) const;
  void reduce_others(const std::vector<double>& weights);  // called by replica 0
  void take_others(int replica);

  ReplicaThreads& threads_;
  std::vector<std::vector<at::Tensor>> parameters_;  // by replica
  std::vector<std::string> names_;                   // names of the parameters
  Options options_;
  std::vector<Slot> slots_;
  std::int64_t met_ns_ = 0;
  std::vector<at::Tensor> combined_;  // by parameter, gradients that replica 0 reduced; otherwise undefined
};

}  // namespace rondo
