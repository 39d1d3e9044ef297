#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/collectives/contender.h"
#include "rondo/channel/channel.h"

namespace rondo::bench {

// An algorithm, run as a plan over a channel, in ordinary memory: in place, but from a buffer of their own
// where c10d's reduce_scatter and all_gather have one. `hosts` and `in_rank_order`: see PlanRequest.
std::unique_ptr<Contender> make_plan_contender(const std::string& algorithm, const std::string& channel_name,
                                               std::shared_ptr<Channel> channel, std::vector<int> hosts,
                                               bool in_rank_order);

// "ring,naive" or "all"; throws UsageError that names --algorithm and what there is.
std::vector<std::string> parse_algorithms(const std::string& text);
// "shm,tcp"; throws UsageError that names --channel and what there is: threads, shm, tcp.
std::vector<std::string> parse_channels(const std::string& text);

}  // namespace rondo::bench
