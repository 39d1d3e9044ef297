#include "rondo/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"

namespace rondo {

// Background threads that read the batches [first, end) of one epoch. Workers claim batch numbers in order
// and finish in any order; the consumer takes batches in order.
class Loader::Prefetcher {
 public:
  Prefetcher(const Loader& loader, std::int64_t first, std::int64_t end)
      : loader_(loader), end_(end), claimed_(first), wanted_(first) {
    for (int i = 0; i < loader.options_.threads; ++i) threads_.push_back(replica_thread([this] { work(); }));
  }

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  // Returns the next batch, blocking until it is read. A failed batch stays, so the next call throws its
  // error again.
  Batch take() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return finished_.contains(wanted_); });
    const auto found = finished_.find(wanted_);
    if (const auto* error = std::get_if<std::exception_ptr>(&found->second)) std::rethrow_exception(*error);
    Batch batch = std::move(std::get<Batch>(found->second));
    finished_.erase(found);
    ++wanted_;
    lock.unlock();
    room_.notify_one();
    return batch;
  }

 private:
  using Result = std::variant<Batch, std::exception_ptr>;

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto may_claim = [&] {
        return claimed_ < end_ && claimed_ < wanted_ + loader_.options_.prefetch;
      };
      room_.wait(lock, [&] { return stopping_ || claimed_ == end_ || may_claim(); });
      if (stopping_ || claimed_ == end_) return;
      const std::int64_t batch = claimed_++;
      lock.unlock();
      Result result = read(batch);
      lock.lock();
      finished_.emplace(batch, std::move(result));
      ready_.notify_one();
      // After the last claim, the other threads can exit.
      if (claimed_ == end_) room_.notify_all();
    }
  }

  Result read(std::int64_t batch) const {
    try {
      return loader_.read(batch);
    } catch (...) {
      return std::current_exception();
    }
  }

  const Loader& loader_;  // its dataset, options, indices and epoch do not change while this object lives
  const std::int64_t end_;
  std::mutex mutex_;               // protects everything below except the threads
  std::condition_variable room_;   // for threads: a batch may be claimed, or stop
  std::condition_variable ready_;  // for the consumer: a batch is finished
  std::int64_t claimed_;           // next batch to claim
  std::int64_t wanted_;            // next batch to return
  bool stopping_ = false;
  std::map<std::int64_t, Result> finished_;
  std::vector<std::thread> threads_;
};

Loader::Loader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Sampler> sampler,
               const LoaderOptions& options)
    : dataset_(std::move(dataset)), sampler_(std::move(sampler)), options_(options) {
  if (dataset_ == nullptr) throw UsageError("loader: the data set is null");
  if (sampler_ == nullptr) throw UsageError("loader: the sampler is null");
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t smallest) {
    if (value < smallest)
      throw UsageError(str("loader: ", name, " is ", value, ", expected at least ", smallest));
  };
  at_least("batch size", options.batch_size, 1);
  at_least("threads", options.threads, 0);
  at_least("prefetch", options.prefetch, 1);
  if (options.drop_last && options.batch_size > sampler_->size()) {
    throw UsageError(str("loader: batch size ", options.batch_size, " is larger than the ", sampler_->size(),
                         " samples that each rank has, and incomplete batches are to be dropped"));
  }
}

Loader::~Loader() = default;

std::int64_t Loader::batches_per_epoch() const {
  const std::int64_t samples = sampler_->size();
  const std::int64_t full = samples / options_.batch_size;
  return !options_.drop_last && samples % options_.batch_size != 0 ? full + 1 : full;
}

void Loader::seek(const LoaderPosition& position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch > batches_per_epoch()) {
    throw UsageError(str("loader: epoch ", position.epoch, ", batch ", position.batch,
                         " asked for; an epoch has ", batches_per_epoch(),
                         " batches. Were the data, batch size or number of processes changed?"));
  }
  prefetcher_.reset();
  sampler_->set_epoch(position.epoch);
  indices_.clear();
  position_ = position;
}

LoaderPosition Loader::position() const { return position_; }

std::optional<Batch> Loader::next() {
  const std::int64_t end = batches_per_epoch();
  if (position_.batch >= end) return std::nullopt;
  if (indices_.empty()) indices_ = sampler_->indices();
  std::optional<Batch> batch;
  if (options_.threads == 0) {
    batch = read(position_.batch);
  } else {
    if (!prefetcher_) prefetcher_ = std::make_unique<Prefetcher>(*this, position_.batch, end);
    batch = prefetcher_->take();
  }
  ++position_.batch;
  return batch;
}

Batch Loader::read(std::int64_t batch) const {
  const auto total = static_cast<std::int64_t>(indices_.size());
  const std::int64_t first = batch * options_.batch_size;
  const std::int64_t count = std::min(options_.batch_size, total - first);
  const auto mine =
      std::span(indices_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  Batch read = dataset_->get_at_epoch(mine, position_.epoch);
  // A data set that has skipped samples sets the indices itself.
  if (read.samples == count) read.indices.assign(mine.begin(), mine.end());
  return read;
}

}  // namespace rondo
