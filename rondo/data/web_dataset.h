#pragma once

#include "rondo/data/open.h"

namespace rondo {

// Tar files of images as WebDataset has them: a sample is the members with one name up to the first dot, an
// image (jpg, jpeg or png) and its class as a number (cls). PATH is one file, or a folder of *.tar, of which
// val*.tar are for validation where there are others besides. Members are found once, when the files are
// opened; a training reads the shards in random order, and shuffles in a window (order_of_shards()).
DataKind web_dataset_kind();

}  // namespace rondo
