#include "rondo/strategy/distributed_dataset.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"
#include "rondo/data/training_sampler.h"
#include "rondo/options/option.h"
#include "rondo/strategy/input_division.h"
#include "rondo/strategy/strategy.h"

namespace rondo {
namespace {

constexpr std::pair<const char*, AutoShard> kAutoShards[] = {{"auto", AutoShard::automatic},
                                                             {"file", AutoShard::file},
                                                             {"data", AutoShard::data},
                                                             {"off", AutoShard::off}};

InputContext context_of(const Strategy& strategy) {
  const InputShard shard = strategy.input_shard();
  return {.input_pipeline_id = shard.index,
          .num_input_pipelines = shard.count,
          .num_replicas_in_sync = strategy.num_replicas_in_sync()};
}

// Returns the part of `data` that a pipeline reads.
PipelineInput input_of(const InputContext& context, std::shared_ptr<const Dataset> data,
                       const DistributeOptions& options, AutoShard shard) {
  if (data == nullptr) throw UsageError("distribute: the data set is null");
  const InputDivision division = divide_input(*data, shard, context.num_input_pipelines);
  auto sampler = std::make_shared<TrainingSampler>(
      data->size(), TrainingSampler::Options{.index = division.readers == 1 ? 0 : context.input_pipeline_id,
                                             .count = division.readers,
                                             .shuffle = options.shuffle,
                                             .seed = options.seed,
                                             .files = division.files,
                                             .by_file = division.by_file,
                                             .order = epoch_order_of(data)});
  return {.data = std::move(data),
          .sampler = std::move(sampler),
          .batch_size = context.get_per_replica_batch_size(options.global_batch_size),
          .loader_threads = options.loader_threads};
}

}  // namespace

AutoShard parse_auto_shard(const std::string& text, const std::string& what) {
  std::vector<std::string> names;
  for (const auto& [name, shard] : kAutoShards) {
    if (text == name) return shard;
    names.emplace_back(name);
  }
  throw UsageError(str(what, " ", text, ": expected ", list_with_or(names)));
}

std::int64_t InputContext::get_per_replica_batch_size(std::int64_t global_batch_size) const {
  if (global_batch_size > 0 && global_batch_size % num_replicas_in_sync == 0)
    return global_batch_size / num_replicas_in_sync;
  throw UsageError(str("a global batch of ", global_batch_size, " samples does not divide by ",
                       num_replicas_in_sync, " replicas; give a multiple of ", num_replicas_in_sync));
}

DistributedDataset::DistributedDataset(Strategy& strategy, PipelineInput input)
    : replicas_(strategy.input_shard().replicas), data_(std::move(input.data)) {
  if (data_ == nullptr) throw UsageError("distribute: the data set is null");
  std::shared_ptr<Sampler> sampler = std::move(input.sampler);
  if (!sampler) {
    sampler = std::make_shared<TrainingSampler>(data_->size(), TrainingSampler::Options{.shuffle = false});
  }
  loader_ = std::make_unique<Loader>(
      data_, std::move(sampler),
      LoaderOptions{.batch_size = input.batch_size * replicas_, .threads = input.loader_threads});
  // Pipelines of unequal length end together: shorter ones add batches without samples.
  at::Tensor longest = at::tensor({loader_->batches_per_epoch()}, at::kLong);
  if (strategy.input_shard().count > 1) all_reduce(longest, strategy.context().world(), ReduceOp::MAX);
  steps_ = longest.item<std::int64_t>();
}

std::optional<std::vector<Batch>> DistributedDataset::next() {
  if (step_ == steps_) {
    step_ = 0;
    ++epoch_;
    return std::nullopt;
  }
  if (step_ == 0) loader_->seek({epoch_, 0});
  ++step_;
  std::optional<Batch> batch = loader_->next();
  if (!batch) batch = data_->get({});
  std::vector<Batch> parts;
  for (int replica = 0; replica < replicas_; ++replica)
    parts.push_back(part_of_batch(*batch, replica, replicas_));
  return parts;
}

std::unique_ptr<DistributedDataset> Strategy::distribute(std::shared_ptr<const Dataset> data,
                                                         const DistributeOptions& options) {
  return std::make_unique<DistributedDataset>(
      *this, input_of(context_of(*this), std::move(data), options, options.shard));
}

std::unique_ptr<DistributedDataset> Strategy::distribute(const DatasetFiles& files,
                                                         const DistributeOptions& options) {
  if (!files.open) throw UsageError("distribute: DatasetFiles::open is empty");
  const InputContext context = context_of(*this);
  const auto pipelines = static_cast<std::size_t>(context.num_input_pipelines);
  const bool enough = files.files.size() >= pipelines;
  if (options.shard == AutoShard::file && !enough) {
    throw UsageError(str("sharding by file needs a file for each of ", pipelines,
                         " input pipelines, and there are ", files.files.size(),
                         "; shard by data, or divide the data into more files"));
  }
  const bool by_file = options.shard == AutoShard::file || (options.shard == AutoShard::automatic && enough);
  std::vector<std::string> mine;
  for (std::size_t i = 0; i < files.files.size(); ++i) {
    if (!by_file || i % pipelines == static_cast<std::size_t>(context.input_pipeline_id))
      mine.push_back(files.files[i]);
  }
  const bool by_sample = !by_file && options.shard != AutoShard::off;
  return std::make_unique<DistributedDataset>(
      *this, input_of(context, files.open(mine), options, by_sample ? AutoShard::data : AutoShard::off));
}

std::unique_ptr<DistributedDataset> Strategy::distribute(
    const std::function<PipelineInput(const InputContext&)>& input) {
  if (!input) throw UsageError("distribute: there is no function that gives a pipeline its input");
  return std::make_unique<DistributedDataset>(*this, input(context_of(*this)));
}

}  // namespace rondo
