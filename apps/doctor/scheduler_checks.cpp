#include "checks.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/identity.h"

namespace doctor {

using rondo::str;

Findings check_schedulers() {
  Findings findings;
  struct Program {
    const char* name;
    const char* scheduler;
    const char* get;
  };
  for (const Program& program :
       {Program{"srun", "Slurm", "apt-get install slurm-client"},
        Program{"mpirun", "Open MPI", "apt-get install openmpi-bin"},
        Program{"kubectl", "Kubernetes", "https://kubernetes.io/docs/tasks/tools"}}) {
    const std::string path = which(program.name);
    findings.push_back({"schedulers",
                        program.scheduler,
                        path.empty() ? State::missing : State::ok,
                        path.empty() ? str(program.name, " is not installed (only needed to use it)") : path,
                        path.empty() ? program.get : "",
                        {{"program", program.name}, {"path", path}}});
  }
  try {
    const rondo::env::Identity self = rondo::env::discover_process();
    std::string detail = self.launcher == "none"
                             ? "no launcher: one process"
                             : str("rank ", self.rank, " of ", self.world_size, ", told by ", self.launcher);
    if (!self.sources_seen.empty())
      detail += str("; variables seen of: ", rondo::join(self.sources_seen, ", "));
    findings.push_back({"schedulers",
                        "this process",
                        State::ok,
                        detail,
                        "",
                        {{"launcher", self.launcher},
                         {"rank", self.rank},
                         {"world_size", self.world_size},
                         {"host", self.host},
                         {"sources", self.sources_seen}}});
  } catch (const rondo::Error& error) {
    findings.push_back({"schedulers",
                        "this process",
                        State::warning,
                        error.what(),
                        "correct the variables named",
                        {{"error", error.what()}}});
  }
  return findings;
}

}  // namespace doctor
