#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/parallel/local_sgd/local_sgd_options.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Tensors of one dtype that are averaged together. flat() and assign() are between them and one contiguous
// tensor, in which low-precision dtypes are float32: averages of many ranks would lose bits.
class Fragment {
 public:
  // `moment`: which of the period's moments of averaging is this one's, from 0.
  Fragment(std::vector<at::Tensor> tensors, std::int64_t moment)
      : tensors_(std::move(tensors)), moment_(moment) {}

  std::int64_t moment() const { return moment_; }
  at::Tensor flat() const;                     // a copy of the values, 1-D
  void assign(const at::Tensor& flat) const;   // the values become these
  void advance(const at::Tensor& flat) const;  // these are added to the values

 private:
  // Calls function(tensor, its part of `flat` in its shape).
  template <class Function>
  void for_each_part(const at::Tensor& flat, Function function) const;

  std::vector<at::Tensor> tensors_;
  std::int64_t moment_;
};

// Cuts the tensors, in their order, into `count` parts of about equal bytes (fewer where there are fewer
// tensors), and each part once more wherever the dtype changes; the first part's moment is `first_moment`.
// Tensors that are not floating-point are left out.
std::vector<Fragment> cut_into_fragments(const std::vector<at::Tensor>& tensors, std::int64_t count,
                                         std::int64_t first_moment);

// The parameters of a model of which every rank trains a replica of its own, and what is made of their
// averages. After step s (counted from 1, behind the synchronous ones) the fragments whose moment it is are
// averaged over the ranks; the result counts after step s + sync_delay. Ranks agree on nothing but the number
// of the step, which is the same on all of them. One thread uses an object.
//
// average: the parameters become the mean of the ranks' (Stich, Local SGD, 2019). diloco: the anchor, the
// parameters after the last average, goes along the mean difference to the ranks' parameters by SGD with
// Nesterov's momentum (Douillard et al., DiLoCo, 2311.08105). With a delay, ranks add to their parameters
// what the average would have changed when it was sent, so that the steps between are kept (fragments and
// overlap: Streaming DiLoCo, 2501.18512).
class ParameterAverage {
 public:
  // The parameters are equal on all ranks. Buffers (running statistics) are averaged at the end of each
  // period, whatever is made of the parameters' averages; those that are not floating-point stay each rank's
  // own.
  ParameterAverage(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& buffers,
                   const Group& group, const LocalSgdOptions& options);

  // After `step` local steps. Collective at the moments of averages, which depend on `step` only.
  void after_step(std::int64_t step);
  // Whether after so many local steps a whole period ends.
  bool ends_period(std::int64_t step) const { return step % options_.sync_period == 0; }
  // From the values that the tensors have now, equal on all ranks; forgets momentum and drops averages that
  // are under way. Waits for those. Collective.
  void restart();

  // This rank's values, and giving them back.
  std::vector<at::Tensor> values() const;
  void assign(const std::vector<at::Tensor>& values) const;
  // The mean of all ranks' values, on every rank. Collective.
  std::vector<at::Tensor> mean_values() const;

  // By name, for a checkpoint: "anchor.0", "momentum.0", and of averages under way, for which it waits,
  // "sum.0", "sent.0" and "counts_after.0". Changes nothing. Collective.
  CommunicationState state() const;
  // Goes on with the anchors and momenta of state(), without averages under way; false, and nothing has
  // changed, where it is of other fragments or another outer optimizer.
  bool restore(const CommunicationState& state);
  // After restore(): goes on with the averages that were under way in state(), which is this rank's. False,
  // and nothing has changed, where they are of another model.
  bool restore_under_way(const CommunicationState& state);

  const std::vector<TraceSpan>& spans() const { return spans_; }  // of the last after_step()

 private:
  struct Part {
    Fragment fragment;
    bool anchored = false;     // goes by the outer optimizer
    at::Tensor anchor = {};    // of diloco: after the last average
    at::Tensor momentum = {};  // of diloco; undefined before the first average
    at::Tensor sent = {};      // this rank's values when an average was sent
    at::Tensor sum = {};       // of it; undefined when none is under way
    c10::intrusive_ptr<c10d::Work> work = {};
    std::int64_t counts_after = 0;  // step
    std::int64_t launched_ns = 0;
  };

  void launch(Part& part, std::int64_t step);
  void take(Part& part);
  static void drop(Part& part);  // waits for an average under way and forgets it

  Group group_;
  LocalSgdOptions options_;
  std::vector<Part> parts_;
  std::vector<TraceSpan> spans_;
};

}  // namespace rondo
