#include "rondo/checkpoint/checkpoint.h"

#include <torch/types.h>

#include <functional>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/file.h"
#include "rondo/format/json_strict.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr const char* model_file = "model.safetensors";
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* random_file = "random.safetensors";
constexpr const char* communication_file = "communication.safetensors";
constexpr const char* state_file = "state.json";

std::string random_name(std::size_t rank) { return str("rank", rank); }

nlohmann::json read_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / state_file;
  const std::string text = read_text_file(path);
  nlohmann::json state = parse_json_strict(text, path.string());
  if (!state.is_object() || !state.contains("values") || !state.contains("optimizers")) {
    throw DataError(str(path.string(), ": expected an object with \"values\" and \"optimizers\""));
  }
  return state;
}

std::vector<at::Tensor> read_random_states(const fs::path& checkpoint) {
  std::vector<at::Tensor> states;
  if (!fs::exists(checkpoint / random_file)) return states;
  const NamedTensors tensors = map_tensors(checkpoint / random_file);
  states.resize(tensors.size());
  for (const NamedTensor& t : tensors) {
    std::size_t rank = 0;
    while (rank < states.size() && random_name(rank) != t.name) ++rank;
    if (rank == states.size()) {
      throw DataError(str((checkpoint / random_file).string(), ": unexpected tensor '", t.name, "'"));
    }
    states[rank] = t.tensor.clone();
  }
  return states;
}

// "rank3/hook/residual/7" is "hook/residual/7" of rank 3.
NamedTensors name_by_rank(const RankStates& states) {
  NamedTensors tensors;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    for (const auto& [name, tensor] : states[rank])
      tensors.push_back({str(random_name(rank), "/", name), tensor});
  }
  return tensors;
}

RankStates read_communication_states(const fs::path& checkpoint) {
  const fs::path path = checkpoint / communication_file;
  RankStates states;
  if (!fs::exists(path)) return states;
  const NamedTensors tensors = map_tensors(path);
  for (const NamedTensor& t : tensors) {
    const std::size_t slash = t.name.find('/');
    const std::string rank_name = t.name.substr(0, slash);
    std::size_t rank = 0;
    // Every rank has at least one tensor.
    while (rank < tensors.size() && random_name(rank) != rank_name) ++rank;
    if (slash == std::string::npos || rank == tensors.size())
      throw DataError(str(path.string(), ": unexpected tensor '", t.name, "'"));
    if (states.size() <= rank) states.resize(rank + 1);
    states[rank][t.name.substr(slash + 1)] = t.tensor;
  }
  return states;
}

void require_intact(const fs::path& checkpoint) {
  const std::vector<Damage> damage = verify_checkpoint(checkpoint);
  if (damage.empty()) return;
  const Damage& first = damage.front();
  throw DataError(str("checkpoint ", checkpoint.string(), " is damaged: ", first.file,
                      first.tensor.empty() ? "" : str(", tensor '", first.tensor, "'"), ": ", first.what,
                      damage.size() > 1 ? str(" (and ", damage.size() - 1, " more)") : ""));
}

}  // namespace

std::string parameter_of(const std::string& optimizer, const std::string& tensor) {
  // "OPTIMIZER/PARAMETER/FIELD"
  const std::size_t begin = optimizer.size() + 1;
  const std::size_t end = tensor.rfind('/');
  return begin < end ? tensor.substr(begin, end - begin) : std::string();
}

NamedTensors parts_of(const NamedOptimizer& optimizer, const NamedTensors& tensors) {
  NamedTensors parts;
  for (const NamedTensor& whole : tensors) {
    const std::string parameter = parameter_of(optimizer.name, whole.name);
    parts.push_back(
        {whole.name, parameter.empty() ? whole.tensor : optimizer.part_of(parameter, whole.tensor)});
  }
  return parts;
}

CheckpointContents contents_of(const TrainingState& state) {
  CheckpointContents contents{.model = sources_of(state.model),
                              .random_states = state.random_states,
                              .communication_states = state.communication_states,
                              .values = state.values};
  for (const NamedOptimizer& o : state.optimizers) {
    OptimizerSnapshot snapshot = snapshot_optimizer(o.name, *o.optimizer, state.model);
    contents.optimizers[o.name] = std::move(snapshot.description);
    for (const NamedTensor& tensor : snapshot.tensors)
      contents.optimizer_tensors.push_back(source_of(tensor));
  }
  return contents;
}

fs::path save_checkpoint(const fs::path& root, std::int64_t step, const CheckpointContents& contents,
                         int keep) {
  remove_abandoned_checkpoints(root);
  CheckpointWriter writer(root, step);
  write_tensors(writer, model_file, contents.model);
  if (!contents.optimizers.empty()) write_tensors(writer, optimizer_file, contents.optimizer_tensors);

  NamedTensors random_tensors;
  for (std::size_t rank = 0; rank < contents.random_states.size(); ++rank) {
    random_tensors.push_back({random_name(rank), contents.random_states[rank]});
  }
  if (!random_tensors.empty()) write_tensors(writer, random_file, sources_of(random_tensors));

  const NamedTensors communication_tensors = name_by_rank(contents.communication_states);
  if (!communication_tensors.empty())
    write_tensors(writer, communication_file, sources_of(communication_tensors));

  const nlohmann::json document{{"values", contents.values}, {"optimizers", contents.optimizers}};
  writer.write_text(state_file, document.dump(1) + "\n");
  return writer.commit(keep);
}

fs::path save_checkpoint(const fs::path& root, std::int64_t step, const TrainingState& state, int keep) {
  return save_checkpoint(root, step, contents_of(state), keep);
}

void load_checkpoint(const fs::path& path, TrainingState& state) {
  const fs::path checkpoint = find_checkpoint(path);
  require_intact(checkpoint);
  const std::string what = str("checkpoint ", checkpoint.string());
  nlohmann::json document = read_state(checkpoint);
  std::vector<at::Tensor> random_states = read_random_states(checkpoint);
  RankStates communication_states = read_communication_states(checkpoint);

  std::vector<std::function<void()>> put_in_place{
      prepare_assign(state.model, map_tensors(checkpoint / model_file), what, state.take)};
  const nlohmann::json& optimizers = document["optimizers"];
  if (!state.optimizers.empty()) {
    const NamedTensors tensors =
        fs::exists(checkpoint / optimizer_file) ? map_tensors(checkpoint / optimizer_file) : NamedTensors{};
    for (const NamedOptimizer& o : state.optimizers) {
      if (!optimizers.contains(o.name)) throw DataError(str(what, " has no optimizer '", o.name, "'"));
      const NamedTensors& parameters = o.parameters.empty() ? state.model : o.parameters;
      put_in_place.push_back(prepare_optimizer(o.name, *o.optimizer, parameters, optimizers[o.name],
                                               o.part_of ? parts_of(o, tensors) : tensors, what));
    }
  }
  for (const auto& apply : put_in_place) apply();
  state.values = std::move(document["values"]);
  state.random_states = std::move(random_states);
  state.communication_states = std::move(communication_states);
}

nlohmann::json read_checkpoint_values(const fs::path& path) {
  return std::move(read_state(find_checkpoint(path))["values"]);
}

}  // namespace rondo
