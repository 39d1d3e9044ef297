#pragma once

#include <span>

#include "rondo/env/environment.h"
#include "rondo/env/settings.h"

namespace rondo::env {

// A way of being told who one is: a launcher's or a scheduler's set of environment variables.
struct Source {
  const char* name;
  // What the environment says by this source. `higher` is what sources of higher precedence have said.
  Settings (*read)(const EnvironmentMap&, const Settings& higher);
  // Whether this source's launcher started this very process, so that the sources below describe the launcher
  // and not the process. Null: cannot be known.
  bool (*started_this_process)(const EnvironmentMap&);
};

// The sources, highest precedence first. To add one: a file in sources/ and a line in the table in
// source.cpp.
std::span<const Source> sources();

extern const Source pet_source;
extern const Source torchrun_source;
extern const Source open_mpi_source;
extern const Source pmi_source;
extern const Source slurm_source;
extern const Source kubernetes_source;
extern const Source tpu_slice_source;
extern const Source tf_config_source;

}  // namespace rondo::env
