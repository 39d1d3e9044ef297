#pragma once

#include "apps/train/flags.h"
#include "rondo/checkpoint/pretrained.h"
#include "rondo/models/model.h"

namespace rondo {

// Weights from model.safetensors in `folder`, that of --from-pretrained, whose tensors `names` relates to the
// model's. With `say` it prints what is new in the model and what was left unused. Throws DataError where the
// folder has no such file, and as load_pretrained().
void load_init_weights(const std::string& folder, const Model& model, const PretrainedNames& names, bool say);

// --init-from, by the rules of init-rename; nothing without that flag. With `say` it prints what
// --init-strict=false left as it was. Throws UsageError for a rule that is none, DataError as load_weights()
// and load_partial_weights().
void load_given_weights(const TrainFlags& flags, const Model& model, bool say);

}  // namespace rondo
