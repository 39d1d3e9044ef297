#pragma once

// Plans for a loop of one's own.
#include "rondo/profile/plan_for.h"
