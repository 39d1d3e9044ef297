#pragma once

// Built-in models, and models from files.
#include "rondo/models/bert.h"
#include "rondo/models/convnet.h"
#include "rondo/models/generate.h"
#include "rondo/models/gpt.h"
#include "rondo/models/mlp.h"
#include "rondo/models/model.h"
#include "rondo/models/model_file.h"
#include "rondo/models/script.h"
