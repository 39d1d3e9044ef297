#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/data/training_sampler.h"
#include "rondo/train/trainer.h"

namespace rondo {

// What `sampling`, the part of a checkpoint about the order of samples, says of the epoch under way: what was
// read of it before batch 0 is counted, by others than who reads now. Throws DataError naming `what` for
// values that cannot be.
std::vector<TrainingSampler::Done> parts_done(const nlohmann::json& sampling, const std::string& what);

// Adds what was read since, of which `position` has the batches, so that batch 0 comes next and others may
// read the rest.
void close_part(nlohmann::json& sampling, TrainingPosition& position);

// Forgets them: the epoch has ended.
void clear_parts(nlohmann::json& sampling);
// Puts those of `from` into `to`.
void copy_parts(const nlohmann::json& from, nlohmann::json& to);

}  // namespace rondo
