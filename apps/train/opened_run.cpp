#include "apps/train/opened_run.h"

#include <cstdlib>
#include <filesystem>

#include "apps/common/engine_flag.h"
#include "apps/common/process_flag.h"
#include "apps/train/job.h"
#include "apps/train/rank_failure.h"
#include "apps/train/simulated_device.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/launch/job.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

int start_processes(int processes, const std::vector<std::string>& words) {
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  launch::RunOptions options;
  options.processes = processes;
  options.command = {std::filesystem::read_symlink("/proc/self/exe").string()};
  options.command.insert(options.command.end(), words.begin(), words.end());
  return launch::run_job(options);
}

}  // namespace

void ProcessArguments::add_flags(CLI::App& app) {
  add_process_flag(app, processes);
  add_engine_flag(app, backend);
}

int use_run(const RunArguments& arguments, const ProcessArguments& processes,
            const std::vector<std::string>& words, const std::function<void(OpenedRun&)>& use) {
  if (processes.processes > 1 && !env::is_one_of_several(env::process_environment()))
    return start_processes(processes.processes, words);
  return record_failures([&] {
    load_simulated_device(arguments.device);
    OpenedRun opened;
    opened.context = init({.backend = processes.backend, .device = arguments.device});
    opened.device = opened.context.device();
    try {
      run_agreed(opened.context, [&] {
        opened.run = arguments.open(/*needs_data=*/true);
        opened.data = open_run_data(opened.run);
        opened.model = load_run_model(opened.run);
      });
      if (opened.context.rank() == 0) say_average(opened.run.is_average, opened.run.checkpoint);
      use(opened);
    } catch (const JobError&) {
      stand_by_report(opened.context);
      throw;
    }
    opened.context.shutdown();
    return 0;
  });
}

}  // namespace rondo
