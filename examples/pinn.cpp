// A physics-informed network: u'' = -pi^2 sin(pi x) on [0, 1] with u(0) = u(1) = 0; the solution is sin(pi
// x). The loss has second derivatives of the network. Each rank has its own points. Training begins with
// Adam. If the strategy keeps the full model on every rank, LBFGS with the loss of all ranks follows.
//   rondo run -n 2 build/release/bin/examples/pinn ddp
#include <torch/torch.h>

#include <cmath>
#include <iostream>
#include <string>

#include "rondo/collectives.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/strategy.h"

namespace {

constexpr double kPi = 3.14159265358979323846;

at::Tensor derivative(const at::Tensor& value, const at::Tensor& x) {
  return torch::autograd::grad({value.sum()}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
}

// Returns the mean square of the equation's residual at `points` and of the boundary conditions' residuals.
at::Tensor residual_loss(torch::nn::Sequential& network, const at::Tensor& points) {
  at::Tensor x = points.clone().set_requires_grad(true);
  const at::Tensor left =
      derivative(derivative(network->forward(x), x), x) + kPi * kPi * torch::sin(kPi * points);
  return left.square().mean() +
         10 * network->forward(torch::tensor({{0.0}, {1.0}}, at::kDouble)).square().mean();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "ddp";
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make(name, context);
  torch::manual_seed(1);
  torch::nn::Sequential network(torch::nn::Linear(1, 24), torch::nn::Tanh(), torch::nn::Linear(24, 24),
                                torch::nn::Tanh(), torch::nn::Linear(24, 1));
  network->to(at::kDouble);
  rondo::wrap_units(*network, rondo::wrap_all());
  const auto prepared = strategy->prepare(network.ptr());
  // Rank r of n takes every n-th point of the global set.
  constexpr int kPoints = 64;
  const at::Tensor all_points = torch::linspace(0, 1, kPoints, at::kDouble).view({-1, 1});
  const at::Tensor points = all_points.slice(0, context.rank(), kPoints, context.world_size());

  const auto train = [&](torch::optim::Optimizer& optimizer, int steps) {
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
      loss = prepared
                 ->step(optimizer,
                        [&] {
                          optimizer.zero_grad();
                          prepared->begin_step({.samples = points.size(0)});
                          const at::Tensor of_rank = residual_loss(network, points);
                          of_rank.backward();
                          prepared->finish_backward();
                          return of_rank;
                        })
                 .item<double>();
    }
    return loss;
  };
  torch::optim::Adam adam(prepared->module().parameters(), 1e-2);
  const double after_adam = train(adam, 300);
  double after_all = after_adam;
  if (!prepared->parts().optimizes_shards()) {
    torch::optim::LBFGS lbfgs(prepared->module().parameters(),
                              torch::optim::LBFGSOptions(1).max_iter(40).line_search_fn("strong_wolfe"));
    after_all = train(lbfgs, 5);
  }

  const rondo::SummonFullParams full(*prepared);
  const at::NoGradGuard no_grad;
  const at::Tensor error = (network->forward(all_points) - torch::sin(kPi * all_points)).abs().max();
  if (context.rank() == 0) {
    std::cout << "loss " << after_adam << "\nloss " << after_all << "\nlargest error " << error.item<double>()
              << "\n";
  }
  return 0;
}
