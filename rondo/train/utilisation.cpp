#include "rondo/train/utilisation.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/time.h"
#include "rondo/train/trainer.h"

namespace rondo {
namespace {

constexpr double kBackwardPasses = 2;  // cost of backward in forward passes
constexpr std::int64_t kMatrixSize = 512;
constexpr auto kMeasuringTime = std::chrono::milliseconds(200);

// Measures the operations per second that this rank reaches in matrix products.
double measured_peak(Trainer& trainer) {
  const torch::NoGradGuard no_gradients;
  at::TensorOptions options(at::kFloat);
  if (const auto parameters = trainer.model().module->parameters(); !parameters.empty())
    options = parameters.front().options().requires_grad(false);
  const at::Tensor matrix = at::rand({kMatrixSize, kMatrixSize}, options);
  const auto autocast = trainer.precision().autocast();
  const double flops = 2.0 * kMatrixSize * kMatrixSize * kMatrixSize;
  double best = 0;
  for (const Deadline end = Deadline::after(kMeasuringTime); !end.passed();) {
    const TimePoint begin = Clock::now();
    // Reading an element waits for an asynchronous device.
    matrix.mm(matrix).index({0, 0}).item<double>();
    best = std::max(best, flops / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// Returns the sum over all ranks.
double joint(Trainer& trainer, double mine) {
  at::Tensor sum = at::tensor({mine}, at::kDouble);
  all_reduce(sum, trainer.strategy().context().world());
  return sum.item<double>();
}

}  // namespace

Utilisation::Utilisation(Trainer& trainer, std::optional<double> peak_flops)
    : joint_peak_(joint(trainer, peak_flops ? *peak_flops : measured_peak(trainer))) {}

void Utilisation::begin_step() {
  if (!flops_per_sample_) counter_.emplace();
}

std::optional<double> Utilisation::end_step(Trainer& trainer, const StepRecord& record) {
  const auto samples = static_cast<double>(record.samples);
  if (counter_) {
    const double forward = counter_->count();
    counter_.reset();
    flops_per_sample_ = (1 + kBackwardPasses) * joint(trainer, forward) / std::max(1.0, samples);
  }
  if (!flops_per_sample_ || *flops_per_sample_ == 0 || record.times.step_ms <= 0) return std::nullopt;
  return *flops_per_sample_ * samples / (record.times.step_ms * 1e-3 * joint_peak_);
}

}  // namespace rondo
