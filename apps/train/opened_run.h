#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/train/run_arguments.h"
#include "rondo/backend/context.h"
#include "rondo/models/model.h"

namespace rondo {

// A trained model and data for it, on each rank of a job.
struct OpenedRun {
  Context context;
  TrainedRun run;
  std::shared_ptr<const Dataset> data;
  Model model;  // on the CPU
  c10::Device device = c10::kCPU;
};

// How many processes a program runs on, and how they communicate.
struct ProcessArguments {
  int processes = 1;
  std::string backend = "auto";

  void add_flags(CLI::App& app);
};

// Runs `use` with what `arguments` name: in this process where it is alone or one of several, else in so many
// new ones of this program with the same words. Failures before `use`, and JobErrors of it, are one error for
// the job. Returns the exit code.
int use_run(const RunArguments& arguments, const ProcessArguments& processes,
            const std::vector<std::string>& words, const std::function<void(OpenedRun&)>& use);

}  // namespace rondo
