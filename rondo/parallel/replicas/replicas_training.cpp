#include "rondo/parallel/replicas/replicas_training.h"

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <sstream>

#include "rondo/base/collective_call.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/strategy/value_collectives.h"

namespace rondo {

ReplicaValues::ReplicaValues(ReplicaThreads& threads, Group workers)
    : threads_(threads), workers_(std::move(workers)), values_(static_cast<std::size_t>(threads.size())) {}

at::Tensor ReplicaValues::all_reduce(ReduceOp op, const at::Tensor& value) {
  const int replica = threads_.current();
  values_[static_cast<std::size_t>(replica)] = value;
  threads_.meet();
  if (replica == 0) result_ = reduce_values(op, values_, {}, workers_);
  threads_.meet();
  return result_.to(value.device(), result_.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
}

namespace {

// Copies the optimizer state to another replica's optimizer with the same parameters in the same order.
void copy_optimizer(torch::optim::Optimizer& from, torch::optim::Optimizer& to) {
  std::stringstream bytes;
  torch::serialize::OutputArchive saved;
  from.save(saved);
  saved.save_to(bytes);
  torch::serialize::InputArchive loaded;
  loaded.load_from(bytes);
  to.load(loaded);
}

void copy_values(const torch::nn::Module& from, const torch::nn::Module& to) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> sources = tensors_of(from).all_tensors();
  const std::vector<at::Tensor> targets = tensors_of(to).all_tensors();
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!targets[i].is_alias_of(sources[i])) at::Tensor(targets[i]).copy_(sources[i]);
  }
}

// Makes the parameters of `to` share the memory of `from`'s; gradients stay separate.
void share_parameters(const torch::nn::Module& from, const torch::nn::Module& to) {
  const std::vector<ModelTensor> sources = tensors_of(from).parameters;
  const std::vector<ModelTensor> targets = tensors_of(to).parameters;
  for (std::size_t i = 0; i < sources.size(); ++i) targets[i].tensor.set_data(sources[i].tensor);
}

// Returns a context with this process only. Collective.
Context alone(const Context& context) {
  if (context.world_size() == 1) return context;
  Group own;
  for (int rank = 0; rank < context.world_size(); ++rank) {
    const Group each = context.new_group({rank});
    if (rank == context.rank()) own = each;
  }
  return context.within(own);
}

}  // namespace

// The strategy that one replica's SynchronousTraining uses.
class ReplicasTraining::OfReplica final : public ProcessStrategy {
 public:
  OfReplica(ReplicasTraining& training, int replica)
      : ProcessStrategy(training.settings_.strategy, training.own_context_),
        training_(training),
        replica_(replica) {}
  using ProcessStrategy::prepare;
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override {
    const bool updates = replica_ == 0 || !training_.settings_.central_variables;
    auto model = std::make_unique<ReplicaModel>(std::move(module), training_.exchange_, updates);
    model_ = model.get();
    return model;
  }
  ReplicaModel& model() { return *model_; }

 private:
  ReplicasTraining& training_;
  int replica_;
  ReplicaModel* model_ = nullptr;
};

// Parts of the first replica, which represents all.
class ReplicasTraining::Parts final : public UndividedModel {
 public:
  explicit Parts(ReplicasTraining& training)
      : UndividedModel(training.of(0).prepared().module(), training.workers_), training_(training) {}

  void flush_for(ForwardPasses) override { training_.average_buffers(); }
  void take_values(NewValues) override { training_.spread_from_first(); }

 private:
  ReplicasTraining& training_;
};

ReplicasTraining::ReplicasTraining(Strategy& strategy, std::shared_ptr<ReplicaThreads> threads,
                                   const ReplicasSettings& settings, const Recipe& recipe)
    : threads_(std::move(threads)),
      settings_(settings),
      own_context_(alone(strategy.context())),
      workers_(strategy.context().world()),
      values_(*threads_, workers_) {
  if (settings_.central_variables && resolve(recipe.precision).master_weights) {
    throw UsageError(
        str("strategy ", settings_.strategy,
            " keeps variables once, in the dtype that replicas compute with, so there are no master "
            "weights; use opt level O0, O1 or O3 with it, or strategy mirrored"));
  }
  // Each replica's thread creates its model, so that the tracker attributes the memory to that replica.
  int made = 0;
  std::vector<Model> models = make_replicas(
      [&] {
        Model model;
        threads_->run_on(made++, [&] { model = recipe.model(); });
        return model;
      },
      threads_->size());
  replicas_.resize(models.size());
  for (int replica = 0; replica < threads_->size(); ++replica) {
    threads_->run_on(replica, settings_.devices[static_cast<std::size_t>(replica)], [&] {
      prepare_replica(replica, std::move(models[static_cast<std::size_t>(replica)]), recipe);
    });
  }
  std::vector<torch::nn::Module*> modules;
  for (const Replica& replica : replicas_) modules.push_back(&replica.training->prepared().module());
  std::unique_ptr<WorkerExchange> workers;
  if (workers_.size() > 1) {
    const ModelTensors tensors = tensors_of(*modules.front());
    verify_same_model(tensors, {}, workers_);
    broadcast_coalesced(tensors.all_tensors(), workers_, 0);
    workers = std::make_unique<WorkerExchange>(workers_, *modules.front(), settings_.workers);
  }
  exchange_ = std::make_unique<ReplicaExchange>(*threads_, modules, settings_.gradients, std::move(workers));
  replicas_.front().strategy->model().set_parts(std::make_unique<Parts>(*this));
  if (workers_.size() > 1) spread_from_first();
}

ReplicasTraining::~ReplicasTraining() = default;

void ReplicasTraining::prepare_replica(int replica, Model model, const Recipe& recipe) {
  Recipe own = recipe;
  own.model = only(std::move(model));
  if (!settings_.devices.empty()) own.device = settings_.devices[static_cast<std::size_t>(replica)];
  if (replica > 0) {
    // Observers of models see the first replica only.
    own.on_model = [this](const Model& made) {
      if (settings_.central_variables) share_parameters(*of(0).model().module, *made.module);
    };
  }
  Replica& result = replicas_[static_cast<std::size_t>(replica)];
  result.strategy = std::make_unique<OfReplica>(*this, replica);
  result.training = std::make_unique<SynchronousTraining>(*result.strategy, own);
}

void ReplicasTraining::compile(OptimizerFactory optimizer, LossFunction loss) {
  for (int replica = 0; replica < threads_->size(); ++replica) {
    threads_->run_on(replica, [&] { own().compile(optimizer, loss); });
  }
}

StepResult ReplicasTraining::train_step(std::span<const Batch> window, const StepSettings& settings) {
  const CollectiveCallScope call(CollectiveCall::train_step);
  StepSettings of_others = settings;
  of_others.stop_requested = {};
  of_others.on_phase = {};
  StepResult result;
  threads_->run([&](int replica) {
    std::vector<Batch> mine;
    mine.reserve(window.size());
    for (const Batch& batch : window) mine.push_back(part_of_batch(batch, replica, threads_->size()));
    StepResult own_result = own().train_step(mine, replica == 0 ? settings : of_others);
    if (replica == 0) result = own_result;
  });
  return result;
}

void ReplicasTraining::spread_from_first() {
  SynchronousTraining& first = of(0);
  for (std::size_t replica = 1; replica < replicas_.size(); ++replica) {
    SynchronousTraining& other = of(replica);
    copy_values(*first.model().module, *other.model().module);
    if (MasterWeights* const masters = first.precision().master_weights())
      copy_values(masters->module(), other.precision().master_weights()->module());
    other.precision().restore(first.precision().state());
    if (!first.is_compiled() || settings_.central_variables) continue;
    // Clears first, because state for parameters without state on the first replica would remain.
    other.optimizer().state().clear();
    if (!first.optimizer().state().empty()) copy_optimizer(first.optimizer(), other.optimizer());
  }
}

void ReplicasTraining::average_buffers() {
  const at::NoGradGuard no_grad;
  std::vector<std::vector<ModelTensor>> buffers;
  for (const Replica& replica : replicas_)
    buffers.push_back(tensors_of(*replica.training->model().module).buffers);
  std::vector<at::Tensor> others;  // buffers of rank 0's first replica
  for (std::size_t i = 0; i < buffers.front().size(); ++i) {
    at::Tensor first = buffers.front()[i].tensor;
    if (!first.is_floating_point()) {
      others.push_back(first);
      continue;
    }
    std::vector<at::Tensor> values;
    for (const auto& of_replica : buffers) values.push_back(of_replica[i].tensor);
    first.copy_(reduce_values(ReduceOp::AVG, values, {}, workers_));
  }
  if (workers_.size() > 1 && !others.empty()) broadcast_coalesced(others, workers_, 0);
  for (std::size_t i = 0; i < buffers.front().size(); ++i) {
    for (std::size_t replica = 1; replica < buffers.size(); ++replica)
      buffers[replica][i].tensor.copy_(buffers.front()[i].tensor);
  }
}

}  // namespace rondo
