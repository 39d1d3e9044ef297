#pragma once

#include <string>
#include <vector>

#include "rondo/nn/loss.h"

namespace rondo {

// What predictions count in weighted_loss().
struct LossWeights {
  std::vector<double> classes = {};  // cross_entropy, nll: of each class; empty is 1
  bool samples = false;  // the batch's last target is [samples], any number: what each sample counts
};

// The loss of make_loss(name) with weights: the mean over samples of a sample's weight times the mean over
// its elements of class weight times loss. It is divided by the number of samples and not by the sum of
// weights, so that it does not depend on how samples are spread over batches and ranks; ignored targets count
// as elements of loss 0. Throws UsageError for another name, weights below 0, class weights of a loss without
// classes.
LossFunction weighted_loss(const std::string& name, const LossWeights& weights);

// The loss of one output of a model with several.
struct OutputLoss {
  LossFunction loss = cross_entropy;  // of output i and target i
  double weight = 1;                  // in the sum
};
// The weighted sum of losses of the outputs, each a mean over the samples of the batch; ignored targets count
// as elements of loss 0. Throws UsageError, when it is called, for another number of outputs or targets.
LossFunction joint_loss(std::vector<OutputLoss> losses);

}  // namespace rondo
