#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Tensors of one dtype that are averaged together. flat() and assign() convert between them and one
// contiguous tensor. Low-precision dtypes are float32 there, because averages over many ranks would lose
// bits.
class Fragment {
 public:
  // `moment`: index of the fragment's average within the period, from 0.
  Fragment(std::vector<at::Tensor> tensors, std::int64_t moment)
      : tensors_(std::move(tensors)), moment_(moment) {}

  std::int64_t moment() const { return moment_; }
  at::Tensor flat() const;                     // returns a 1-D copy of the values
  void assign(const at::Tensor& flat) const;   // replaces the values
  void advance(const at::Tensor& flat) const;  // adds to the values

 private:
  // Calls function(tensor, its part of `flat` in the tensor's shape) for each tensor.
  template <class Function>
  void for_each_part(const at::Tensor& flat, Function function) const;

  std::vector<at::Tensor> tensors_;
  std::int64_t moment_;
};

// Cuts the tensors, in order, into `count` parts of about equal bytes (fewer if there are fewer tensors). A
// part is cut again wherever the dtype changes. The first part's moment is `first_moment`. Tensors that are
// not floating-point are omitted.
std::vector<Fragment> cut_into_fragments(const std::vector<at::Tensor>& tensors, std::int64_t count,
                                         std::int64_t first_moment);

// Averages the parameters of replicas that ranks train locally. After step s (counted from 1, after the
// synchronous ones) the fragments with that moment are averaged over the ranks. The result is applied after
// step s + sync_delay. Ranks need to agree only on the number of the step. Not thread-safe.
//
// average: the parameters become the mean over the ranks (Stich, Local SGD, 2019). diloco: the anchor, the
// parameters after the previous average, moves by SGD with Nesterov momentum along the mean difference to the
// ranks' parameters (Douillard et al., DiLoCo, 2311.08105). With a delay, ranks add the difference between
// the result and the values that they sent, so that the steps in between are kept (fragments and overlap:
// Streaming DiLoCo, 2501.18512).
class ParameterAverage {
 public:
  // Parameters must be equal on all ranks. Buffers (running statistics) are averaged at the end of each
  // period, without the outer optimizer. Buffers that are not floating-point stay local.
  ParameterAverage(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                   const Group& group, const LocalSgdOptions& options);

  // Starts and applies averages after `step` local steps. Collective at the moments of averages, which depend
  // on `step` only.
  void after_step(std::int64_t step);
  // Returns true if a period ends after `step` local steps.
  bool ends_period(std::int64_t step) const { return step % options_.sync_period == 0; }
  // Restarts from the current values, which must be equal on all ranks. Waits for averages in flight and
  // drops them, and resets momentum. Collective.
  void restart();

  // Return and restore this rank's values.
  std::vector<at::Tensor> values() const;
  void assign(const std::vector<at::Tensor>& values) const;
  // Returns the mean of all ranks' values, on every rank. Collective.
  std::vector<at::Tensor> mean_values() const;

  // Returns the state for a checkpoint, by name: "anchor.0", "momentum.0", and for averages in flight, which
  // it waits for, "sum.0", "sent.0" and "counts_after.0". Does not change the object. Collective.
  CommunicationState state() const;
  // Restores anchors and momenta of state(), without averages in flight. Returns false, without changes, for
  // a state of other fragments or another outer optimizer.
  bool restore(const CommunicationState& state);
  // Restores the averages in flight of state() on this rank, after restore(). Returns false, without changes,
  // if they are of another model.
  bool restore_under_way(const CommunicationState& state);

  // Returns the spans of the last after_step().
  const std::vector<TraceSpan>& spans() const { return spans_; }

 private:
  struct Part {
    Fragment fragment;
    bool anchored = false;     // whether the outer optimizer is used
    at::Tensor anchor = {};    // diloco: values after the previous average
    at::Tensor momentum = {};  // diloco; undefined before the first average
    at::Tensor sent = {};      // this rank's values when the average was started
    at::Tensor sum = {};       // sum over the ranks; undefined if no average is in flight
    c10::intrusive_ptr<c10d::Work> work = {};
    std::int64_t counts_after = 0;  // step after which the average is applied
    std::int64_t launched_ns = 0;
  };

  void launch(Part& part, std::int64_t step);
  void take(Part& part);
  // Waits for an average in flight and drops it.
  static void drop(Part& part);

  Group group_;
  LocalSgdOptions options_;
  std::vector<Part> parts_;
  std::vector<TraceSpan> spans_;
};

}  // namespace rondo
