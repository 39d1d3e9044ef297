// Trains a small model by one way of training under one strategy, for support_loops.py:
//
//   training_loops trainer|loop|train_and_evaluate|suspended DIRECTORY STRATEGY [OPTION=VALUE]...
//
// on the CPU, or on the simulated accelerator of the module RONDO_SIM_MODULE.
// The last line on rank 0 names the way: "trained by the trainer", "trained by prepare", "trained by
// train_step", "trained by train_and_evaluate". A loop also saves a checkpoint and resumes from it. In
// `suspended` (for multi_host_test.py) rank 0 suspends itself between two steps, and the others wait at most
// 2 s.
#include <torch/nn.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <rondo/rondo.h>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>
#include <thread>

#include "rondo/backend/card_engine.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/device/device_choice.h"
#include "rondo/env/cluster.h"
#include "rondo/parallel/server/server_strategy.h"
#include "rondo/train/agreement.h"
#include "rondo/train/training_place.h"

namespace {

struct Task {
  rondo::ModelFactory model;
  std::shared_ptr<const rondo::Dataset> data;
};

// Returns the task: find the largest of eight numbers, or, for strategies that divide a model or plan its
// units, the next token.
Task task_for(const std::string& strategy) {
  torch::manual_seed(1);
  if (strategy == "tensor" || strategy == "context" || strategy == "expert" || strategy == "planned") {
    const at::Tensor tokens = torch::randint(16, {128, 9});
    nlohmann::json config = {{"layers", 2}, {"heads", 4}, {"width", 16}, {"context", 8}, {"vocabulary", 16}};
    if (strategy == "expert") config["experts"] = 4;
    return {[config] {
              torch::manual_seed(7);
              return rondo::make_model("gpt", config);
            },
            std::make_shared<rondo::TensorDataset>(rondo::Tensors{tokens.narrow(1, 0, 8).contiguous()},
                                                   rondo::Tensors{tokens.narrow(1, 1, 8).contiguous()}, 16)};
  }
  const at::Tensor inputs = torch::randn({128, 8});
  return {
      [] {
        torch::manual_seed(7);
        return rondo::as_model(std::make_shared<torch::nn::SequentialImpl>(
            torch::nn::Linear(8, 16), torch::nn::ReLU(), torch::nn::Linear(16, 16), torch::nn::ReLU(),
            torch::nn::Linear(16, 8)));
      },
      std::make_shared<rondo::TensorDataset>(rondo::Tensors{inputs}, rondo::Tensors{inputs.argmax(1)}, 8)};
}

std::unique_ptr<torch::optim::Optimizer> optimizer_of(torch::nn::Module& module) {
  return std::make_unique<torch::optim::SGD>(module.parameters(), /*lr=*/0.01);
}

void train_by_trainer(rondo::Strategy& strategy, const Task& task) {
  rondo::Trainer trainer(strategy, task.model, strategy.context().device());
  trainer.compile(optimizer_of);
  const rondo::FitResult result = trainer.fit(task.data, {.steps = 3, .batch_size = 4});
  if (result.step != 3 || !std::isfinite(result.loss.value_or(NAN)))
    throw rondo::Error("the trainer did not do its steps");
}

// Rank 0 hangs when the other rank has finished all started operations and waits for the next announcement.
void hang(rondo::Strategy& strategy, const Task& task, const std::filesystem::path& directory) {
  const rondo::Model model = task.model();
  const auto prepared = strategy.prepare(model.module);
  const auto optimizer = optimizer_of(prepared->module());
  const rondo::Batch batch = task.data->get(std::vector<std::int64_t>{0, 1, 2, 3});
  for (int step = 0; step < 3; ++step) {
    const auto forward = [&](const at::Tensor& input) { return model.forward.run({input}).front(); };
    at::cross_entropy_loss(prepared->forward(forward, batch.inputs.front()), batch.targets.front())
        .backward();
    rondo::clip_grad_norm_(*prepared, /*max_norm=*/1e9);  // returns when the gradients have been reduced
    const std::string combined = directory.string() + ".combined";
    if (step == 1 && strategy.context().rank() == 1) rondo::write_own_file(combined, "");
    if (step == 1 && strategy.context().rank() == 0) {
      const rondo::Deadline deadline = rondo::Deadline::after(std::chrono::minutes(1));
      while (!std::filesystem::exists(combined) && !deadline.passed()) std::this_thread::yield();
      std::raise(SIGSTOP);
    }
    prepared->step(*optimizer);
  }
}

// Returns this process's weights.
std::vector<at::Tensor> weights_of(rondo::PreparedModel& prepared, const rondo::Model& model) {
  prepared.unshard();
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : model.module->parameters())
    copies.push_back(parameter.detach().clone().cpu());
  return copies;
}

// Returns a checkpoint's weights in the order of the model's parameters.
std::vector<at::Tensor> stored_weights(const std::filesystem::path& directory, const rondo::Model& model) {
  std::map<std::string, at::Tensor> stored;
  for (const rondo::NamedTensor& tensor : rondo::read_weights(directory)) stored[tensor.name] = tensor.tensor;
  std::vector<at::Tensor> weights;
  for (const auto& parameter : model.module->named_parameters())
    weights.push_back(stored.at(parameter.key()));
  return weights;
}

// A barrier over all processes of the job. Groups and workers at parameter servers are separate worlds, and
// one worker's push changes another's pull, so they synchronize by files.
class Meeting {
 public:
  Meeting(const rondo::Context& context, std::filesystem::path stem)
      : context_(context),
        stem_(std::move(stem)),
        cluster_(rondo::env::read_cluster(rondo::env::process_environment())) {}

  void meet() {
    rondo::barrier(context_.world());
    ++times_;
    if (!cluster_) return;
    rondo::write_own_file(file_of(static_cast<std::size_t>(cluster_->index)), "");
    const rondo::Deadline deadline = rondo::Deadline::after(std::chrono::minutes(1));
    for (std::size_t worker = 0; worker < cluster_->workers.size(); ++worker) {
      while (!std::filesystem::exists(file_of(worker))) {
        if (deadline.passed()) throw rondo::Error(rondo::str("worker ", worker, " did not come"));
        std::this_thread::yield();
      }
    }
  }

 private:
  std::filesystem::path file_of(std::size_t worker) const {
    return rondo::str(stem_.string(), ".met-", times_, "-", worker);
  }

  const rondo::Context& context_;
  std::filesystem::path stem_;
  std::optional<rondo::env::Cluster> cluster_;
  int times_ = 0;
};

// Runs three steps, saves a checkpoint, runs another step, and loads the checkpoint: the weights must be
// restored. `stored` is null if all ranks have the state that they save. With servers a worker learns of
// other pushes only in its next step, so the checkpoint itself is the reference.
void train_and_go_back(const rondo::Context& context, const std::filesystem::path& directory,
                       const std::function<std::vector<at::Tensor>()>& stored,
                       const std::function<void(std::int64_t step)>& do_step,
                       const std::function<void()>& save, const std::function<std::int64_t()>& load,
                       const std::function<std::vector<at::Tensor>()>& weights) {
  Meeting all(context, directory);
  for (std::int64_t step = 0; step < 3; ++step) do_step(step);
  save();
  std::vector<at::Tensor> saved = weights();
  all.meet();  // servers' weights change with the next step of any worker
  do_step(3);
  if (stored) weights();  // so that servers have applied this worker's pushes
  all.meet();
  const std::int64_t step = load();
  all.meet();  // the chief sends the loaded state to the servers
  if (step != 3)
    throw rondo::Error(rondo::str("the checkpoint in ", directory.string(), " is of step ", step, ", not 3"));
  if (stored) saved = stored();
  const std::vector<at::Tensor> loaded = weights();
  all.meet();
  for (std::size_t i = 0; i < saved.size(); ++i) {
    if (!at::equal(saved[i], loaded[i]))
      throw rondo::Error(rondo::str("parameter ", i, " is not what was saved in ", directory.string()));
  }
  do_step(step);
}

// A loop of forward, loss and backward with the strategy's calls between them.
void loop_by_prepare(rondo::Strategy& strategy, const Task& task, const std::filesystem::path& directory) {
  const rondo::Model model = task.model();
  const c10::Device device = strategy.context().device();
  model.module->to(device);
  const auto on_device = [&](rondo::Tensors tensors) {
    for (at::Tensor& tensor : tensors) tensor = tensor.to(device);
    return tensors;
  };
  const auto prepared = strategy.prepare(model.module);
  const auto optimizer = optimizer_of(prepared->module());
  const rondo::LossFunction loss_function = prepared->division().loss_of_parts(rondo::cross_entropy);
  const auto data =
      strategy.distribute(task.data, {.global_batch_size = 4 * strategy.num_replicas_in_sync()});
  const auto do_step = [&](std::int64_t) {
    auto batches = data->next();
    const rondo::Batch batch = prepared->division().own_part(batches->front());
    optimizer->zero_grad();
    prepared->begin_step({.samples = batch.samples});
    const rondo::Loss loss =
        loss_function(model.forward.run(on_device(batch.inputs)), on_device(batch.targets), batch.samples);
    const int parts = prepared->division().ranks_of_sequence();
    (parts == 1 ? loss.mean : loss.mean / parts).backward();
    prepared->finish_backward();
    prepared->step(*optimizer);
    if (!std::isfinite(loss.mean.item<double>())) throw rondo::Error("the loss is not finite");
  };
  std::function<std::vector<at::Tensor>()> stored;
  if (strategy.is_served()) stored = [&] { return stored_weights(directory, model); };
  const rondo::OwnTraining own{strategy.context(), *model.module, *prepared, *optimizer};
  train_and_go_back(
      strategy.context(), directory, stored, do_step, [&] { rondo::save(directory, own, 3); },
      [&] { return rondo::load(directory, own).step; }, [&] { return weights_of(*prepared, model); });
}

// A loop of the strategy's own step, on a batch for each replica of this process.
void loop_by_train_step(rondo::Strategy& strategy, const Task& task, const std::filesystem::path& directory) {
  const auto training = strategy.prepare(
      {.model = task.model, .optimizer = optimizer_of, .device = strategy.context().device()});
  const auto data =
      strategy.distribute(task.data, {.global_batch_size = 4 * strategy.num_replicas_in_sync()});
  const auto do_step = [&](std::int64_t step) {
    const auto batches = data->next();
    const rondo::StepResult result =
        training->train_step(*batches, {.step = step, .learning_rate = {}, .stop_requested = {}});
    if (!std::isfinite(result.totals.loss)) throw rondo::Error("the loss is not finite");
  };
  const rondo::Context& context = strategy.context();
  train_and_go_back(
      context, directory, nullptr, do_step, [&] { rondo::save(directory, context, *training, 3); },
      [&] { return rondo::load(directory, context, *training).step; },
      [&] { return weights_of(training->prepared(), training->model()); });
}

std::string simulated_device() {
  const char* const module = std::getenv("RONDO_SIM_MODULE");
  return module == nullptr ? std::string() : module;
}

std::string device_name() { return simulated_device().empty() ? "cpu" : "sim"; }

// Called before the job is joined.
c10::Device device_of_local_rank() {
  const char* const rank = std::getenv("LOCAL_RANK");
  return rondo::choose_device(device_name(), {}, rank == nullptr ? 0 : std::atoi(rank), 1);
}

// Strategy planned needs a plan, which the ranks make before in a separate world.
rondo::OptionValues planned_options(const Task& task, const std::filesystem::path& file) {
  rondo::Context context = rondo::init({.device = device_name(), .epoch = 1});
  const rondo::Model model = task.model();
  model.module->to(context.device());
  rondo::Batch batch = task.data->get(std::vector<std::int64_t>{0, 1, 2, 3});
  for (rondo::Tensors* tensors : {&batch.inputs, &batch.targets}) {
    for (at::Tensor& tensor : *tensors) tensor = tensor.to(context.device());
  }
  const std::string plan =
      rondo::plan_for(context, model, batch, rondo::GiB(1), {.time_limit = std::chrono::seconds(1)});
  if (context.rank() == 0) rondo::write_own_file(file, plan);
  context.shutdown();
  return {{"plan", file.string()}};
}

std::string trained(const std::string& way, const std::filesystem::path& directory, const std::string& name,
                    rondo::OptionValues options) {
  const Task task = task_for(name);
  if (name == "planned") options = planned_options(task, directory.string() + ".plan.json");
  if (way == "train_and_evaluate") {
    const auto input = [&](const rondo::InputContext&) { return task.data; };
    const auto result = rondo::train_and_evaluate(
        {.model = task.model, .compile = [](rondo::Trainer& trainer) { trainer.compile(optimizer_of); }},
        {.input = input, .fit = {.steps = 3, .batch_size = 4}}, {.input = input},
        {.directory = directory,
         .training_strategy = name,
         .training_options = options,
         .checkpoint_every = 2,
         .device = device_of_local_rank()});
    if (result.role != rondo::JobRole::trainer) return {};
    if (result.fit.step != 3) throw rondo::Error("train_and_evaluate did not do its steps");
    return way;
  }
  const rondo::ServedWorker worker = rondo::all_strategies().declaration(name).worker;
  if (worker != rondo::ServedWorker::none) {
    const auto cluster = rondo::env::read_cluster(rondo::env::process_environment());
    if (cluster && cluster->is_server) {
      rondo::server::run_task(*cluster);
      return {};
    }
  }
  rondo::InitOptions init{.device = device_name()};
  if (way == "suspended") init.timeout = std::chrono::seconds(2);
  rondo::training_place(worker, options, init);
  rondo::Context context = rondo::init(init);
  const auto strategy = rondo::all_strategies().make(name, context, options);
  std::string how = "the trainer";
  if (way == "trainer") {
    train_by_trainer(*strategy, task);
  } else if (way == "suspended") {
    hang(*strategy, task, directory);
  } else {
    try {
      loop_by_prepare(*strategy, task, directory);
      how = "prepare";
    } catch (const rondo::UsageError& refusal) {
      std::cerr << refusal.what() << "\n";
      loop_by_train_step(*strategy, task, directory);
      how = "train_step";
    }
  }
  context.shutdown();
  return context.rank() == 0 ? how : std::string();
}

}  // namespace

int main(int count, char** words) {
  try {
    if (count < 4) throw rondo::UsageError("usage: training_loops WAY DIRECTORY STRATEGY [OPTION=VALUE]...");
    rondo::OptionValues options;
    for (int i = 4; i < count; ++i) {
      const std::vector<std::string> parts = rondo::split(words[i], '=');
      options[parts.at(0)] = parts.at(1);
    }
    if (!simulated_device().empty()) rondo::replace_card_engine(simulated_device());
    const std::string how = trained(words[1], words[2], words[3], options);
    if (!how.empty()) std::cout << "trained by " << how << std::endl;
    return 0;
  } catch (const rondo::AgreedError& error) {
    std::cerr << "training_loops: " << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  } catch (const rondo::UsageError& error) {
    std::cerr << "training_loops: " << error.what() << "\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "training_loops: " << error.what() << "\n";
    return 1;
  }
}
