// Reinforcement learning: every rank is an actor that plays its own episodes of CartPole, and all train one
// policy. A cart on a track is pushed left or right so that the pole on it does not fall; each step that it
// stands has the reward 1. REINFORCE, with returns normalized by their mean and deviation.
//   rondo run -n 2 build/release/bin/examples/cartpole
#include <torch/nn.h>
#include <torch/optim/adam.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <numeric>
#include <vector>

#include "rondo/collectives.h"
#include "rondo/parallel.h"

namespace {

constexpr int kEpisodes = 16, kLongest = 200;

// The dynamics of Barto, Sutton and Anderson (1983), integrated in steps of 20 ms.
class CartPole {
 public:
  explicit CartPole(at::Generator& generator) {
    const at::Tensor start = torch::rand({4}, generator) * 0.1 - 0.05;
    for (int i = 0; i < 4; ++i) state_[static_cast<std::size_t>(i)] = start[i].item<float>();
  }
  // Returns position, speed, angle, angular speed.
  const std::array<float, 4>& state() const { return state_; }
  bool is_over() const { return std::abs(state_[0]) > 2.4F || std::abs(state_[2]) > 0.2095F; }

  void push(bool right) {
    constexpr float gravity = 9.8F, pole_mass = 0.1F, mass = 1.1F, half_length = 0.5F, seconds = 0.02F;
    auto& [position, speed, angle, turning] = state_;
    const float force = right ? 10.0F : -10.0F;
    const float sine = std::sin(angle), cosine = std::cos(angle);
    const float pushed = (force + pole_mass * half_length * turning * turning * sine) / mass;
    const float turn = (gravity * sine - cosine * pushed) /
                       (half_length * (4.0F / 3.0F - pole_mass * cosine * cosine / mass));
    const float acceleration = pushed - pole_mass * half_length * turn * cosine / mass;
    position += seconds * speed;
    speed += seconds * acceleration;
    angle += seconds * turning;
    turning += seconds * turn;
  }

 private:
  std::array<float, 4> state_{};
};

// States, actions and returns of this rank's actors.
struct Experience {
  at::Tensor states, actions, returns;
  double mean_length = 0;
};

Experience play(torch::nn::Sequential& policy, at::Generator& generator) {
  const torch::NoGradGuard no_gradients;
  std::vector<CartPole> games;
  for (int i = 0; i < kEpisodes; ++i) games.emplace_back(generator);
  std::vector<std::size_t> playing(kEpisodes);
  std::iota(playing.begin(), playing.end(), std::size_t{0});
  std::vector<at::Tensor> states, actions;
  std::vector<std::pair<std::size_t, int>> moments;  // game and time of each state
  std::vector<int> lengths(kEpisodes, 0);
  for (int time = 0; time < kLongest && !playing.empty(); ++time) {
    at::Tensor seen = torch::empty({static_cast<std::int64_t>(playing.size()), 4});
    for (std::size_t i = 0; i < playing.size(); ++i)
      std::copy_n(games[playing[i]].state().begin(), 4, seen.data_ptr<float>() + 4 * i);
    const at::Tensor chosen = policy->forward(seen).softmax(1).multinomial(1, false, generator).squeeze(1);
    states.push_back(seen);
    actions.push_back(chosen);
    std::vector<std::size_t> standing;
    for (std::size_t i = 0; i < playing.size(); ++i) {
      CartPole& game = games[playing[i]];
      moments.emplace_back(playing[i], time);
      game.push(chosen[static_cast<std::int64_t>(i)].item<std::int64_t>() == 1);
      lengths[playing[i]] = time + 1;
      if (!game.is_over()) standing.push_back(playing[i]);
    }
    playing = standing;
  }
  // The return of a state: the discounted sum of the rewards that follow.
  std::vector<float> returns;
  for (const auto& [game, time] : moments)
    returns.push_back((1 - std::pow(0.98F, static_cast<float>(lengths[game] - time))) / 0.02F);
  double sum = 0;
  for (const int length : lengths) sum += length;
  return {at::cat(states), at::cat(actions), torch::tensor(returns), sum / kEpisodes};
}

}  // namespace

int main() {
  const rondo::Context context = rondo::init();
  torch::manual_seed(1);
  torch::nn::Sequential policy(torch::nn::Linear(4, 32), torch::nn::Tanh(), torch::nn::Linear(32, 2));
  rondo::DistributedDataParallel ddp(*policy, context.world());
  torch::optim::Adam optimizer(policy->parameters(), /*lr=*/0.01);
  at::Generator generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(100 + context.rank()));
  for (int iteration = 1; iteration <= 40; ++iteration) {
    const Experience experience = play(policy, generator);
    // Normalizes with the mean and deviation over all ranks' actors.
    at::Tensor sums = torch::stack({experience.returns.sum(), experience.returns.square().sum(),
                                    torch::tensor(static_cast<float>(experience.returns.numel())),
                                    torch::tensor(static_cast<float>(experience.mean_length))})
                          .to(torch::kDouble);
    rondo::all_reduce(sums, context.world());
    const double mean = sums[0].item<double>() / sums[2].item<double>();
    const double deviation = std::sqrt(sums[1].item<double>() / sums[2].item<double>() - mean * mean) + 1e-6;
    const at::Tensor advantage = (experience.returns - mean) / deviation;
    optimizer.zero_grad();
    ddp.set_local_samples(experience.returns.numel());
    const at::Tensor likelihoods = ddp.forward(policy, experience.states).log_softmax(1);
    (-(likelihoods.gather(1, experience.actions.unsqueeze(1)).squeeze(1) * advantage).mean()).backward();
    optimizer.step();
    if (context.rank() == 0 && (iteration == 1 || iteration % 10 == 0)) {
      std::cout << "iteration " << iteration << " steps that the pole stood "
                << sums[3].item<double>() / context.world_size() << std::endl;
    }
  }
  return 0;
}
