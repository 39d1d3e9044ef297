#pragma once

// Weights by name, and weights that others have trained.
#include "rondo/checkpoint/named_tensors.h"
#include "rondo/checkpoint/pretrained.h"
