#pragma once

#include <tuple>
#include <vector>

#include "rondo/options/declaration.h"
#include "rondo/train/log_targets/csv/csv_target.h"
#include "rondo/train/log_targets/jsonl/jsonl_target.h"
#include "rondo/train/log_targets/mlflow/mlflow_target.h"
#include "rondo/train/log_targets/otlp/otlp_target.h"
#include "rondo/train/log_targets/prometheus/prometheus_target.h"
#include "rondo/train/log_targets/tensorboard/tensorboard_target.h"

namespace rondo {

// The targets of --log-to, one line each. Each has
//   Options                declares its options; their names begin with the target's
//   declaration()          its name, summary and options; needs no libtorch to link
//   make(options, run)     creates the target of a run; throws UsageError for invalid options
using LogTargetTypes = std::tuple<CsvTarget,         //
                                  JsonlTarget,       //
                                  MlflowTarget,      //
                                  OtlpTarget,        //
                                  PrometheusTarget,  //
                                  TensorBoardTarget>;

// Calls visit(type) for each of LogTargetTypes.
template <class Visit>
void for_each_log_target(const Visit& visit) {
  std::apply([&](auto... types) { (visit(types), ...); }, LogTargetTypes());
}

// Returns the declarations of all targets. Does not depend on libtorch.
std::vector<Declaration> declared_log_targets();

// Creates the targets of these names. `values` are options of any of them. Throws UsageError.
std::vector<LogTarget> make_log_targets(const std::vector<std::string>& names, const OptionValues& values,
                                        const LoggedRun& run);

}  // namespace rondo
