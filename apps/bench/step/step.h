#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/fleet.h"
#include "apps/bench/step/schedule_flags.h"

// The parts of `rondo bench step`: contestants, turns, results.
namespace rondo::bench {

// The measurements of one rank, one entry per step. Lists are empty, and numbers 0, if a system does not
// report them.
struct RankSamples {
  std::vector<double> step_ms;
  std::vector<double> losses;
  std::vector<double> comm_ms;
  std::vector<double> exposed_comm_ms;
  std::uint64_t peak_bytes = 0;         // as tracked by the measured system
  std::uint64_t peak_tensor_bytes = 0;  // tensors and buffers alive at a time, to the byte
  std::uint64_t peak_rss_bytes = 0;
  // Measured by the kernel, from outside the process. A page that n processes have mapped counts as 1/n;
  // peak_resident_bytes does so only for shared memory (not files). Summed over the ranks of a host, shared
  // memory counts once.
  std::uint64_t peak_pss_bytes = 0;
  std::uint64_t peak_resident_bytes = 0;
  std::string matmul = "libtorch";  // kernels for float32 matrix products
};

// One line of the result.
struct Contestant {
  std::string system;    // rondo, pytorch
  std::string strategy;  // a name of the registry; PyTorch's: ddp, zero1, fsdp2
  std::string setting;   // variant; empty if there is only one
  std::shared_ptr<Fleet> fleet;
  std::size_t ranks = 1;     // number of the fleet's processes, from the first, that take part
  std::size_t replicas = 1;  // replicas per process, each with a rank's batch
  std::string policy = {};   // scheduler policy that an ablation enables here; "fifo" for none
  bool own_matmul = false;   // rondo's own choice of matrix products
  std::vector<RankSamples> samples = {};
  std::uint64_t link_bytes = 0;  // sent by the busiest host in all bursts
  int link_steps = 0;            // number of steps that sent link_bytes

  // Returns "pytorch ddp, fastest setting".
  std::string title() const { return system + " " + strategy + (setting.empty() ? "" : ", " + setting); }
};

// The contestants of a comparison.
struct Lineup {
  std::vector<std::string> strategies = {"ddp"};  // rondo's, besides one_device; names of the registry
  std::string backend = "auto";                   // engine for rondo's strategies
  std::string bucket_bytes;                       // empty: the default
  int joint_batch = 1;
  ScheduleFlags schedule;
  std::vector<Variant> variants;             // in addition to `strategies`
  bool ablation = false;                     // one contestant per step of schedule_ablation()
  std::string matmul = "libtorch";           // matrix products for rondo's contestants
  bool peers = false;                        // also PyTorch's counterparts
  std::vector<std::string> peer_strategies;  // ddp, zero1, fsdp2; empty: the counterparts of `strategies`
  std::vector<std::string> peer_settings;    // usual, fastest; empty: both for ddp, fastest for the others
};

// Returns PyTorch's equivalent of rondo's `strategy`; empty if there is none.
std::string counterpart(const std::string& strategy);

// Starts all contestants' processes; they live as long as the result.
std::vector<Contestant> start_contestants(const Lineup& lineup, const StepCase& training,
                                          const FleetPlace& place);

// Runs the contestants in alternating short bursts, so that a disturbance of the machine affects all of them.
// Only one computes at a time; the others wait for their next line of input. The first of several steps in a
// burst is not counted: caches are cold, and work that a strategy defers to the next step's forward pass is
// missing. At the end each contestant takes a few untimed steps while its memory is sampled.
void run_contest(std::vector<Contestant>& contestants, const Turns& turns);

// Returns the samples of all ranks, in one list.
std::vector<double> pooled(const Contestant& contestant, std::vector<double> RankSamples::*member);
double median_step(const Contestant& contestant);

// Returns the time per item (token or sample): the inverse of the sum over ranks of each rank's speed at its
// median step. This holds for ranks in lockstep and for independent ones. Also returns it with each rank at
// its fastest step.
RepeatedTime item_time(const StepCase& training, const Contestant& contestant);

// Returns the maximum over ranks.
std::uint64_t largest(const Contestant& contestant, std::uint64_t RankSamples::*member);

// Returns the contestant with this title, or null.
const Contestant* find(const std::vector<Contestant>& contestants, const std::string& title);

// Returns the milliseconds that a host's link needs for the bytes that the strategy must send in one step.
// With H hosts and gradients of S bytes, each reduce-scatter and each all-gather of the whole model is
// (H-1)/H * S. There are two for replicated parameters (an all-reduce) and for sharded ones kept after the
// forward pass, three if they are gathered again for the backward pass, and none within a host. Empty on one
// host, with a codec, and for unknown strategies.
std::optional<double> line_rate_ms(const StepCase& training, const Network& network,
                                   const Contestant& contestant);

// Returns the minimum time of a step: max(compute, line rate), where compute is the step of one process in
// this run. Empty if line_rate_ms() is empty.
std::optional<double> bound_ms(const StepCase& training, const Network& network,
                               const std::vector<Contestant>& contestants, const Contestant& contestant);

// Returns the ratios that the project promises, and other useful ones, between the contestants of one
// comparison: rows of ratio_row() with model and dtype.
Json ratios(const StepCase& training, const Network& network, const std::vector<Contestant>& contestants);

// Returns the ratios between the comparisons of one run: bfloat16 to float32, and the policies of the
// scheduler that never won. `rows` are all rows so far.
Json ratios_between_cases(const Json& rows);

// Returns one object per contestant with the keys that docs/cli/bench.md lists, then the ratios between them.
// `losses` adds every step's loss, averaged over ranks.
Json step_results(const StepCase& training, const Network& network,
                  const std::vector<Contestant>& contestants, bool losses);

// Prints the results as tables.
void print_step_results(const Json& results);

}  // namespace rondo::bench
