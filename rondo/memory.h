#pragma once

// Memory by category and unit, with a limit.
#include "rondo/backend/memory/track_allocations.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/memory/scope.h"
#include "rondo/memory/tracker.h"
#include "rondo/observe/memory_observer.h"
