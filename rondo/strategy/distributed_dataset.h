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

// Division of input among a job's input pipelines, of which each process has one.
enum class AutoShard {
  automatic,  // by file if the data has files and each pipeline gets one, else by sample
  file,       // each pipeline reads its own files
  data,       // each pipeline reads every n-th sample
  off         // each pipeline reads everything
};

// Parses "auto", "file", "data" or "off". Throws UsageError naming `what`.
AutoShard parse_auto_shard(const std::string& text, const std::string& what);

// Options of Strategy::distribute().
struct DistributeOptions {
  std::int64_t global_batch_size = 32;     // samples of all replicas in a step; a multiple of their number
  AutoShard shard = AutoShard::automatic;  // division of the data among pipelines
  bool shuffle = false;                    // whether each epoch has another order
  std::uint64_t seed = 0;                  // seed of the order
  int loader_threads = 1;                  // threads that read ahead
};

// Data in files that can be opened in part.
struct DatasetFiles {
  std::vector<std::string> files;  // files to divide among pipelines
  // Opens some of the files: their samples, in the order of the files.
  std::function<std::shared_ptr<const Dataset>(const std::vector<std::string>&)> open = {};
};

// Arguments of a function that creates the input of a pipeline.
struct InputContext {
  int input_pipeline_id = 0;     // index, from 0
  int num_input_pipelines = 1;   // pipelines of the job
  int num_replicas_in_sync = 1;  // replicas of all pipelines
  // Throws UsageError if the number of replicas does not divide the global batch.
  std::int64_t get_per_replica_batch_size(std::int64_t global_batch_size) const;
};

// The input of one pipeline, as such a function returns it.
struct PipelineInput {
  std::shared_ptr<const Dataset> data;    // data that this pipeline reads
  std::shared_ptr<Sampler> sampler = {};  // choice and order of samples; null: all, in order
  std::int64_t batch_size = 1;            // samples per replica
  int loader_threads = 1;                 // threads that read ahead
};

// Batches for the replicas of this process, step by step. Used by one thread; all ranks make the same calls.
class DistributedDataset {
 public:
  // Collective. Strategy::distribute() calls it. `strategy` must outlive the object.
  DistributedDataset(Strategy& strategy, PipelineInput input);

  // Returns one batch for each replica of this process. The last batches of an epoch may be smaller, and are
  // empty at a replica whose pipeline has ended before others. Returns nullopt at the end of the epoch, on
  // all ranks after the same number of steps; the next call starts the next epoch.
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
