#pragma once

namespace rondo::launch {

// GPUs that a program of this process would see: /dev/nvidia<number>, as far as CUDA_VISIBLE_DEVICES allows.
int gpu_count();

}  // namespace rondo::launch
