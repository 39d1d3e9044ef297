#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/data/open.h"

namespace rondo {

// Several data sets of one form as one. An epoch has as many samples as all of them together, of each in
// proportion to its weight: a set with too few of them is read again, each time in another order, and what
// an epoch leaves of a set is read in the next. Which sample that is, is a function of (seed, epoch, number
// in the epoch), so an epoch is the same for any number of ranks and can be resumed anywhere.
class Mixture final : public Dataset {
 public:
  // Without weights every sample of every set is there once, in order. Throws UsageError for no data set,
  // sets of different forms, another number of weights, or weights that are not above 0.
  Mixture(std::vector<std::shared_ptr<const Dataset>> parts, const std::vector<double>& weights,
          std::uint64_t seed);
  std::int64_t size() const override { return starts_.back(); }
  Batch get(std::span<const std::int64_t> indices) const override { return get_at_epoch(indices, 0); }
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override;
  const DatasetInfo& info() const override { return info_; }

  // A sample of a part, in one of the passes over it.
  struct Place {
    std::size_t part;
    std::int64_t pass, index;
    bool operator==(const Place&) const = default;
  };
  // What sample `index` of `epoch` is.
  Place place_of(std::int64_t index, std::int64_t epoch) const;
  // Samples of an epoch that come from a part.
  std::int64_t share_of(std::size_t part) const { return starts_[part + 1] - starts_[part]; }

 private:
  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<std::int64_t> starts_;  // of each part's samples, and the size
  bool shuffled_;
  std::uint64_t seed_;
  DatasetInfo info_;
};

// Opens every path as `kind` and mixes their training data by `weights`; validation data is that of all,
// each sample once. Throws as open_data() and Mixture.
OpenedData open_mixture(const std::string& kind, const std::vector<std::string>& paths,
                        const std::vector<double>& weights, const DataOptions& options);

}  // namespace rondo
