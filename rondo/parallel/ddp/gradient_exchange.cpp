#include "rondo/parallel/ddp/gradient_exchange.h"

#include <algorithm>

#include "rondo/base/text.h"
#include "rondo/parallel/ddp/bucket.h"
#include "rondo/parallel/ddp/bucketed_exchange.h"
#include "rondo/parallel/ddp/in_place_exchange.h"

namespace rondo {

GradientExchange::GradientExchange(std::vector<ModelTensor> parameters, Group group)
    : parameters_(std::move(parameters)),
      group_(std::move(group)),
      bucket_of_(parameters_.size()),
      queue_(make_policy({.name = "fifo"}), {}, nullptr, group_.traits().progresses_in_background) {}

void GradientExchange::set_buckets(const std::vector<std::vector<std::size_t>>& buckets) {
  gradients_.clear();
  bytes_.clear();
  names_.clear();
  for (const std::vector<std::size_t>& members : buckets) {
    Bytes bytes;
    for (const std::size_t parameter : members) {
      bucket_of_[parameter] = gradients_.size();
      bytes = bytes + Bytes{parameters_[parameter].tensor.nbytes()};
    }
    gradients_.push_back(members.size());
    bytes_.push_back(bytes);
    names_.push_back(name_range(parameters_, members));
  }
}

void GradientExchange::begin_backward(WeightSource weight) {
  weight_ = std::move(weight);
  tickets_.clear();
}

void GradientExchange::send(std::size_t bucket, std::int64_t ready_ns) {
  tickets_.push_back(queue_.submit({.collective = "all_reduce",
                                    .index = bucket,
                                    .bytes = bytes_[bucket],
                                    .start = [this, bucket] { return start(bucket); },
                                    .describe =
                                        [this, bucket] {
                                          return str(place_of(group_), ": all-reduce ", bucket + 1, " of ",
                                                     names_.size(), " in this backward pass (",
                                                     names_[bucket], ", ", to_string(bytes_[bucket]), ")");
                                        },
                                    .ready_ns = ready_ns}));
}

std::unique_ptr<GradientExchange> make_gradient_exchange(const std::vector<ModelTensor>& parameters,
                                                         const Group& group, const DdpOptions& options,
                                                         CommHook hook) {
  const bool on_cpu = std::all_of(parameters.begin(), parameters.end(),
                                  [](const ModelTensor& parameter) { return parameter.tensor.is_cpu(); });
  if (!hook.run && on_cpu && group.traits().registered_memory) {
    return std::make_unique<InPlaceExchange>(parameters, group, options);
  }
  return std::make_unique<BucketedExchange>(parameters, group, options, std::move(hook));
}

}  // namespace rondo
