#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/data/dataset.h"
#include "rondo/data/open.h"

namespace rondo {

// Several data sets of the same form, mixed by weights. An epoch has as many samples as all sets together,
// each set in proportion to its weight. A set with too few samples is read again in another order, and
// samples left over are used in the next epoch. The choice is a function of (seed, epoch, index in the
// epoch), so an epoch is the same for any number of ranks and can be resumed anywhere.
class Mixture final : public Dataset {
 public:
  // Without weights, every sample of every set occurs once, in order. Throws UsageError for an empty list,
  // sets of different forms, a different number of weights, or weights that are not above 0.
  Mixture(std::vector<std::shared_ptr<const Dataset>> parts, const std::vector<double>& weights,
          std::uint64_t seed);
  std::int64_t size() const override { return starts_.back(); }
  Batch get(std::span<const std::int64_t> indices) const override { return get_at_epoch(indices, 0); }
  Batch get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const override;
  const DatasetInfo& info() const override { return info_; }

  // A sample of a part in one of the passes over it.
  struct Place {
    std::size_t part;
    std::int64_t pass, index;
    bool operator==(const Place&) const = default;
  };
  // Returns the place of sample `index` of `epoch`.
  Place place_of(std::int64_t index, std::int64_t epoch) const;
  // Returns the number of samples per epoch from a part.
  std::int64_t share_of(std::size_t part) const { return starts_[part + 1] - starts_[part]; }

 private:
  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<std::int64_t> starts_;  // first sample of each part, then the number of samples
  bool shuffled_;
  std::uint64_t seed_;
  DatasetInfo info_;
};

// Opens every path as `kind` and mixes the training data by `weights`. Validation contains every sample of
// all paths once. Throws like open_data() and Mixture.
OpenedData open_mixture(const std::string& kind, const std::vector<std::string>& paths,
                        const std::vector<double>& weights, const DataOptions& options);

}  // namespace rondo
