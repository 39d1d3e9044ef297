#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/data/loader.h"
#include "rondo/data/sampler.h"

namespace rondo {

class Strategy;

// How input is divided among the input pipelines of a job, one of which each process is.
enum class AutoShard {
  automatic,  // by files where the data has files and every pipeline gets one, else by samples
  file,       // each pipeline reads files of its own
  data,       // each reads every n-th sample
  off         // each reads everything
};

// "auto", "file", "data" or "off"; throws UsageError naming `what`.
AutoShard parse_auto_shard(const std::string& text, const std::string& what);

// How a data set is distributed.
struct DistributeOptions {
  std::int64_t global_batch_size = 32;     // samples of all replicas in a step; must divide by their number
  AutoShard shard = AutoShard::automatic;  // what of the data a pipeline reads
  bool shuffle = false;                    // another order in every epoch
  std::uint64_t seed = 0;                  // of the order
  int loader_threads = 1;                  // that read ahead
};

// Data in files, of which some can be opened.
struct DatasetFiles {
  std::vector<std::string> files;  // whose parts pipelines read
  // The samples of some of them, in their order.
  std::function<std::shared_ptr<const Dataset>(const std::vector<std::string>&)> open = {};
};

// What a function that makes the input of a pipeline is told.
struct InputContext {
  int input_pipeline_id = 0;     // from 0
  int num_input_pipelines = 1;   // of the job
  int num_replicas_in_sync = 1;  // of all pipelines
  // Throws UsageError for a global batch that replicas do not divide.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
};

// The input of one pipeline, as such a function returns it.
struct PipelineInput {
  std::shared_ptr<const Dataset> data;    // this pipeline reads
  std::shared_ptr<Sampler> sampler = {};  // which samples, in which order; null: all, in order
  std::int64_t batch_size = 1;            // samples per replica
  int loader_threads = 1;                 // that read ahead
};

// Batches for the replicas of this process, step by step. One thread uses it; all ranks make the same calls.
class DistributedDataset {
 public:
  // Collective. Called by Strategy::distribute(). `strategy` outlives the object.
  DistributedDataset(Strategy& strategy, PipelineInput input);

  // One batch for each replica of this process. The last ones of an epoch may be smaller, and have no sample
  // at a replica whose pipeline has run out while others have not. Nothing at the end of the epoch, on all
  // ranks after the same number of steps; the next call begins another one.
  std::optional<std::vector<Batch>> next();
  std::int64_t steps_per_epoch() const { return steps_; }  // the same on all ranks

 private:
  int replicas_;
  std::shared_ptr<const Dataset> data_;
  std::unique_ptr<Loader> loader_;
  std::int64_t steps_ = 0;
  std::int64_t step_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace rondo
