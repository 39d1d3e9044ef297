// One rank of a training, started by `rondo train` or by any launcher.
#include "apps/train/rank.h"
#include "rondo/parallel/registry.h"

int main(int argc, char** argv) { return rondo::run_rank(argc, argv, rondo::all_strategies()); }
