#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/bench/step/contest.h"

namespace rondo::bench {

// The value below which `part` of the values are; `values` is not empty.
double quantile(std::vector<double> values, double part);

// What all ranks measured, in one list.
std::vector<double> pooled(const Contestant& contestant, std::vector<double> RankSamples::*member);
double median_step(const Contestant& contestant);

// Tokens or samples a second: the sum over ranks, each at its own median, which is right for ranks in
// lockstep and for independent ones.
double throughput(const StepCase& training, const Contestant& contestant);

// The same with each rank at its fastest step.
double best_throughput(const StepCase& training, const Contestant& contestant);

// The rank with the most.
std::uint64_t largest(const Contestant& contestant, std::uint64_t RankSamples::*member);

// Loss of each step, averaged over ranks.
std::vector<double> mean_losses(const Contestant& contestant);

// The contestant of this title, or null.
const Contestant* find(const std::vector<Contestant>& contestants, const std::string& title);

// How long the link of a host needs for what the strategy must send over it in one step, in milliseconds:
// with H hosts and gradients of S bytes, (H-1)/H * S for each reduce-scatter and each all-gather of the whole
// model. Two of them for replicated parameters (an all-reduce) and for sharded ones kept after the forward
// pass, three where they are gathered again for the backward pass, and within a host none. Nothing on one
// host, with a codec, and for strategies that are not known here.
std::optional<double> line_rate_ms(const StepCase& training, const Network& network,
                                   const Contestant& contestant);

// The least that a step can take: max(compute, line rate), where compute is the step of one process in this
// run. Nothing where line_rate_ms is nothing.
std::optional<double> bound_ms(const StepCase& training, const Network& network,
                               const std::vector<Contestant>& contestants, const Contestant& contestant);

}  // namespace rondo::bench
