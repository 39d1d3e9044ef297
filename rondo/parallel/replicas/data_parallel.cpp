#include "rondo/parallel/replicas/data_parallel.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"
#include "rondo/nn/autograd_graph.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/sample_dropout.h"
#include "rondo/precision/autocast.h"
#include "rondo/strategy/replica_context.h"

namespace rondo {
namespace {

// Thread-local settings of the caller, to apply in the threads of the replicas.
class ForwardSettings {
 public:
  explicit ForwardSettings(c10::DeviceType device)
      : device_(device),
        gradients_(at::GradMode::is_enabled()),
        autocast_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)),
        samples_(SampleScope::current()) {}

  bool gradients() const { return gradients_; }
  // Returns a scope of the caller's autocast settings; null without autocast.
  std::unique_ptr<Autocast> autocast() const {
    return autocast_ ? std::make_unique<Autocast>(device_, dtype_) : nullptr;
  }
  // Returns the caller's SampleInfo for a part of the batch.
  std::shared_ptr<const SampleInfo> samples(std::int64_t first, std::int64_t count) const {
    if (!samples_) return nullptr;
    auto part = std::make_shared<SampleInfo>(*samples_);
    if (!part->indices.empty()) {
      const auto begin = samples_->indices.begin() + first;
      part->indices.assign(begin, begin + count);
    }
    return part;
  }

 private:
  c10::DeviceType device_;
  bool gradients_;
  bool autocast_;
  at::ScalarType dtype_;
  std::shared_ptr<const SampleInfo> samples_;
};

}  // namespace

// Backward of the gathered outputs. The graphs of the replicas are not part of the caller's, so that each
// replica's thread runs its own. Gradients of the inputs are not computed.
class DataParallelForward::Gather final : public torch::autograd::Node {
 public:
  // `outputs` of each replica, with their graphs.
  Gather(ReplicaThreads& threads, std::vector<Tensors> outputs)
      : threads_(threads), outputs_(std::move(outputs)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    threads_.run([&](int replica) { go_back(replica, gradients); });
    outputs_.clear();
    return {};
  }
  std::string name() const override { return "rondo::DataParallelGather"; }

 private:
  void go_back(int replica, const torch::autograd::variable_list& gradients) const {
    Tensors outputs;
    Tensors of_outputs;
    for (std::size_t k = 0; k < gradients.size(); ++k) {
      const at::Tensor& output = outputs_[static_cast<std::size_t>(replica)][k];
      if (!gradients[k].defined() || !output.requires_grad()) continue;
      std::int64_t first = 0;
      for (int before = 0; before < replica; ++before)
        first += outputs_[static_cast<std::size_t>(before)][k].size(0);
      outputs.push_back(output);
      of_outputs.push_back(gradients[k].narrow(0, first, output.size(0)).to(output.device()));
    }
    if (!outputs.empty()) torch::autograd::backward(outputs, of_outputs);
  }

  ReplicaThreads& threads_;
  std::vector<Tensors> outputs_;
};

DataParallelForward::DataParallelForward(ReplicaThreads& threads, std::vector<Model> models,
                                         std::vector<c10::Device> devices)
    : threads_(threads), models_(std::move(models)), devices_(std::move(devices)) {}

void DataParallelForward::adopt_source() {
  const std::vector<at::Tensor> sources = tensors_of(*source().module).all_tensors();
  for (int replica = 1; replica < threads_.size(); ++replica) {
    torch::nn::Module& module = *models_[static_cast<std::size_t>(replica)].module;
    threads_.run_on(replica, [&] {
      const at::NoGradGuard no_grad;
      std::vector<at::Tensor> targets = tensors_of(module).all_tensors();
      for (std::size_t i = 0; i < sources.size(); ++i) {
        const auto options = sources[i].options().device(devices_[static_cast<std::size_t>(replica)]);
        targets[i].set_data(at::empty_like(sources[i].detach(), options));
        targets[i].set_requires_grad(sources[i].requires_grad());
      }
    });
    name_sample_dropouts(module);
  }
  std::vector<torch::nn::Module*> modules;
  for (const Model& model : models_) modules.push_back(model.module.get());
  gradients_ = std::make_unique<ReplicaGradients>(
      threads_, modules, ReplicaGradients::Options{.to_first_only = true, .adds = true});
}

void DataParallelForward::replicate(int replica) {
  if (replica == 0) return;
  torch::nn::Module& module = *models_[static_cast<std::size_t>(replica)].module;
  if (module.is_training() != source().module->is_training()) module.train(source().module->is_training());
  const std::vector<at::Tensor> sources = tensors_of(*source().module).all_tensors();
  const std::vector<at::Tensor> targets = tensors_of(module).all_tensors();
  // Autograd does not see the copy as an in-place change, because passes may share a backward pass.
  for (std::size_t i = 0; i < sources.size(); ++i) targets[i].variable_data().copy_(sources[i].detach());
}

Tensors DataParallelForward::forward(const Tensors& inputs) {
  const int replicas = threads_.size();
  if (inputs.empty() || inputs.front().dim() == 0)
    throw UsageError("strategy data_parallel scatters inputs along their first dimension, and there is none");
  const Batch batch{.inputs = inputs, .targets = {}, .samples = inputs.front().size(0)};
  const ForwardSettings settings(devices_.front().type());
  std::vector<Tensors> of_replicas(static_cast<std::size_t>(replicas));
  threads_.run([&](int replica) {
    const auto number = static_cast<std::size_t>(replica);
    replicate(replica);
    // Replica 0's pass changes the source's buffers, so all replicas copy them first.
    threads_.meet();
    const at::AutoGradMode mode(settings.gradients());
    const auto autocast = settings.autocast();
    Batch part = part_of_batch(batch, replica, replicas);
    for (at::Tensor& input : part.inputs) input = input.to(devices_[number]);
    std::int64_t first = 0;
    for (int before = 0; before < replica; ++before) first += part_of_batch(batch, before, replicas).samples;
    const SampleScope scope(settings.samples(first, part.samples));
    of_replicas[number] = models_[number].forward.run(part.inputs);
  });
  for (const Tensors& outputs : of_replicas) {
    for (const at::Tensor& output : outputs) {
      if (output.dim() == 0)
        throw UsageError(
            "strategy data_parallel gathers outputs along their first dimension, and an output of the model "
            "has "
            "none; let the model return one row a sample, or use mirrored");
    }
  }
  Tensors gathered;
  bool differentiable = false;
  for (std::size_t k = 0; k < of_replicas.front().size(); ++k) {
    std::vector<at::Tensor> rows;
    for (const Tensors& outputs : of_replicas) rows.push_back(outputs[k].detach().to(devices_.front()));
    gathered.push_back(at::cat(rows, 0));
    differentiable = differentiable || of_replicas.front()[k].requires_grad();
  }
  if (!differentiable) return gathered;
  const auto node = make_graph_node<Gather>(threads_, of_replicas);
  for (std::size_t k = 0; k < gathered.size(); ++k) {
    if (of_replicas.front()[k].requires_grad()) {
      torch::autograd::create_gradient_edge(gathered[k], node);
    } else {
      node->add_input_metadata(torch::autograd::Node::undefined_input());
    }
  }
  return gathered;
}

void DataParallelForward::add_gradients() {
  threads_.run([&](int replica) {
    gradients_->combine(1);
    if (replica == 0) return;
    for (const at::Tensor& parameter : models_[static_cast<std::size_t>(replica)].module->parameters())
      parameter.mutable_grad() = at::Tensor();
  });
}

namespace {

// A prepared model whose module is the source of the replicas, which the optimizer updates.
class DataParallelModel final : public PreparedModel {
 public:
  DataParallelModel(std::shared_ptr<torch::nn::Module> module, DataParallelForward& forward)
      : module_(std::move(module)), forward_(forward) {}
  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }
  CommunicationTimes communication_times() const override { return times_; }

 private:
  void start_pass(const LocalBatch& batch) override {
    if (batch.discard_gradients)
      throw UsageError("strategy data_parallel cannot discard the gradients of a pass; take ddp or mirrored");
    synchronises_ = batch.synchronise;
  }
  void finish_pass() override {
    if (!synchronises_) return;
    const TimePoint begin = Clock::now();
    forward_.add_gradients();
    const Duration spent = Clock::now() - begin;
    times_ = {spent, spent};
  }

  std::shared_ptr<torch::nn::Module> module_;
  DataParallelForward& forward_;
  UndividedModel parts_{*module_};
  bool synchronises_ = true;
  CommunicationTimes times_;
};

// Training of the source, with a forward that runs all replicas.
class DataParallelTraining final : public Training {
 public:
  DataParallelTraining(const Context& context, std::shared_ptr<ReplicaThreads> threads,
                       std::vector<c10::Device> devices, const Recipe& recipe)
      : threads_(std::move(threads)),
        forward_(*threads_, models_of(*threads_, devices, recipe), devices),
        strategy_(context, forward_),
        training_(strategy_, recipe_of(recipe, devices.front())) {}

  void compile(OptimizerFactory optimizer, LossFunction loss) override {
    training_.compile(std::move(optimizer), std::move(loss));
  }
  StepResult train_step(std::span<const Batch> window, const StepSettings& settings) override {
    return training_.train_step(window, settings);
  }
  Tensors forward(const Batch& batch) override { return training_.forward(batch); }
  const Model& model() const override { return training_.model(); }
  torch::optim::Optimizer& optimizer() override { return training_.optimizer(); }
  TrainingPrecision& precision() override { return training_.precision(); }
  PreparedModel& prepared() override { return training_.prepared(); }
  ProcessReplicas process_replicas() const override { return {.peak_bytes = threads_->peak_bytes()}; }

 private:
  class OfSource final : public ProcessStrategy {
   public:
    OfSource(const Context& context, DataParallelForward& forward)
        : ProcessStrategy("data_parallel", context), forward_(forward) {}
    using ProcessStrategy::prepare;
    std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override {
      return std::make_unique<DataParallelModel>(std::move(module), forward_);
    }

   private:
    DataParallelForward& forward_;
  };

  static std::vector<Model> models_of(ReplicaThreads& threads, const std::vector<c10::Device>& devices,
                                      const Recipe& recipe) {
    int made = 0;
    return make_replicas(
        [&] {
          Model model;
          const int replica = made++;
          const c10::Device device = devices[static_cast<std::size_t>(replica)];
          threads.run_on(replica, device, [&] {
            model = recipe.model();
            model.module->to(device);
          });
          return model;
        },
        threads.size());
  }

  Recipe recipe_of(const Recipe& recipe, c10::Device device) {
    Recipe own = recipe;
    own.device = device;
    Model model = forward_.source();
    model.forward = [this](const Tensors& inputs) { return forward_.forward(inputs); };
    own.model = only(std::move(model));
    own.on_model = [this, told = recipe.on_model](Model& made) {
      forward_.adopt_source();
      if (told) told(made);
    };
    return own;
  }

  std::shared_ptr<ReplicaThreads> threads_;
  DataParallelForward forward_;
  OfSource strategy_;
  SynchronousTraining training_;
};

}  // namespace

std::unique_ptr<Training> DataParallel::prepare(const Recipe& recipe) {
  return std::make_unique<DataParallelTraining>(context(), threads(), devices_from(recipe.device), recipe);
}

ReplicaPlacement DataParallel::placement() const {
  ReplicaPlacement placement = ReplicasStrategy::placement();
  placement.joins_batches = true;
  return placement;
}

ReplicaValue DataParallel::run(const std::function<at::Tensor(int replica)>& step) {
  const Scope scope(this);
  const ReplicaContext replica(*this, 0, [](ReduceOp, const at::Tensor& value) { return value.clone(); });
  return step(0);
}

}  // namespace rondo
