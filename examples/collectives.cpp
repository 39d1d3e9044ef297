// Collectives on tensors, sub-groups, and objects between ranks.
//   rondo run -n 3 build/release/bin/examples/collectives
#include <torch/torch.h>

#include <iostream>

#include "rondo/collectives.h"

int main() {
  const rondo::Context context = rondo::init();
  const rondo::Group& world = context.world();
  const int rank = context.rank(), size = context.world_size();

  at::Tensor largest = torch::full({3}, 10.0 * rank);
  rondo::all_reduce(largest, world, rondo::ReduceOp::MAX);

  at::Tensor weights = rank == 0 ? torch::arange(4.0) : torch::empty({4});
  rondo::broadcast(weights, world, /*root=*/0);

  // Two sub-groups: even and odd ranks. Every rank makes both calls; each is a member of one group.
  std::vector<int> even, odd;
  for (int r = 0; r < size; ++r) (r % 2 == 0 ? even : odd).push_back(r);
  const rondo::Group evens = context.new_group(even);
  const rondo::Group odds = odd.empty() ? rondo::Group() : context.new_group(odd);
  const rondo::Group& mine = evens.member() ? evens : odds;
  at::Tensor members = torch::ones({1});
  rondo::all_reduce(members, mine);

  // Objects are JSON values; their sizes may differ between ranks.
  const auto reports = rondo::gather_object(
      {{"rank", rank}, {"host", context.host()}, {"group_size", members.item<int>()}}, world, /*root=*/0);
  if (rank == 0) {
    std::cout << "largest " << largest[0].item<float>() << ", weights " << weights.sum().item<float>()
              << "\n";
    for (const auto& report : reports) {
      std::cout << "rank " << report["rank"] << " in a group of " << report["group_size"] << "\n";
    }
  }
  return 0;
}
