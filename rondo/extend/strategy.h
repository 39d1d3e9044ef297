#pragma once

// Custom strategies by name.
#include "rondo/nn/parallel_communication.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/strategy/model_parts.h"
#include "rondo/strategy/process_strategy.h"
#include "rondo/strategy/recipe.h"
#include "rondo/strategy/registry.h"
