#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/bench/harness/emulated_hosts.h"
#include "apps/bench/harness/processes.h"

// Benchmarks of training steps start all ranks of a system as a fleet, and command them line by line. A
// worker writes {"ready": true}, then answers every line "COMMAND STEPS" with one JSON object.
namespace rondo::bench {

// The training that all systems of a comparison run.
struct StepCase {
  std::string model;  // for make_model()
  nlohmann::json config = {};
  std::string dtype;  // float32, or bfloat16 for autocast
  std::string optimizer;
  double learning_rate = 0;
  double clip_norm = 0;              // L2 norm to clip gradients to; 0: no clipping
  std::int64_t batch_size = 0;       // samples per rank
  std::string codec = "none";        // for ddp's gradients
  std::string mixed_precision = {};  // policy of sharded units, as MixedPrecisionPolicy's text
  std::string weights;               // safetensors file with the initial weights
  std::uint64_t gradient_bytes = 0;  // gradients of the whole model
  bool tracks_memory = false;        // systems track their allocations, which slows steps of small models

  bool is_gpt() const { return config.contains("context"); }
  // Returns the tokens or samples of one rank's batch.
  std::int64_t items() const {
    return is_gpt() ? batch_size * config.at("context").get<std::int64_t>() : batch_size;
  }
  const char* throughput() const { return is_gpt() ? "tokens_per_s" : "samples_per_s"; }
};

// The emulated or real network between the ranks.
struct Network {
  int hosts = 1;  // number of emulated hosts; 1: no emulation, this machine itself
  std::string rate = {};
  double bits_per_second = 0;
};

// Adds --emulate-hosts and --rate.
void add_network_flags(CLI::App& app, Network& network);
// Sets bits_per_second. Throws UsageError for an invalid rate, and if `ranks` is not a multiple of the hosts.
void check_network(Network& network, int ranks);

// Alternating turns of the systems.
struct Turns {
  int warm_up = 2;  // steps before anything counts
  int rounds = 6;
  int steps = 4;  // per system and round; the first of several is not counted
};
// Adds --rounds, --steps and --warm-up. The returned function, called after parsing, returns whether any of
// them was given.
std::function<bool()> add_turns_flags(CLI::App& app, Turns& turns, const std::string& note = {});

// The processes of one system, by rank.
struct Fleet {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  int hosts = 1;
  int host_of(int rank) const {
    return EmulatedHosts::host_of(rank, static_cast<int>(workers.size()), hosts);
  }
  // Sends the line to the first `ranks` workers and returns their answers.
  std::vector<nlohmann::json> ask(const std::string& line, std::size_t ranks);
  void tell(const std::string& line, std::size_t ranks);
  nlohmann::json answer_of(std::size_t rank);
};

// The hosts and processors of fleets.
struct FleetPlace {
  int ranks = 2;
  bool pinned = true;                    // pin each process to a processor of its own
  const EmulatedHosts* hosts = nullptr;  // null: this machine itself
  std::filesystem::path scratch = {};    // for the rendezvous
};

// Starts the processes of one system: `command` followed by the flags of the case. Waits until they are
// ready. `name` is for messages and unique in the place.
std::shared_ptr<Fleet> start_fleet(const std::string& name, std::vector<std::string> command,
                                   std::map<std::string, std::string> environment, const StepCase& training,
                                   const FleetPlace& place);

// The flags that start_fleet() passes to a worker.
struct WorkerOptions {
  StepCase training;
  std::string config;  // the model's configuration as JSON
  std::string strategy;
  std::string rendezvous;
  int rank = 0;
  int world_size = 1;
};
void add_worker_flags(CLI::App& command, WorkerOptions& options);

// Prints that the worker is ready, and answers commands until the input ends.
void answer_lines(const std::function<nlohmann::json(const std::string& command, int steps)>& answer);

}  // namespace rondo::bench
