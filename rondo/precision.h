#pragma once

// Mixed precision.
#include "rondo/precision/autocast.h"
#include "rondo/precision/grad_scaler.h"
#include "rondo/precision/options.h"
#include "rondo/precision/training_precision.h"
