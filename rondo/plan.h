#pragma once

// Plans for a custom training loop.
#include "rondo/profile/plan_for.h"
