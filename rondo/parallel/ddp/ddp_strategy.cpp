#include "rondo/parallel/ddp/ddp_strategy.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <optional>

#include "rondo/base/text.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/parallel/ddp/hooks/registry.h"
#include "rondo/parallel/sharded/sharded_model.h"

namespace rondo {
namespace {

class DdpModel final : public PreparedModel {
 public:
  DdpModel(std::shared_ptr<torch::nn::Module> module, const Group& group, const DdpOptions& options,
           const std::string& codec)
      : module_(std::move(module)), ddp_(*module_, group, options) {
    if (codec == "none") return;
    CommHook hook = make_comm_hook(codec, group);
    hook_remembers_ = group.size() > 1 && hook.save != nullptr;
    ddp_.register_comm_hook(std::move(hook));
  }

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return parts_; }

  void begin_step(const LocalBatch& batch) override {
    no_sync_.reset();
    if (batch.synchronise) {
      ddp_.set_local_samples(batch.samples);
    } else {
      no_sync_.emplace(ddp_.no_sync());
    }
    ddp_.before_forward();
    synchronised_ = batch.synchronise;
  }

  // The backward pass itself has waited for the gradients.
  void finish_backward() override { no_sync_.reset(); }

  CommunicationState communication_state() const override { return ddp_.communication_state(); }

  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override {
    const Group& group = ddp_.group();
    std::string misfit;
    if (of_ranks.empty()) {
      misfit = "is not there";
    } else if (of_ranks.size() != static_cast<std::size_t>(group.size())) {
      misfit = str("is of ", of_ranks.size(), " ranks, this run has ", group.size());
    } else {
      const CommunicationState& own = of_ranks[static_cast<std::size_t>(group.rank())];
      misfit = ddp_.communication_misfit(own);
      if (misfit.empty()) ddp_.load_communication_state(own);
    }
    if (misfit.empty() || !hook_remembers_) return {};
    return str("the codec's memory (error feedback) begins anew: its saved state ", misfit);
  }

  CommunicationTimes communication_times() const override {
    if (!synchronised_) return {};
    return {communication_time(ddp_.last_backward()), exposed_communication_time(ddp_.last_backward())};
  }

  std::vector<CommunicationSpan> communication_spans() const override {
    std::vector<CommunicationSpan> spans;
    if (!synchronised_) return spans;
    for (const BucketTrace& bucket : ddp_.last_backward().buckets) {
      spans.push_back({.operation = "all_reduce",
                       .bucket = static_cast<std::int64_t>(spans.size()),
                       .bytes = bucket.bytes,
                       .queued_ns = bucket.ready_ns,
                       .begin_ns = bucket.launched_ns,
                       .end_ns = bucket.finished_ns,
                       .waited_ns = bucket.waited_ns,
                       .exposed_ns = bucket.exposed_ns});
    }
    return spans;
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  UndividedModel parts_{*module_};
  DistributedDataParallel ddp_;
  std::optional<NoSync> no_sync_;  // within an accumulation window
  bool synchronised_ = false;
  bool hook_remembers_ = false;
};

}  // namespace

DdpStrategy::DdpStrategy(Context context, const StrategyOptions& options)
    : ProcessStrategy("ddp", std::move(context)), options_(options) {}

std::unique_ptr<PreparedModel> DdpStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  // Between hosts the second half of each all-reduce can wait for the next forward pass (see ShardedModel).
  const bool spans_hosts = context().local_world_size() < context().world_size();
  if (spans_hosts && options_.codec == "none" && !options_.static_graph &&
      options_.check_parameters_every == 0) {
    return std::make_unique<ShardedModel>(std::move(module), ShardingPlan(Sharding::ddp), context(),
                                          options_);
  }
  DdpOptions options;
  options.bucket_bytes = options_.bucket_bytes;
  options.first_bucket_bytes = options_.first_bucket_bytes;
  options.find_unused_parameters = options_.find_unused_parameters;
  options.static_graph = options_.static_graph;
  options.broadcast_buffers = options_.broadcast_buffers;
  options.check_parameters_every = options_.check_parameters_every;
  return std::make_unique<DdpModel>(std::move(module), context().world(), options, options_.codec);
}

}  // namespace rondo
