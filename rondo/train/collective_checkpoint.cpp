#include "rondo/train/collective_checkpoint.h"

#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>

#include "rondo/base/text.h"
#include "rondo/strategy/shard_directory.h"
#include "rondo/train/agreement.h"

namespace rondo {

std::vector<CommunicationState> gather_states(const CommunicationState& own, const Group& group) {
  // The states of the ranks as tensors, each of which one rank holds.
  std::vector<Shard> held;
  for (const auto& [name, tensor] : own) held.push_back(full_shard(str(group.rank(), "/", name), tensor));
  const ShardDirectory directory(std::move(held), group);
  if (directory.names().empty()) return {};
  std::vector<CommunicationState> states;
  if (group.rank() == 0) states.resize(static_cast<std::size_t>(group.size()));
  std::vector<Shard> wanted;
  for (const std::string& name : directory.names()) {
    if (group.rank() != 0) break;
    Shard shard = directory.sample(name);
    shard.local = at::empty(shard.sizes, directory.dtype(name));
    const std::size_t slash = name.find('/');
    states[std::stoul(name)].emplace(name.substr(slash + 1), shard.local);
    wanted.push_back(std::move(shard));
  }
  directory.fetch(wanted);
  return states;
}

namespace {

// A sequence that produces all sources of a checkpoint in the order of the file, including those that are not
// written.
class Procession {
 public:
  explicit Procession(CheckpointContents& contents) {
    for (TensorSources* sources : {&contents.model, &contents.optimizer_tensors}) {
      for (const std::size_t number : order_in_file(*sources)) {
        TensorSource& source = (*sources)[number];
        const std::size_t place = makes_.size();
        makes_.push_back(std::move(source.make));
        source.make = [this, place] { return make(place); };
      }
    }
  }
  Procession(const Procession&) = delete;
  Procession& operator=(const Procession&) = delete;

  void make_rest() {
    while (made_ < makes_.size()) make(made_);
  }
  // Returns whether a source threw: the ranks are no longer in step.
  bool broken() const { return making_; }

 private:
  at::Tensor make(std::size_t place) {
    making_ = true;
    at::Tensor tensor = makes_[place]();
    making_ = false;
    made_ = place + 1;
    return tensor;
  }

  std::vector<std::function<at::Tensor()>> makes_;
  std::size_t made_ = 0;
  bool making_ = false;
};

}  // namespace

CheckpointContents collective_contents(ShardedState state, const NamedTensors& model, const Group& group) {
  const auto shared =
      shared_names(model, [&](const std::string& name) { return find_shard(state.model, name) != nullptr; });
  std::vector<Shard> held = std::move(state.model);
  for (std::vector<Shard>* more : {&state.full_copies, &state.optimizer})
    std::move(more->begin(), more->end(), std::back_inserter(held));
  const auto directory = std::make_shared<const ShardDirectory>(std::move(held), group);
  const auto source = [&](const std::string& name, const std::string& shard, const void* identity) {
    return TensorSource{.name = name,
                        .dtype = directory->dtype(shard),
                        .sizes = directory->sample(shard).global_sizes,
                        .identity = identity,
                        .make = [directory, shard] { return directory->full(shard, /*root=*/0); }};
  };
  CheckpointContents contents;
  for (const NamedTensor& entry : model) {
    const auto further = shared.find(entry.name);
    contents.model.push_back(source(entry.name, further != shared.end() ? further->second : entry.name,
                                    entry.tensor.unsafeGetTensorImpl()));
  }
  for (const std::string& name : directory->names()) {
    if (name.starts_with(str(kOptimizerName, "/")))
      contents.optimizer_tensors.push_back(source(name, name, &directory->sample(name)));
  }
  contents.optimizers[kOptimizerName] = std::move(state.optimizer_description);
  return contents;
}

void save_together(const Context& context, const std::filesystem::path& root, std::int64_t step,
                   CheckpointContents contents, int keep, bool incremental) {
  std::optional<Procession> sources;
  run_agreed(context, [&] { sources.emplace(contents); });
  std::exception_ptr failure;
  try {
    if (context.rank() == 0) save_checkpoint(root, step, contents, keep, incremental);
  } catch (...) {
    if (sources->broken()) throw;
    failure = std::current_exception();
  }
  // Produces the other ranks' sources, or those left after a full disk.
  sources->make_rest();
  run_agreed(context, [&] {
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace rondo
