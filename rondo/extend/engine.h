#pragma once

// Custom communication engines, compiled in or loaded from a module.
#include "rondo/backend/engine/job_objects.h"
#include "rondo/backend/engine/module.h"
#include "rondo/backend/engine/request.h"
#include "rondo/backend/engine/traits.h"
#include "rondo/backend/registry.h"
