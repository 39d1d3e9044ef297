#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/fleet.h"
#include "apps/bench/step/schedule_flags.h"

// The parts of `rondo bench step`: who takes part, the turns, the figures of results.
namespace rondo::bench {

// The measurements of one rank, one entry a step; lists are empty, and figures 0, where a system tells none.
struct RankSamples {
  std::vector<double> step_ms;
  std::vector<double> losses;
  std::vector<double> comm_ms;
  std::vector<double> exposed_comm_ms;
  std::uint64_t peak_bytes = 0;         // as the system itself tracked for it
  std::uint64_t peak_tensor_bytes = 0;  // of tensors and buffers alive at a time, to the byte
  std::uint64_t peak_rss_bytes = 0;
  // By the kernel, seen from outside the process. A page that n processes have mapped counts as 1/n; in the
  // second only pages of shared memory (not of files) do: over the ranks of a host, memory that they share
  // counts once.
  std::uint64_t peak_pss_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  std::string matmul = "libtorch";  // kernels of its float32 matrix products
};

// One line of the result.
struct Contestant {
  std::string system;    // rondo, pytorch
  std::string strategy;  // a name of the registry; PyTorch's: ddp, zero1, fsdp2
  std::string setting;   // which variant; empty when there is only one
  std::shared_ptr<Fleet> fleet;
  std::size_t ranks = 1;     // of the fleet's processes, the first so many take part
  std::size_t replicas = 1;  // in each, on the batch of a rank each
  std::string policy = {};   // the scheduler's policy that an ablation switches on here; "fifo" for none
  bool own_matmul = false;   // rondo's own choice of matrix products
  std::vector<RankSamples> samples = {};
  std::uint64_t link_bytes = 0;  // sent by the busiest host in all bursts
  int link_steps = 0;            // steps in which they were sent

  // "pytorch ddp, fastest setting".
  std::string title() const { return system + " " + strategy + (setting.empty() ? "" : ", " + setting); }
};

// The contestants of a comparison.
struct Lineup {
  std::vector<std::string> strategies = {"ddp"};  // rondo's, beside one_device; names that the registry knows
  std::string backend = "auto";                   // engine of rondo's strategies
  std::string bucket_bytes;                       // empty: the default
  int joint_batch = 1;
  ScheduleFlags schedule;
  std::vector<Variant> variants;             // take part beside `strategies`
  bool ablation = false;                     // one contestant for each step of schedule_ablation
  std::string matmul = "libtorch";           // the matrix products of rondo's contestants
  bool peers = false;                        // PyTorch's counterparts too
  std::vector<std::string> peer_strategies;  // ddp, zero1, fsdp2; empty: the counterparts of `strategies`
  std::vector<std::string> peer_settings;    // usual, fastest; empty: both for ddp, fastest for the others
};

// Returns PyTorch's strategy that does what rondo's `strategy` does; empty when it has none.
std::string counterpart(const std::string& strategy);

// Starts everyone's processes; they live as long as the result.
std::vector<Contestant> start_contestants(const Lineup& lineup, const StepCase& training,
                                          const FleetPlace& place);

// Lets the contestants run in turns, in short bursts, so that a disturbance of the machine hits all of them.
// Only one computes at a time; the others wait for their next line of input. The first of several steps in a
// burst is not counted: caches are cold, and what a strategy leaves to the next step's forward pass is not
// there. At the end each contestant takes a few untimed steps while its memory is looked at.
void run_contest(std::vector<Contestant>& contestants, const Turns& turns);

// Returns the samples of all ranks, in one list.
std::vector<double> pooled(const Contestant& contestant, std::vector<double> RankSamples::*member);
double median_step(const Contestant& contestant);

// Returns the time of an item (token or sample): the inverse of the sum over ranks of each one's speed at its
// own median, which is right for ranks in lockstep and for independent ones; and with each at its fastest
// step.
RepeatedTime item_time(const StepCase& training, const Contestant& contestant);

// Returns the value of the rank with the most.
std::uint64_t largest(const Contestant& contestant, std::uint64_t RankSamples::*member);

// Returns the contestant of this title, or null.
const Contestant* find(const std::vector<Contestant>& contestants, const std::string& title);

// Returns the time in milliseconds that the link of a host needs for the bytes that the strategy must send
// over it in one step: with H hosts and gradients of S bytes, (H-1)/H * S for each reduce-scatter and each
// all-gather of the whole model. Two of them for replicated parameters (an all-reduce) and for sharded ones
// kept after the forward pass, three where they are gathered again for the backward pass, and within a host
// none. Nothing on one host, with a codec, and for strategies that are not known here.
std::optional<double> line_rate_ms(const StepCase& training, const Network& network,
                                   const Contestant& contestant);

// Returns the least time of a step: max(compute, line rate), where compute is the step of one process in this
// run. Nothing where line_rate_ms() is nothing.
std::optional<double> bound_ms(const StepCase& training, const Network& network,
                               const std::vector<Contestant>& contestants, const Contestant& contestant);

// Returns the ratios that the project promises, and others worth comparing, between those who took part in
// one comparison: rows of ratio_row() with model and dtype.
Json ratios(const StepCase& training, const Network& network, const std::vector<Contestant>& contestants);

// Returns those between the comparisons of one run: bfloat16 to float32, and which policies of the scheduler
// never won. `rows` are all rows so far.
Json ratios_between_cases(const Json& rows);

// Returns one object a contestant with the keys that docs/cli.md lists, then the ratios between them.
// `losses` adds every step's loss, averaged over ranks.
Json step_results(const StepCase& training, const Network& network,
                  const std::vector<Contestant>& contestants, bool losses);

// Prints them for people.
void print_step_results(const Json& results);

}  // namespace rondo::bench
