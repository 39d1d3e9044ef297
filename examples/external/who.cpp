// Prints this process's place in its job, without libtorch. It is the same under `rondo run`, torchrun,
// mpirun, Slurm or no launcher.
#include <rondo/core.h>
#include <exception>
#include <iostream>

int main() {
  try {
    const rondo::env::Identity self = rondo::env::discover_process();
    std::cout << "rank " << self.rank << " of " << self.world_size << ", started by " << self.launcher
              << "\n";
    return 0;
  } catch (const rondo::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 2;
  }
}
