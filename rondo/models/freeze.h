#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

namespace rondo {

// Takes the parameters below the named parts of `model` out of training: they get no gradient, and no
// strategy or optimizer touches them. A part is one or more names of a path as they stand in it: "embeddings"
// and "bert.embeddings" are all of "bert.embeddings.LayerNorm.weight" and its neighbours, "layer.0" the first
// layer. Returns how many parameters that is. Call it before a strategy sees the model. Throws UsageError for
// a part that is not in the model, listing what is, and when nothing would be left to train.
int freeze(torch::nn::Module& model, const std::vector<std::string>& parts);

}  // namespace rondo
