#include "rondo/launch/spawn.h"

#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/launch/descriptor.h"
#include "rondo/launch/failure.h"
#include "rondo/launch/guardian.h"
#include "rondo/launch/network.h"
#include "rondo/launch/scratch.h"
#include "rondo/launch/supervisor.h"
#include "rondo/launch/worker_environment.h"

namespace rondo {
namespace {

int call(const std::function<void(int)>& fn, int rank) {
  try {
    fn(rank);
    return static_cast<int>(ExitCode::ok);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, plain_message(error).c_str());
    launch::record_failure(error);
  } catch (...) {
    std::fprintf(stderr, "rank %d: an exception that is not a std::exception\n", rank);
  }
  return static_cast<int>(ExitCode::failed);
}

std::vector<launch::WorkerSpec> make_specs(const std::function<void(int)>& fn, int processes,
                                           const SharedStore& store, const std::string& scratch) {
  const int port = launch::find_free_port();
  const std::string run_id = str("rondo-spawn-", getppid(), "-", monotonic_ns());
  std::vector<launch::WorkerSpec> specs;
  for (int rank = 0; rank < processes; ++rank) {
    launch::WorkerSpec spec;
    spec.rank = rank;
    spec.function = [&fn, rank] { return call(fn, rank); };
    spec.gets_stdin = rank == 0;
    if (!scratch.empty()) spec.error_file = str(scratch, "/error_", rank, ".json");
    launch::WorkerPlace place;
    place.rank = rank;
    place.local_rank = rank;
    place.world_size = processes;
    place.local_world_size = processes;
    place.master_port = port;
    place.run_id = run_id;
    place.error_file = spec.error_file;
    place.store_descriptor = store.descriptor();
    spec.environment = launch::worker_environment(env::process_environment(), place);
    spec.inherited_descriptor = store.descriptor();
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace

void spawn(const std::function<void(int rank)>& fn, int processes) {
  if (processes < 1)
    throw UsageError(str("spawn: the number of processes must be at least 1, not ", processes));
  launch::ensure_standard_streams();
  const launch::ScratchDirectory scratch = launch::ScratchDirectory::create();
  if (scratch.path().empty()) throw Error("spawn: cannot make a temporary directory in $TMPDIR or /tmp");
  const std::string report = scratch.path() + "/report";
  const int code = launch::run_guarded(
      [&](int lifeline) {
        const auto store = SharedStore::create();
        const std::vector<launch::WorkerSpec> specs = make_specs(fn, processes, *store, scratch.path());
        const TimePoint started = Clock::now();
        launch::SupervisorOptions options;
        options.lifeline = lifeline;
        const launch::AttemptEnd end = launch::supervise(specs, options);
        if (end.abandoned) {  // no other process is left to remove it
          std::error_code ignored;
          std::filesystem::remove_all(scratch.path(), ignored);
        }
        const auto root = launch::root_cause(end, specs);
        if (root) write_own_file(report, launch::describe_failure(end, specs, *root, started));
        return launch::job_exit_code(end, root);
      },
      {});
  if (code == 0) return;
  std::ostringstream text;
  text << std::ifstream(report).rdbuf();
  throw Error(str("spawn: ", text.str().empty() ? str("the job ended with code ", code) : text.str()));
}

}  // namespace rondo
