#pragma once

// Custom models that `rondo train --model FILE.so:FACTORY` loads.
#include "rondo/models/model_module.h"
