#pragma once

#include "rondo/data/open.h"

namespace rondo {

// Images in a folder for each class, as torchvision's ImageFolder reads them: PATH/cat/*.jpg, PATH/dog/*.png,
// at any depth below a class; classes are the names of the folders, sorted. With PATH/train and PATH/val (or
// validation) these are the two parts.
DataKind image_folder_kind();

}  // namespace rondo
