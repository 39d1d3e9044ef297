#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/bench/step/step_case.h"

namespace rondo::bench {

// What start_fleet() tells every process of rondo.
struct WorkerOptions {
  StepCase training;
  std::string config;  // JSON of the model
  std::string strategy;
  std::string rendezvous;
  int rank = 0;
  int world_size = 1;
};

// Its flags. start_fleet() gives them, and those of the command that it is told.
void add_worker_flags(CLI::App& command, WorkerOptions& options);

// Says that the worker is ready, and answers each line "COMMAND STEPS" on standard input with one line of
// JSON, until the input ends.
void answer_lines(const std::function<nlohmann::json(const std::string& command, int steps)>& answer);

}  // namespace rondo::bench
