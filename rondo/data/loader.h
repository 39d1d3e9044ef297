#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "rondo/data/dataset.h"
#include "rondo/data/sampler.h"

namespace rondo {

// Options of a Loader.
struct LoaderOptions {
  std::int64_t batch_size = 1;  // samples per batch on this rank
  // Whether to drop the last batch of an epoch if it is smaller.
  bool drop_last = false;
  // Number of threads that read ahead; 0: read in the caller's thread.
  int threads = 1;
  // Maximum number of finished batches in the queue.
  int prefetch = 2;
};

// Position of a run in its data, sufficient to resume with the next batch.
struct LoaderPosition {
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // number of batches of the epoch already returned
  // Compares epoch and batch.
  bool operator==(const LoaderPosition&) const = default;
};

// A loader that groups a sampler's indices into batches and reads them ahead on background threads. The order
// of batches is the sampler's, for any number of threads. Not thread-safe. The destructor stops and joins the
// threads.
class Loader {
 public:
  // Throws UsageError for invalid options: a batch size below 1 or, with drop_last, a batch larger than the
  // sampler's epoch (no batch would be full).
  Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Sampler> sampler,
         const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  std::int64_t batches_per_epoch() const;  // on this rank
  // Moves to `position`: the next batch is batch position.batch of that epoch. Call it before each epoch.
  // Throws UsageError for a batch number beyond the end of the epoch.
  void seek(const LoaderPosition& position);
  // Returns the next batch, or nullopt at the end of the epoch. Rethrows the data set's exception at the
  // failed batch.
  std::optional<Batch> next();
  // Returns the position of the batch that next() returns next.
  LoaderPosition position() const;

 private:
  class Prefetcher;
  Batch read(std::int64_t batch) const;

  std::shared_ptr<const Dataset> dataset_;
  std::shared_ptr<Sampler> sampler_;
  LoaderOptions options_;
  std::vector<std::int64_t> indices_;  // of the current epoch; constant while a prefetcher reads it
  LoaderPosition position_;
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace rondo
