#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rondo::cost {

// What a layer's passes over so many samples take: seconds without communication, and bytes.
struct LayerPasses {
  std::uint64_t samples = 1;
  double forward_s = 0;
  double backward_s = 0;               // all gradients in one pass
  double backward_input_s = 0;         // in two: of the layer's inputs ...
  double backward_weight_s = 0;        // ... and then of its parameters
  std::uint64_t activation_bytes = 0;  // kept from forward to backward
  std::uint64_t deferred_bytes = 0;    // kept from a divided backward's first part to its second
  // Besides, at the largest moment of each pass, above what is kept: of a backward pass when it begins, with
  // the gradient of the layer's output. The sums of its parameters' gradients are not counted.
  std::uint64_t forward_workspace_bytes = 0;
  std::uint64_t backward_workspace_bytes = 0;
  std::uint64_t input_workspace_bytes = 0;
  std::uint64_t weight_workspace_bytes = 0;
};

// What one rank has of a layer that `ranks` divide along a dimension of a mesh; 1: all of it. Bytes of
// messages are for Profile::batch_size samples.
struct LayerPart {
  // "tensor": parts of its parameters; "context": pieces of every sequence; "expert": some of its experts.
  std::string dimension = "tensor";
  int ranks = 1;
  std::vector<LayerPasses> passes;  // by samples, ascending; at least one
  std::uint64_t parameter_bytes = 0;
  std::uint64_t expert_parameter_bytes = 0;  // of these what the ranks along "expert" do not share
  // What a rank gives the others in a pass, so many messages of so many bytes together: along "tensor" they
  // add up, along "context" the next rank gets them, along "expert" each rank gets some.
  int forward_messages = 0;
  std::uint64_t forward_message_bytes = 0;
  int backward_messages = 0;
  std::uint64_t backward_message_bytes = 0;

  // For so many samples, a number that need not be whole: straight lines between what was measured, the last
  // one going on to both sides; nothing is below zero. Of one measured batch: in proportion.
  LayerPasses at(double samples) const;
};

// A layer of the model as a sequence: what pipelines cut between and tensor parallelism divides.
struct LayerProfile {
  std::string name;                                 // "embeddings", "transformer.h.0"
  std::string unit;                                 // whose parameters it has (UnitProfile::name)
  std::uint64_t output_bytes = 0;                   // that the next layer gets
  std::uint64_t checkpointed_activation_bytes = 0;  // kept where it is recomputed
  std::vector<LayerPart> parts;  // by ranks, ascending for each dimension; the first one of one rank

  // Among so many ranks along a dimension; null where that is not known. Of one rank the first part.
  const LayerPart* part(const std::string& dimension, int ranks) const;
};

}  // namespace rondo::cost
