#include "rondo/data/training_sampler.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/data/sampler.h"

namespace rondo {
namespace {

// Mixes 64 bits (SplitMix: Steele, Lea and Flood, 2014).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

}  // namespace

IndexPermutation::IndexPermutation(std::int64_t size, std::uint64_t seed)
    : size_(static_cast<std::uint64_t>(size)) {
  half_bits_ = std::max(1, (static_cast<int>(std::bit_width(size_ - 1)) + 1) / 2);
  RandomStream random(seed, /*stream=*/2);
  for (std::uint64_t& key : keys_) key = (std::uint64_t{random()} << 32) | random();
}

std::int64_t IndexPermutation::operator()(std::int64_t index) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  auto value = static_cast<std::uint64_t>(index);
  // The network permutes all numbers of 2 * half_bits_ bits, fewer than four times `size`; repeats until the
  // result is below the size.
  do {
    std::uint64_t left = value >> half_bits_, right = value & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mixed(right ^ key) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits_) | right;
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

std::function<std::vector<std::int64_t>(std::uint64_t seed)> epoch_order_of(
    const std::shared_ptr<const Dataset>& data) {
  if (dynamic_cast<const EpochOrder*>(data.get()) == nullptr) return {};
  return [data](std::uint64_t seed) { return dynamic_cast<const EpochOrder&>(*data).shuffled(seed); };
}

std::vector<std::int64_t> order_of_shards(std::span<const std::int64_t> starts, std::int64_t window,
                                          std::uint64_t seed) {
  const std::int64_t size = starts.back();
  const auto shards = static_cast<std::int64_t>(starts.size()) - 1;
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(size));
  std::vector<std::int64_t> waiting;
  RandomStream random(seed, /*stream=*/1);
  const auto draw = [&] {
    std::int64_t& drawn = waiting[random.below(waiting.size())];
    order.push_back(drawn);
    drawn = waiting.back();
    waiting.pop_back();
  };
  for (const std::int64_t shard : random_permutation(shards, seed)) {
    const auto at = static_cast<std::size_t>(shard);
    for (std::int64_t sample = starts[at]; sample < starts[at + 1]; ++sample) {
      waiting.push_back(sample);
      if (static_cast<std::int64_t>(waiting.size()) >= window) draw();
    }
  }
  while (!waiting.empty()) draw();
  return order;
}

std::vector<std::int64_t> sizes_by_file(const std::vector<std::int64_t>& files, int readers) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(readers));
  for (std::size_t file = 0; file + 1 < files.size(); ++file)
    sizes[file % sizes.size()] += files[file + 1] - files[file];
  return sizes;
}

TrainingSampler::TrainingSampler(std::int64_t dataset_size, const Options& options)
    : dataset_size_(dataset_size), options_(options) {
  if (dataset_size < 1) throw UsageError("the training data has no sample");
  if (options.index < 0 || options.index >= options.count) {
    throw UsageError(str("reader ", options.index, " is outside of ", options.count, " readers"));
  }
  const auto files = static_cast<std::int64_t>(options.files.size()) - 1;
  if (options.by_file && files < options.count)
    throw UsageError(str(std::max<std::int64_t>(0, files), " files for ", options.count, " readers"));
  bool is_prefix = true;
  std::int64_t done = 0;
  for (const Done& part : options.done) {
    if (part.readers < 1 || part.samples < 0 || (part.by_file && files < part.readers))
      throw UsageError(str("an epoch read by ", part.readers, " readers, ", part.samples,
                           " samples each, cannot be of data in ", files, " files"));
    is_prefix = is_prefix && !part.by_file;
    done += part.readers * part.samples;
  }
  if (is_prefix && done > dataset_size)
    throw UsageError(str(done, " samples of an epoch of ", dataset_size, " cannot be done"));
  if (options.by_file) sizes_ = sizes_by_file(options.files, options.count);
  if (options.done.empty() || (is_prefix && !options.by_file)) return;
  set_epoch(options.done_epoch);
  rest_sizes_.resize(static_cast<std::size_t>(options.count));
  const std::vector<std::int64_t> left = rest();
  for (std::size_t i = 0; i < left.size(); ++i) {
    const auto reader = options_.by_file ? static_cast<std::size_t>(reader_of(left[i], options_.count))
                                         : i % rest_sizes_.size();
    ++rest_sizes_[reader];
  }
  set_epoch(0);
}

const std::vector<std::int64_t>& TrainingSampler::sizes() const {
  return epoch() == options_.done_epoch && !rest_sizes_.empty() ? rest_sizes_ : sizes_;
}

std::int64_t TrainingSampler::size() const {
  if (!sizes().empty()) return sizes()[static_cast<std::size_t>(options_.index)];
  return divide_rounding_up(std::max<std::int64_t>(0, left() - options_.index), options_.count);
}

std::int64_t TrainingSampler::left() const {
  if (epoch() != options_.done_epoch) return dataset_size_;
  if (!rest_sizes_.empty()) return std::accumulate(rest_sizes_.begin(), rest_sizes_.end(), std::int64_t{0});
  std::int64_t left = dataset_size_;
  for (const Done& part : options_.done) left -= part.readers * part.samples;
  return left;
}

int TrainingSampler::reader_of(std::int64_t sample, int count) const {
  const auto next = std::upper_bound(options_.files.begin(), options_.files.end(), sample);
  return static_cast<int>((next - options_.files.begin() - 1) % count);
}

std::vector<std::int64_t> TrainingSampler::rest() const {
  std::vector<std::int64_t> order;
  const std::uint64_t seed = options_.seed + static_cast<std::uint64_t>(epoch());
  if (!options_.shuffle) {
    order.resize(static_cast<std::size_t>(dataset_size_));
    std::iota(order.begin(), order.end(), std::int64_t{0});
  } else {
    order = options_.order ? options_.order(seed) : random_permutation(dataset_size_, seed);
  }
  if (epoch() != options_.done_epoch) return order;
  for (const Done& part : options_.done) {
    if (!part.by_file) {
      const auto done = std::min<std::int64_t>(part.readers * part.samples, std::ssize(order));
      order.erase(order.begin(), order.begin() + done);
      continue;
    }
    std::vector<std::int64_t> read(static_cast<std::size_t>(part.readers));
    std::erase_if(order, [&](std::int64_t sample) {
      return read[static_cast<std::size_t>(reader_of(sample, part.readers))]++ < part.samples;
    });
  }
  return order;
}

std::vector<std::int64_t> TrainingSampler::indices() const {
  const std::vector<std::int64_t> order = rest();
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(size()));
  if (options_.by_file) {
    std::copy_if(order.begin(), order.end(), std::back_inserter(mine),
                 [this](std::int64_t sample) { return reader_of(sample, options_.count) == options_.index; });
    return mine;
  }
  for (std::int64_t i = options_.index; i < std::ssize(order); i += options_.count)
    mine.push_back(order[static_cast<std::size_t>(i)]);
  return mine;
}

std::int64_t TrainingSampler::batches_per_epoch(std::int64_t batch_size) const {
  const std::int64_t most = sizes().empty() ? divide_rounding_up(left(), options_.count)
                                            : *std::max_element(sizes().begin(), sizes().end());
  return divide_rounding_up(most, batch_size);
}

}  // namespace rondo
