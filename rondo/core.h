#pragma once

// The part of rondo that needs no libtorch (find_package(rondo COMPONENTS core), rondo::core): errors, sizes,
// times, the environment of a job, programs that start their own processes, pipeline schedules, and functions
// that run on workers.
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/time.h"
#include "rondo/base/version.h"
#include "rondo/env/cluster.h"
#include "rondo/env/environment.h"
#include "rondo/env/field.h"
#include "rondo/env/identity.h"
#include "rondo/env/mesh.h"
#include "rondo/launch/spawn.h"
#include "rondo/pipeline/drawing.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"
#include "rondo/pipeline/stage_cuts.h"
#include "rondo/server/coordinate.h"
#include "rondo/server/coordinator.h"
#include "rondo/server/task.h"
