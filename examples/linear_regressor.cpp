// A minimal Estimator pattern: a linear regressor on feature columns of a table of flats, and
// train_and_evaluate(). Every process of a job runs this program; an evaluator evaluates the checkpoints
// meanwhile.
//
//   rondo run -n 2 --evaluator build/release/bin/examples/linear_regressor RUN_DIRECTORY [STRATEGY
//   [EVALUATION]]
//
// EVALUATION is the evaluator's strategy with its options: one_device, mirrored:replicas=2.
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>

#include "rondo/data.h"
#include "rondo/train.h"

namespace {

struct Flat {
  double area, built;
  std::string town;
};

// A feature column converts a row of the table to numbers.
struct FeatureColumn {
  std::int64_t width = 1;
  std::function<void(const Flat&, float* numbers)> fill;
};

FeatureColumn numeric(double Flat::*field, double mean, double deviation) {
  return {1,
          [=](const Flat& flat, float* out) { *out = static_cast<float>((flat.*field - mean) / deviation); }};
}

// One-hot encoding of the number's bucket.
FeatureColumn bucketized(double Flat::*field, const std::vector<double>& boundaries) {
  return {static_cast<std::int64_t>(boundaries.size()) + 1, [=](const Flat& flat, float* out) {
            out[std::upper_bound(boundaries.begin(), boundaries.end(), flat.*field) - boundaries.begin()] = 1;
          }};
}

// One-hot encoding of the word's index.
FeatureColumn categorical(std::string Flat::*field, const std::vector<std::string>& words) {
  return {static_cast<std::int64_t>(words.size()), [=](const Flat& flat, float* out) {
            const auto word = std::find(words.begin(), words.end(), flat.*field);
            if (word != words.end()) out[word - words.begin()] = 1;
          }};
}

const std::vector<std::string> kTowns = {"Altdorf", "Bern", "Chur"};

const std::vector<FeatureColumn>& columns() {
  static const std::vector<FeatureColumn> all = {
      numeric(&Flat::area, 80, 30), bucketized(&Flat::built, {1950, 1990}), categorical(&Flat::town, kTowns)};
  return all;
}

std::int64_t width() {
  std::int64_t sum = 0;
  for (const FeatureColumn& column : columns()) sum += column.width;
  return sum;
}

// Returns the true rent in hundreds: 0.1 per square metre plus terms for age and town.
double rent(const Flat& flat) {
  const double of_town[] = {0, 6, 3};
  const auto town = std::find(kTowns.begin(), kTowns.end(), flat.town) - kTowns.begin();
  return 0.1 * flat.area + (flat.built < 1950 ? 4 : flat.built < 1990 ? 0 : 2) + of_town[town];
}

// An input function: each worker calls it once and reads its part of every batch.
std::shared_ptr<const rondo::Dataset> flats(std::int64_t rows, std::uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor draws = torch::rand({rows, 3}, generator);
  const auto draw = draws.accessor<float, 2>();
  at::Tensor inputs = torch::zeros({rows, width()}), targets = torch::zeros({rows, 1});
  for (std::int64_t i = 0; i < rows; ++i) {
    const Flat flat{30 + 100.0 * draw[i][0], 1900 + 120.0 * draw[i][1],
                    kTowns[static_cast<std::size_t>(3 * std::min(draw[i][2], 0.999F))]};
    float* numbers = inputs[i].data_ptr<float>();
    for (const FeatureColumn& column : columns()) {
      column.fill(flat, numbers);
      numbers += column.width;
    }
    targets[i][0] = rent(flat);
  }
  return std::make_shared<rondo::TensorDataset>(rondo::Tensors{inputs}, rondo::Tensors{targets});
}

rondo::RunConfig run_config(int argc, char** argv) {
  rondo::RunConfig config{.directory = argv[1], .checkpoint_every = 100};
  if (argc > 2) config.training_strategy = argv[2];
  if (argc > 3) {
    std::istringstream evaluation(argv[3]);
    std::getline(evaluation, config.evaluation_strategy, ':');
    for (std::string name, value;
         std::getline(evaluation, name, '=') && std::getline(evaluation, value, ',');)
      config.evaluation_options[name] = value;
  }
  return config;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::cerr << "usage: linear_regressor RUN_DIRECTORY [STRATEGY [EVALUATION[:NAME=VALUE,...]]]\n";
    return 2;
  }
  try {
    const rondo::TrainAndEvaluateResult result = rondo::train_and_evaluate(
        {.model = [] { return rondo::as_model(std::make_shared<torch::nn::LinearImpl>(width(), 1)); },
         .compile =
             [](rondo::Trainer& trainer) {
               trainer.compile(rondo::OptimizerOptions{.name = "adam", .learning_rate = 0.1},
                               rondo::make_loss("mse"), {rondo::loss_metric(), rondo::make_metric("mae")});
             }},
        {.input = [](const rondo::InputContext&) { return flats(2048, 1); },
         .fit = {.steps = 300, .batch_size = 16}},
        {.input = [](const rondo::InputContext&) { return flats(256, 2); }}, run_config(argc, argv));
    if (result.role == rondo::JobRole::trainer)
      std::cout << "trained to step " << result.fit.step << std::endl;
    if (result.evaluated_step >= 0) {
      std::cout << (result.role == rondo::JobRole::evaluator ? "the evaluator" : "a trainer")
                << " evaluated step " << result.evaluated_step << " mae " << result.figures.at("mae")
                << std::endl;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "linear_regressor: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
