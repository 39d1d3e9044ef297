// A program that starts its own ranks: no launcher needed.
//   build/release/bin/examples/spawn 3
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>

#include "rondo/collectives.h"
#include "rondo/core.h"

namespace {

void work(int rank) {
  const rondo::Context context = rondo::init();
  at::Tensor sum = torch::full({1}, rank + 1.0);
  rondo::all_reduce(sum, context.world());
  if (rank == 0) std::cout << context.world_size() << " ranks, sum " << sum.item<float>() << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  try {
    rondo::spawn(work, ranks);  // before anything else: the ranks are forks of this process
  } catch (const std::exception& error) {
    std::cerr << "spawn: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
