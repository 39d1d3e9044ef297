#pragma once

// Weights by name, and pretrained weights.
#include "rondo/checkpoint/named_tensors.h"
#include "rondo/checkpoint/pretrained.h"
