#include "rondo/data/mixture.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"
#include "rondo/data/training_sampler.h"

namespace rondo {
namespace {

void check_same_form(const DatasetInfo& first, const DatasetInfo& other) {
  const auto refuse = [&](const char* what, const std::string& a, const std::string& b) {
    throw UsageError(str("data of different forms cannot be mixed: ", what, " of ", first.source, " is ", a,
                         ", of ", other.source, " ", b));
  };
  if (first.kind != other.kind) refuse("the kind", first.kind, other.kind);
  if (first.input_shape != other.input_shape)
    refuse("the shape", join(first.input_shape, " x "), join(other.input_shape, " x "));
  if (first.classes != other.classes || first.vocabulary != other.vocabulary) {
    refuse(first.unit == "tokens" ? "the vocabulary" : "the number of classes", str(first.classes),
           str(other.classes));
  }
  if (first.class_names != other.class_names)
    refuse("the list of classes", join(first.class_names, ", "), join(other.class_names, ", "));
  if (first.mean != other.mean || first.deviation != other.deviation) {
    throw UsageError(str("tables are standardised by their own means, so ", first.source, " and ",
                         other.source, " cannot be mixed; join them into one file"));
  }
}

// Returns the number of samples of each part per epoch, rounded so that they add up to `size`.
std::vector<std::int64_t> shares(std::int64_t size, const std::vector<double>& weights) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> result;
  double before = 0;
  for (const double weight : weights) {
    const auto begin = std::llround(before / sum * static_cast<double>(size));
    before += weight;
    result.push_back(std::llround(before / sum * static_cast<double>(size)) - begin);
  }
  return result;
}

// Assembles tensors from rows in any order.
class RowWriter {
 public:
  RowWriter(const std::vector<at::Tensor>& like, std::int64_t rows) {
    for (const at::Tensor& tensor : like) {
      std::vector<std::int64_t> shape = tensor.sizes().vec();
      shape.front() = rows;
      tensors.push_back(at::empty(shape, tensor.options()));
    }
  }
  void write(const std::vector<at::Tensor>& from, std::size_t row, std::size_t to) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const at::Tensor source = from[i].contiguous();
      const std::size_t bytes = source.nbytes() / static_cast<std::size_t>(source.size(0));
      std::memcpy(static_cast<char*>(tensors[i].mutable_data_ptr()) + to * bytes,
                  static_cast<const char*>(source.const_data_ptr()) + row * bytes, bytes);
    }
  }
  std::vector<at::Tensor> tensors;
};

}  // namespace

Mixture::Mixture(std::vector<std::shared_ptr<const Dataset>> parts, const std::vector<double>& weights,
                 std::uint64_t seed)
    : parts_(std::move(parts)), starts_{0}, shuffled_(!weights.empty()), seed_(seed) {
  if (parts_.empty()) throw UsageError("a mixture needs at least one data set");
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    if (parts_[part] == nullptr)
      throw UsageError(str("mixture: data set number ", part, " (from 0) is null"));
  }
  info_ = parts_.front()->info();
  std::int64_t size = 0;
  std::vector<std::int64_t> sizes;
  for (const auto& part : parts_) {
    check_same_form(info_, part->info());
    sizes.push_back(part->size());
    size += part->size();
  }
  if (shuffled_) {
    if (weights.size() != parts_.size())
      throw UsageError(str(weights.size(), " weights for ", parts_.size(), " data sets"));
    for (const double weight : weights) {
      if (!(weight > 0) || !std::isfinite(weight))
        throw UsageError(str("a weight of --data-weights is ", weight, ", expected above 0"));
    }
    sizes = shares(size, weights);
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    starts_.push_back(starts_.back() + sizes[i]);
    if (i > 0) info_.source += str(",", parts_[i]->info().source);
  }
}

Mixture::Place Mixture::place_of(std::int64_t index, std::int64_t epoch) const {
  const auto part =
      static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), index) - starts_.begin() - 1);
  const std::int64_t within = index - starts_[part];
  if (!shuffled_) return {part, epoch, within};
  // A part is an endless sequence of passes; each epoch takes the next section of it.
  const std::int64_t samples = parts_[part]->size();
  const std::int64_t position = epoch * share_of(part) + within;
  const std::int64_t pass = position / samples;
  // Parts and passes are large odd numbers apart, so that no two of them have the same order.
  const std::uint64_t seed = seed_ + static_cast<std::uint64_t>(pass) * 0x9E3779B97F4A7C15ULL +
                             static_cast<std::uint64_t>(part) * 0xD1B54A32D192ED03ULL;
  return {part, pass, IndexPermutation(samples, seed)(position % samples)};
}

Batch Mixture::get_at_epoch(std::span<const std::int64_t> indices, std::int64_t epoch) const {
  check_indices(indices, size());
  if (indices.empty()) return parts_.front()->get_at_epoch({}, epoch);
  // Samples of the same pass over the same part are read together.
  struct Group {
    std::vector<std::int64_t> asked;
    std::vector<std::size_t> rows;  // rows in the result
    Batch batch = {};
    std::vector<std::size_t> kept = {};
  };
  std::map<std::pair<std::size_t, std::int64_t>, Group> groups;
  for (std::size_t row = 0; row < indices.size(); ++row) {
    const Place place = place_of(indices[row], epoch);
    Group& group = groups[{place.part, place.pass}];
    group.asked.push_back(place.index);
    group.rows.push_back(row);
  }
  std::vector<bool> is_there(indices.size());
  for (auto& [key, group] : groups) {
    group.batch = parts_[key.first]->get_at_epoch(group.asked, key.second);
    group.kept = kept_places(group.asked, group.batch);
    for (const std::size_t place : group.kept) is_there[group.rows[place]] = true;
  }
  // Closes the gaps of samples that a part has skipped.
  std::vector<std::size_t> target(indices.size());
  Batch result;
  for (std::size_t row = 0; row < indices.size(); ++row) {
    target[row] = static_cast<std::size_t>(result.samples);
    if (!is_there[row]) continue;
    result.indices.push_back(indices[row]);
    ++result.samples;
  }
  const Batch& form = groups.begin()->second.batch;
  RowWriter inputs(form.inputs, result.samples), targets(form.targets, result.samples);
  for (const auto& [key, group] : groups) {
    for (std::size_t i = 0; i < group.kept.size(); ++i) {
      const std::size_t to = target[group.rows[group.kept[i]]];
      inputs.write(group.batch.inputs, i, to);
      targets.write(group.batch.targets, i, to);
    }
  }
  result.inputs = std::move(inputs.tensors);
  result.targets = std::move(targets.tensors);
  return result;
}

OpenedData open_mixture(const std::string& kind, const std::vector<std::string>& paths,
                        const std::vector<double>& weights, const DataOptions& options) {
  if (paths.size() != weights.size()) {
    throw UsageError(str("--data names ", paths.size(), " files or folders and --data-weights has ",
                         weights.size(), " numbers, expected as many"));
  }
  std::vector<std::shared_ptr<const Dataset>> train, validation;
  for (const std::string& path : paths) {
    OpenedData opened = open_data(kind, path, options);
    train.push_back(std::move(opened.train));
    if (opened.validation) validation.push_back(std::move(opened.validation));
  }
  OpenedData mixed{.kind = train.front()->info().kind, .train = nullptr, .validation = nullptr};
  mixed.train = std::make_shared<Mixture>(std::move(train), weights, options.split_seed);
  if (!validation.empty())
    mixed.validation = std::make_shared<Mixture>(std::move(validation), std::vector<double>(), 0);
  return mixed;
}

}  // namespace rondo
