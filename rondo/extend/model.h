#pragma once

// Models of one's own that `rondo train --model FILE.so:FACTORY` loads.
#include "rondo/models/model_module.h"
