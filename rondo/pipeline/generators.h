#pragma once

#include <vector>

#include "rondo/pipeline/schedule.h"

// The computations of each schedule by rank, without what travels between ranks.
namespace rondo::pipeline {

// GPipe: forward of all micro-batches, then backward of all.
std::vector<std::vector<Action>> all_forward_all_backward(int ranks, int micro_batches);
// 1F1B: as many forwards as there are stages behind, then a forward and a backward in turns. With `split`
// ZB-H1: weight gradients wait for as many micro-batches as there are stages before, and fill the end.
std::vector<std::vector<Action>> one_forward_one_backward(int ranks, int micro_batches, bool split);
// 1F1B over `chunks` stages a rank, of which each takes `ranks` micro-batches in turn. Where ranks do not
// divide the micro-batches turns are a little longer.
std::vector<std::vector<Action>> interleaved(int ranks, int micro_batches, int chunks);
// Two stages a rank in the shape of a V, with weight gradients apart, in the memory of 1F1B.
std::vector<std::vector<Action>> v_shaped(int ranks, int micro_batches);

}  // namespace rondo::pipeline
