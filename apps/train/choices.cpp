#include "apps/train/flags.h"

#include "rondo/backend/engine_factories.h"
#include "rondo/data/data_options.h"
#include "rondo/models/model_options.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/train/log_targets/log_targets.h"

namespace rondo {

TrainChoices built_in_choices() {
  std::vector<Declaration> models = declared_models();
  for (Declaration& file : declared_model_files()) models.push_back(std::move(file));
  return {declared_strategies(), std::move(models), declared_data_kinds(), declared_engines(),
          declared_log_targets()};
}

}  // namespace rondo
