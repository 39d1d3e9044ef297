#pragma once

#include "rondo/base/random.h"
#include "rondo/data/image/image_options.h"

namespace rondo {

// A part of an image, in its pixels.
struct ImageBox {
  int left = 0, top = 0, width = 0, height = 0;
};

// What a sample shows.
struct ImageView {
  ImageBox box;
  bool mirrored = false;
};

// A part of an image of width x height pixels for training, as ImageOptions::augment says; `random` decides.
ImageView random_view(const ImageOptions& options, int width, int height, RandomStream& random);
// The square of 7/8 of the shorter side in the middle: what resizing the shorter side to 8/7 of the wanted
// size and cutting out the middle gives.
ImageView middle_view(int width, int height);

}  // namespace rondo
