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

// How the replicas of a process combine their gradients; TensorFlow's cross-device operations.
enum class CrossDeviceOps {
  all_reduce,         // each replica reduces its part of all gradients, and writes the result to all
  hierarchical_copy,  // in pairs, then pairs of pairs, and back
  nccl,               // NCCL reduces dense gradients between the replicas' GPUs
  one_device          // the first replica reduces, the others copy
};

// Parses a name of the above. Throws UsageError naming `what`.
CrossDeviceOps parse_cross_device_ops(const std::string& text, const std::string& what);
std::vector<std::string> cross_device_ops_names();

// The gradients of the replicas of a process, combined where they lie: afterwards each replica's are
//   sum(weight_r * gradient_r) / sum(weight_r),
// bit for bit the same at all of them. A parameter that some replicas have no gradient for counts as zero
// there; without any it stays without. Sparse gradients are joined: rows and values of all replicas,
// coalesced. Elements are added in the order of replicas (hierarchical_copy: in that of its tree; nccl: in
// the engine's).
class ReplicaGradients {
 public:
  // How.
  struct Options {
    CrossDeviceOps ops = CrossDeviceOps::all_reduce;
    // Gradients are divided among replicas in so many packs of about equal size; 0 is each one by itself.
    int num_packs = 1;
    // Only replica 0 gets the result, by all_reduce's division of work.
    bool to_first_only = false;
    bool adds = false;  // the sum of gradients, weights have no part in it; with all_reduce
    // With nccl: the replicas' communicators; null for one replica.
    std::shared_ptr<ReplicaEngines> engines = {};
  };

  // `models` of the replicas, which are alike: of their parameters those that are trained now. `threads`
  // outlives the object.
  ReplicaGradients(ReplicaThreads& threads, const std::vector<torch::nn::Module*>& models,
                   const Options& options);

  // Within ReplicaThreads::run(), called by every replica with its weight, zero or more. Where all are zero,
  // replicas count the same. Throws UsageError for a parameter whose gradient is sparse at one replica and
  // dense at another.
  void combine(double weight);
  // The same for what replica 0 has: from it to the others.
  void copy_from_first();
  // When all had their gradients in the last combine(), for replica 0.
  std::int64_t met_ns() const { return met_ns_; }

 private:
  // A gradient as a replica has it.
  struct Place {
    std::byte* data = nullptr;
    at::Tensor gradient = {};  // undefined without one
  };
  // What a replica tells the others.
  struct alignas(64) Slot {
    std::vector<Place> places;
    double weight = 0;
  };
  // A dense gradient on the CPU, of all replicas.
  struct Segment {
    std::size_t parameter;
    DType type;
    std::size_t element_bytes;
    std::size_t bytes;
  };

  void publish(int replica, double weight);
  // Gives this replica zeros where only others have a gradient, and the first one's layout. Whether any
  // replica had to.
  bool complete(int replica);
  std::vector<double> weights() const;
  std::vector<Segment> segments() const;
  // The packs of `segments`, as ranges of them.
  std::vector<std::span<const Segment>> packs_of(std::span<const Segment> segments) const;
  // Calls visit(segment, offset, bytes) for this replica's part of the pack.
  template <class Visit>
  void for_part(std::span<const Segment> pack, int replica, const Visit& visit) const;

  void reduce_in_parts(std::span<const Segment> segments, int replica, const std::vector<double>& weights);
  void reduce_in_pairs(std::span<const Segment> segments, int replica, const std::vector<double>& weights);
  void reduce_at_first(std::span<const Segment> segments, int replica, const std::vector<double>& weights);
  void reduce_by_engines(int replica, const std::vector<double>& weights);
  // Whether replica 0 reduces it: a sparse gradient, or one that is not on the CPU where no engine does.
  bool is_other(const at::Tensor& gradient) const;
  void reduce_others(const std::vector<double>& weights);  // by replica 0
  void take_others(int replica);

  ReplicaThreads& threads_;
  std::vector<std::vector<at::Tensor>> parameters_;  // by replica
  std::vector<std::string> names_;                   // of the parameters
  Options options_;
  std::vector<Slot> slots_;
  std::int64_t met_ns_ = 0;
  std::vector<at::Tensor> combined_;  // by replica 0 alone, by parameter; undefined for the others
};

}  // namespace rondo
