#include "rondo/parallel/ddp/ddp_strategy.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/ddp_state.h"
#include "rondo/parallel/gradients/fingerprint.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/sharded/sharded_model.h"
#include "rondo/strategy/step_calls.h"

namespace rondo {
namespace {

std::shared_ptr<torch::nn::Module> unprepared(std::shared_ptr<torch::nn::Module> module) {
  require_unprepared(tensors_of(*module).parameters);
  return module;
}

class DdpModel final : public PreparedModel {
 public:
  DdpModel(std::shared_ptr<torch::nn::Module> module, const Group& group, const DdpOptions& options,
           CommHook hook)
      : module_(unprepared(std::move(module))), ddp_(*module_, group, options) {
    // Serves a second backward pass in a step. A pass outside of a step throws, since it would weigh all
    // ranks the same.
    if (StepAnnouncement* announcement = ddp_.state().announcement.get())
      announcement->offer_always([this] { return begun_step(); });
    if (!hook.run) return;
    hook_remembers_ = group.size() > 1 && hook.save != nullptr;
    ddp_.register_comm_hook(std::move(hook));
  }

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }

  void start_pass(const LocalBatch& batch) override {
    check_samples(batch);
    if (is_window_ && window_fingerprint_ != parameters_fingerprint()) throw UsageError(kStepInWindow);
    has_begun_ = true;
    no_sync_.reset();
    // A pass whose gradients are discarded is not part of the step.
    if (!batch.discard_gradients) {
      announced_ = false;
      in_step_ = batch.synchronise;
      if (!batch.synchronise && !is_window_) window_fingerprint_ = parameters_fingerprint();
      is_window_ = !batch.synchronise;
    }
    if (batch.synchronise) {
      mine_ = {.samples = batch.samples, .steps = steps_};
      if (StepAnnouncement* announcement = ddp_.state().announcement.get()) announcement->offer(mine_);
    } else {
      no_sync_.emplace(ddp_.no_sync());
    }
    ddp_.before_forward();
    synchronised_ = batch.synchronise;
  }

  void announce(const StepTotals& mine) override {
    announced_ = has_totals_ = true;
    mine_.totals = mine;
    if (StepAnnouncement* announcement = ddp_.state().announcement.get()) announcement->start(mine_);
  }

  StepTotals totals() override {
    if (!has_totals_) throw UsageError(kNothingAnnounced);
    StepAnnouncement* announcement = ddp_.state().announcement.get();
    return announcement != nullptr ? announcement->totals() : mine_.totals;
  }

  // The backward pass itself has already waited for the gradients.
  void finish_pass() override {
    if (!std::exchange(has_begun_, false)) {
      throw UsageError(
          "finish_backward() was called without begin_step(): call begin_step() before the forward pass, and "
          "finish_backward() once after the backward pass");
    }
    if (synchronised_) has_totals_ = announced_;
    no_sync_.reset();
  }

  double clip_combined(double max_norm) override {
    if (is_window_) throw UsageError(kStepInWindow);
    return PreparedModel::clip_combined(max_norm);
  }

  void apply_step(torch::optim::Optimizer& optimizer) override {
    if (is_window_) throw UsageError(kStepInWindow);
    // Steps of several optimizers after one pass count once.
    if (std::exchange(in_step_, false)) ++steps_;
    optimizer.step();
  }

  CommunicationState communication_state() const override { return ddp_.communication_state(); }

  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override {
    const std::string incompatibility = rondo::restore_communication(ddp_, of_ranks);
    return hook_remembers_ ? codec_restart_warning(incompatibility) : std::string();
  }

  CommunicationTimes communication_times() const override {
    if (!synchronised_) return {};
    return {communication_time(ddp_.last_backward()), exposed_communication_time(ddp_.last_backward())};
  }

  std::vector<TraceSpan> communication_spans() const override {
    return synchronised_ ? ddp_.last_backward().buckets : std::vector<TraceSpan>();
  }

 private:
  // The model's parts. Before validation and saving all ranks take rank 0's buffers, as the next step does.
  class Parts final : public UndividedModel {
   public:
    explicit Parts(DdpModel& model)
        : UndividedModel(*model.module_, model.ddp_.group(), {.optimizes_whole_model = true}),
          model_(model) {}
    void flush_for(ForwardPasses) override { share_buffers(); }
    // Ignored tensors are local to each rank: they are not saved, and are not released with the model.
    std::vector<Shard> shards() override {
      std::vector<Shard> shards;
      for (const auto& [name, tensor] : tensors().parameters)
        shards.push_back(full_shard(name, tensor, std::max(0, group().rank())));
      return shards;
    }
    void give_back_model() override {
      for (const ModelTensor& parameter : tensors().parameters) {
        at::Tensor tensor = parameter.tensor;
        tensor.set_data(at::zeros_like(tensor));
      }
    }
    std::vector<ModelTensor> buffers() override { return tensors().buffers; }

   private:
    const ModelTensors& tensors() { return model_.ddp_.state().tensors; }
    void share_buffers() {
      const at::NoGradGuard no_gradients;  // these forward passes do not belong to a step
      model_.ddp_.before_forward();
    }
    DdpModel& model_;
  };

  static constexpr const char* kStepInWindow =
      "the passes since the last step have LocalBatch::synchronise = false, so this rank's gradients are not "
      "combined with the others', and a step would make the ranks diverge: set synchronise = true in "
      "begin_step() of the last pass before step() and clip_gradients()";

  const RankStep& begun_step() const {
    if (in_step_) return mine_;
    throw UsageError(
        "backward() ran outside of a step: call begin_step() before the forward pass, and finish_backward() "
        "and "
        "step(optimizer) after the backward pass");
  }

  std::uint64_t parameters_fingerprint() {
    std::uint64_t sum = 0;
    for (const ModelTensor& parameter : ddp_.state().tensors.parameters) sum += fingerprint(parameter.tensor);
    return sum;
  }

  std::shared_ptr<torch::nn::Module> module_;
  DistributedDataParallel ddp_;
  Parts parts_{*this};
  std::optional<NoSync> no_sync_;         // set within an accumulation window
  RankStep mine_;                         // announcement of the current step
  std::int64_t steps_ = 0;                // number of steps taken
  bool has_begun_ = false;                // whether begin_step() was called without finish_backward() since
  bool in_step_ = false;                  // whether a pass that synchronises has begun since the last step()
  bool is_window_ = false;                // whether the last pass begun does not synchronise
  std::uint64_t window_fingerprint_ = 0;  // fingerprint of the parameters when the window began
  bool announced_ = false;                // whether announce() was called since begin_step()
  bool has_totals_ = false;               // whether the last step has totals
  bool synchronised_ = false;
  bool hook_remembers_ = false;
};

}  // namespace

DdpStrategy::DdpStrategy(Context context, const DdpStrategyOptions& options)
    : ProcessStrategy("ddp", std::move(context)), options_(options) {
  if (options.codec == "none") return;
  make_comm_hook(options.codec, this->context().world());
  make_hook_ = [codec = options.codec](const Context& of) { return make_comm_hook(codec, of.world()); };
}

DdpStrategy::DdpStrategy(std::string name, Context context, const DdpStrategyOptions& options, MakeHook hook)
    : ProcessStrategy(std::move(name), std::move(context)), options_(options), make_hook_(std::move(hook)) {}

std::unique_ptr<Strategy> DdpStrategyFactory::make(const std::string&, const Context& context,
                                                   const DdpStrategyOptions& options) {
  return std::make_unique<DdpStrategy>(context, options);
}

std::unique_ptr<PreparedModel> DdpStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  // Between hosts, the all-gather half of each all-reduce may end in the next forward pass, before the
  // optimizer's step of the unit, if nothing needs all gradients or parameters earlier. That takes a
  // ShardedModel of replicated units (docs/decisions/0087-ddp-between-hosts.md).
  const bool spans_hosts = context().local_world_size() < context().world_size();
  if (spans_hosts && !make_hook_ && !options_.static_graph && options_.check_parameters_every == 0 &&
      options_.ignored.empty() && sparse_layers(*module).empty()) {
    ShardedOptions options;
    static_cast<CommunicationOptions&>(options) = options_;
    if (options_.bucket_bytes) {
      options.block_bytes = *options_.bucket_bytes;
      options.fuse_bytes = std::max(options.fuse_bytes, *options_.bucket_bytes);
    }
    options.find_unused_parameters = options_.find_unused_parameters;
    options.broadcast_buffers = options_.broadcast_buffers;
    return std::make_unique<ShardedModel>(std::move(module), uniform_plan(Sharding::ddp), context(), options);
  }
  DdpOptions buckets = options_;
  if (spans_hosts && !buckets.bucket_bytes && options_.block_bytes.count > 0)
    buckets.bucket_bytes = options_.block_bytes;
  if (buckets.bucket_bytes && !buckets.first_bucket_bytes)
    buckets.first_bucket_bytes = std::min(MiB(1), *buckets.bucket_bytes);
  return std::make_unique<DdpModel>(std::move(module), context().world(), buckets,
                                    make_hook_ ? make_hook_(context()) : CommHook());
}

}  // namespace rondo
