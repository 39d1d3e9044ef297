#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "rondo/data/dataset.h"
#include "rondo/data/sampler.h"

namespace rondo {

// How a loader makes batches.
struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples per batch of this rank
  // Leave out the last batch of an epoch when it is smaller than the others.
  bool drop_last = false;
  // Threads that read ahead; 0 reads in the caller's thread.
  int threads = 1;
  // Finished batches kept ready, at most.
  int prefetch = 2;
};

// Where in the data a run stands: enough to continue with the very next batch.
struct LoaderPosition {
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // batches of the epoch already handed out
  // Whether both name the same batch.
  bool operator==(const LoaderPosition&) const = default;
};

// Cuts a sampler's indices into batches and reads them ahead on background threads. The order of batches is
// the sampler's, whatever the number of threads. One thread uses a loader; destroying it stops its threads at
// once.
class Loader {
 public:
  // Throws UsageError for a batch size below 1, or for a batch larger than what the sampler gives with
  // drop_last (no batch could ever be full).
  Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Sampler> sampler,
         const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batches_per_epoch() const;  // of this rank
  // Goes to `position`: the next batch is number position.batch of that epoch. Call it before each epoch.
  // Throws UsageError for a batch number beyond the epoch's end.
  void seek(const LoaderPosition& position);
  // The next batch, or nothing at the end of the epoch. Rethrows what the data set threw, at the batch where
  // it did.
  std::optional<Batch> next();
  // Of the batch that next() gives next.
  LoaderPosition position() const;

 private:
  class Prefetcher;
  Batch read(std::int64_t batch) const;

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<Sampler> sampler_;
  LoaderOptions options_;
  std::vector<std::int64_t> indices_;  // of the epoch; not changed while a prefetcher reads it
  LoaderPosition position_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace rondo
