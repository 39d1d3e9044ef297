#pragma once

// Data sets, samplers and loaders.
#include "rondo/data/data_options.h"
#include "rondo/data/dataset.h"
#include "rondo/data/image/image_options.h"
#include "rondo/data/loader.h"
#include "rondo/data/open.h"
#include "rondo/data/sampler.h"
#include "rondo/data/text_options.h"
#include "rondo/data/token_options.h"
#include "rondo/data/torch_dataset.h"
#include "rondo/data/word_piece.h"
