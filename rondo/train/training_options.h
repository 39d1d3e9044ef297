#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/options/option_table.h"

// Options of a training that do without libtorch, with their declarations for command lines.
namespace rondo {

// The optimizers of make_optimizer(), sorted.
inline constexpr const char* kOptimizerNames[] = {"adagrad", "adam", "adamw", "lamb", "lars", "lion", "sgd"};

// Which parameters the weight decay is for.
enum class Decayed {
  all,       // every parameter
  matrices,  // not those of one dimension or none in the whole model: biases, what norms scale with
};

// An optimizer by name and its figures; each takes what concerns it.
struct OptimizerOptions {
  std::string name = "adamw";   // one of optimizer_names()
  double learning_rate = 1e-3;  // of all parameter groups
  double weight_decay = 0.0;    // adamw, lion: decoupled from the gradient; others: added to it
  double momentum = 0.0;        // sgd, lars
  double beta1 = 0.9;           // adam, adamw, lamb, lion
  double beta2 = 0.999;         // adam, adamw, lamb, lion
  double epsilon = 1e-8;        // all but sgd and lion
  double trust = 1e-3;          // lars: the rate of a parameter whose gradient is as long as itself
  // With a weight decay. What Trainer::compile(OptimizerOptions) adds to `undecayed`.
  Decayed decayed = Decayed::all;
  // Names of parameters without weight decay, whole or with '*' at an end: "head.bias", "*.bias", "norm.*".
  std::vector<std::string> undecayed = {};
};

// A schedule by name and its figures; each kind takes what concerns it.
struct ScheduleOptions {
  std::string kind = "constant";  // one of schedule_kinds()
  double learning_rate = 1e-3;    // the highest, reached at the end of warm-up
  std::int64_t warmup_steps = 0;  // rises linearly: step s has (s + 1) / warmup_steps of the rate
  // linear, cosine: the step at which the rate reaches its end. In FitOptions::named_schedule and of
  // LearningRateScheduler 0 stands for the length of the training.
  std::int64_t total_steps = 0;
  double end_fraction = 0.0;        // linear, cosine: the rate at the end as a fraction of learning_rate
  std::int64_t decay_every = 1000;  // step: steps between drops, counted after warm-up
  double decay_factor = 0.1;        // step: what each drop multiplies the rate with
};

// "all" or "matrices". Throws UsageError naming `what` for another text.
void read_option(const std::string& text, const std::string& what, Decayed& value);
std::string option_text(Decayed value);  // as read_option() reads it

OptionsOf<OptimizerOptions> optimizer_table();  // optimizer, lr, weight-decay, ...
OptionsOf<ScheduleOptions> schedule_table();    // lr-schedule, warmup-steps, ...; the rate is the optimizer's

}  // namespace rondo
