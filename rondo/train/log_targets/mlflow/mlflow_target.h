#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The log target mlflow.
struct MlflowTarget {
  struct Options {
    std::string directory;  // path of the folder; empty: mlruns of the run
  };
  static Declaration declaration() {
    OptionsOf<Options> table;
    table.add("mlflow-dir", &Options::directory, "Directory of MLflow's runs; default RUN/mlruns").type =
        "DIR";
    table.without_flags({"mlflow-dir"});
    return {"mlflow", "MLflow's folders of runs", table};
  }
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
