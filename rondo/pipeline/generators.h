#pragma once

#include <vector>

#include "rondo/pipeline/schedule.h"

// The computations of each schedule by rank, without messages.
namespace rondo::pipeline {

// Generates GPipe: forward of all micro-batches, then backward of all.
std::vector<std::vector<Action>> all_forward_all_backward(int ranks, int micro_batches);
// Generates 1F1B: one forward per later stage, then a forward and a backward alternately. With `split` it
// generates ZB-H1: weight gradients are deferred by one micro-batch per earlier stage, and fill the end.
std::vector<std::vector<Action>> one_forward_one_backward(int ranks, int micro_batches, bool split);
// Generates 1F1B over `chunks` stages per rank; each stage takes `ranks` micro-batches in turn. If ranks do
// not divide the micro-batches, turns are slightly longer.
std::vector<std::vector<Action>> interleaved(int ranks, int micro_batches, int chunks);
// Generates a V shape with two stages per rank and separate weight gradients, within the memory of 1F1B.
std::vector<std::vector<Action>> v_shaped(int ranks, int micro_batches);

}  // namespace rondo::pipeline
