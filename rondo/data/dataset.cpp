#include "rondo/data/dataset.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

nlohmann::json DatasetInfo::model_config() const {
  if (vocabulary > 0) {
    nlohmann::json config = {{"vocabulary", vocabulary}};
    if (targets_per_sample == 1) config["classes"] = classes;
    return config;
  }
  if (unit == "tokens") return {{"context", input_shape.at(0)}, {"vocabulary", classes}};
  return {{"input_shape", input_shape}, {"classes", classes}};
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= size) {
      throw UsageError(str("sample ", index, " asked for, expected 0 to ", size - 1));
    }
  }
}

}  // namespace rondo
