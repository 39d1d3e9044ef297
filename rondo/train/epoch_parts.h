#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/data/training_sampler.h"
#include "rondo/train/trainer.h"

namespace rondo {

// Returns the parts of the current epoch that were read before batch 0 is counted, by other readers, from
// `sampling`, a checkpoint's data on the order of samples. Throws DataError naming `what` for invalid values.
std::vector<TrainingSampler::Done> parts_done(const nlohmann::json& sampling, const std::string& what);

// Adds the part read since then, `position`.batch batches, and resets the batch to 0, so that other readers
// may read the rest.
void close_part(nlohmann::json& sampling, TrainingPosition& position);

// Removes the parts at the end of an epoch.
void clear_parts(nlohmann::json& sampling);
// Copies the parts of `from` to `to`.
void copy_parts(const nlohmann::json& from, nlohmann::json& to);

}  // namespace rondo
