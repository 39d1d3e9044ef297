#pragma once

// Ranks, groups and collectives.
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/backend/group.h"
