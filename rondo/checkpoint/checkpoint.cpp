#include "rondo/checkpoint/checkpoint.h"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {

namespace fs = std::filesystem;
namespace {

constexpr const char* model_kind = "model";
constexpr const char* optimizer_kind = "optimizer";
constexpr const char* random_file = "random.safetensors";
constexpr const char* communication_file = "communication.safetensors";
constexpr const char* state_file = "state.json";

std::string random_name(std::size_t rank) { return str("rank", rank); }

// Returns the rank in a random_name(), or `ranks` if the name has another form.
std::size_t rank_of(const std::string& name, std::size_t ranks) {
  std::size_t rank = ranks;
  constexpr std::string_view prefix = "rank";
  if (name.starts_with(prefix)) std::from_chars(name.data() + prefix.size(), name.data() + name.size(), rank);
  return rank < ranks && random_name(rank) == name ? rank : ranks;
}

nlohmann::json read_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / state_file;
  const std::string text = read_text_file(path);
  nlohmann::json state = parse_json_strict(text, path.string());
  if (!state.is_object() || !state.contains("values") || !state.contains("optimizers")) {
    throw DataError(str(path.string(), ": expected an object with \"values\" and \"optimizers\""));
  }
  return state;
}

std::vector<at::Tensor> read_random_states(const CheckpointFiles& files) {
  std::vector<at::Tensor> states;
  if (!files.has(random_file)) return states;
  const NamedTensors tensors = map_tensors(files.tensors(random_file));
  states.resize(tensors.size());
  for (const NamedTensor& t : tensors) {
    const std::size_t rank = rank_of(t.name, states.size());
    if (rank == states.size()) {
      throw DataError(str((files.path() / random_file).string(), ": unexpected tensor '", t.name, "'"));
    }
    states[rank] = t.tensor.clone();
  }
  return states;
}

// Names the tensors by rank: "rank3/hook/residual/7" is "hook/residual/7" of rank 3.
NamedTensors name_by_rank(const RankStates& states) {
  NamedTensors tensors;
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    for (const auto& [name, tensor] : states[rank])
      tensors.push_back({str(random_name(rank), "/", name), tensor});
  }
  return tensors;
}

RankStates read_communication_states(const CheckpointFiles& files) {
  const fs::path path = files.path() / communication_file;
  RankStates states;
  if (!files.has(communication_file)) return states;
  const NamedTensors tensors = map_tensors(files.tensors(communication_file));
  for (const NamedTensor& t : tensors) {
    const std::size_t slash = t.name.find('/');
    const std::string rank_name = t.name.substr(0, slash);
    // Requires at least one tensor from every rank.
    const std::size_t rank = rank_of(rank_name, tensors.size());
    if (slash == std::string::npos || rank == tensors.size())
      throw DataError(str(path.string(), ": unexpected tensor '", t.name, "'"));
    if (states.size() <= rank) states.resize(rank + 1);
    states[rank][t.name.substr(slash + 1)] = t.tensor;
  }
  return states;
}

}  // namespace

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
                         int keep, bool incremental) {
  remove_abandoned_checkpoints(root);
  CheckpointWriter writer(root, step);
  std::optional<IncrementalWriter> linking;
  if (incremental) linking.emplace(writer, root);
  const auto write = [&](const char* kind, const TensorSources& sources) {
    if (linking) {
      linking->write(kind, sources);
    } else {
      write_tensors(writer, part_name(kind, 0, 1), sources);
    }
  };
  write(model_kind, contents.model);
  if (!contents.optimizers.empty()) write(optimizer_kind, contents.optimizer_tensors);
  write_rest(writer, contents);
  return writer.commit(keep);
}

std::vector<FileRecord> write_part(const fs::path& directory, const CheckpointPart& part) {
  const fs::path model = directory / part_name(model_kind, part.number, part.count);
  const fs::path optimizer = directory / part_name(optimizer_kind, part.number, part.count);
  SafetensorsWriter::Unsynced files[]{write_shards(model, part.model, part.shared),
                                      write_shards(optimizer, part.optimizer)};
  std::vector<FileRecord> records;
  for (SafetensorsWriter::Unsynced& written : files) {
    written.file.sync();
    written.file.close();
    records.push_back(std::move(written.record));
  }
  return records;
}

void write_rest(CheckpointWriter& writer, const CheckpointContents& contents) {
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
}

fs::path save_checkpoint(const fs::path& root, std::int64_t step, const TrainingState& state, int keep,
                         bool incremental) {
  return save_checkpoint(root, step, contents_of(state), keep, incremental);
}

void load_checkpoint(const fs::path& path, TrainingState& state) {
  const CheckpointFiles files = open_checkpoint_files(path);
  const fs::path& checkpoint = files.path();
  const std::string what = str("checkpoint ", checkpoint.string());
  nlohmann::json document = read_state(checkpoint);
  if (state.check) state.check(document["values"], (checkpoint / state_file).string());
  std::vector<at::Tensor> random_states = read_random_states(files);
  RankStates communication_states = read_communication_states(files);

  std::vector<std::function<void()>> put_in_place{
      prepare_assign(state.model, stored_tensors(files, model_kind), what, state.shards)};
  const nlohmann::json& optimizers = document["optimizers"];
  if (!state.optimizers.empty()) {
    const StoredTensors tensors = stored_tensors(files, optimizer_kind);
    const std::string file = (checkpoint / state_file).string();
    for (const NamedOptimizer& o : state.optimizers) {
      if (!optimizers.contains(o.name)) throw DataError(str(what, " has no optimizer '", o.name, "'"));
      NamedTensors parameters = state.shards.empty() ? state.model : locals_of(state.shards);
      for (const at::Tensor& own : state.own_parameters) parameters.push_back({"", own});
      put_in_place.push_back(prepare_optimizer(o.name, *o.optimizer, parameters, optimizers[o.name],
                                               cut_optimizer(o.name, tensors, state.shards), what,
                                               state.trust_archives, file));
    }
  }
  for (const auto& apply : put_in_place) apply();
  state.values = std::move(document["values"]);
  state.random_states = std::move(random_states);
  state.communication_states = std::move(communication_states);
}

nlohmann::json read_checkpoint_values(const fs::path& path) {
  return std::move(read_state(open_checkpoint(path))["values"]);
}

namespace {

// Smaller tensors share a file that is always written: a separate file costs about as much as writing this
// many bytes.
constexpr std::uint64_t kAlone = std::uint64_t{64} << 10;

std::span<const std::byte> elements_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace

IncrementalWriter::IncrementalWriter(CheckpointWriter& writer, const std::filesystem::path& root)
    : writer_(writer) {
  const auto newest = newest_checkpoint(root);
  if (!newest) return;
  try {
    for (FileRecord& file : read_manifest(newest->path).files) {
      if (file.tensors.size() != 1 || file.header_checksum.empty()) continue;
      const std::string kind = file.name.substr(0, file.name.find_first_of("-."));
      const std::string tensor = file.tensors.front().name;
      const std::filesystem::path path = newest->path / file.name;
      older_.insert_or_assign({kind, tensor}, std::pair{path, std::move(file)});
    }
  } catch (const DataError&) {
    older_.clear();
  }
}

bool IncrementalWriter::link(const std::string& kind, const TensorSpec& spec, const std::string& file_name,
                             const std::string& checksum) {
  const auto found = older_.find({kind, spec.name});
  if (found == older_.end()) return false;
  const auto& [path, record] = found->second;
  // The header contains name, dtype and shape.
  if (record.tensors.front().checksum != checksum ||
      record.header_checksum != checksum_hex(as_bytes(safetensors_header({spec}))))
    return false;
  FileRecord linked = record;
  linked.name = file_name;
  return writer_.link(path, std::move(linked));
}

void IncrementalWriter::write(const std::string& kind, const TensorSources& sources) {
  const TensorLayout layout = lay_out(sources);
  std::map<std::string, const TensorSpec*> specs;
  for (const TensorSpec& spec : layout.specs) specs[spec.name] = &spec;
  const std::vector<TensorEntry> order = safetensors_order(layout.specs);
  const auto is_alone = [](const TensorEntry& entry) { return entry.bytes() >= kAlone; };
  const int files = 1 + static_cast<int>(std::count_if(order.begin(), order.end(), is_alone));

  int number = 0;  // the first file holds the small tensors and the further names
  std::map<std::string, at::Tensor> small;
  std::vector<TensorSpec> small_specs;
  for (const TensorEntry& entry : order) {
    const TensorSpec& spec = *specs.at(entry.name);
    const at::Tensor tensor =
        sources[layout.numbers.at(entry.name)].make().detach().to(at::kCPU).contiguous();
    if (!is_alone(entry)) {
      small.emplace(entry.name, tensor);
      small_specs.push_back(spec);
      continue;
    }
    const std::string file_name = part_name(kind, ++number, files);
    if (older_.contains({kind, spec.name}) && link(kind, spec, file_name, checksum_hex(elements_of(tensor))))
      continue;
    SafetensorsWriter file = writer_.open_tensors(file_name, {spec});
    file.write(spec.name, elements_of(tensor));
    writer_.finish(file);
  }
  SafetensorsWriter file = writer_.open_tensors(part_name(kind, 0, files), small_specs, layout.metadata);
  for (const TensorEntry& entry : std::vector(file.order()))
    file.write(entry.name, elements_of(small.at(entry.name)));
  writer_.finish(file);
}

namespace {

constexpr std::int64_t kCudaStateBytes = 16;  // seed and offset

std::vector<at::Generator> generators(c10::Device device) {
  std::vector<at::Generator> result{at::globalContext().defaultGenerator(c10::kCPU)};
  if (!device.is_cpu()) result.push_back(at::globalContext().defaultGenerator(device));
  return result;
}

}  // namespace

at::Tensor random_state(c10::Device device) {
  std::vector<at::Tensor> states;
  for (at::Generator& generator : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return at::cat(states);
}

void set_random_state(const at::Tensor& state, c10::Device device) {
  std::vector<std::int64_t> sizes;
  for (at::Generator& generator : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    sizes.push_back(generator.get_state().numel());
  }
  const std::int64_t whole = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  // The state was saved on a device, or was saved on the CPU and is restored on a device: both contain the
  // CPU generator's state.
  const bool fits = state.numel() == whole || state.numel() == sizes.front() ||
                    (device.is_cpu() && state.numel() == whole + kCudaStateBytes);
  if (state.scalar_type() != at::kByte || state.dim() != 1 || !fits) {
    throw DataError(
        str("a saved random state has ", state.numel(), " elements of ", c10::toString(state.scalar_type()),
            ", this process on ", device.str(), " needs ", whole, " bytes, or the ", sizes.front(),
            " of the CPU's generator: it was saved by another libtorch or on another kind of device"));
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size() && offset < state.numel(); ++i) {
    at::Generator generator = generators(device)[i];
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(state.narrow(0, offset, sizes[i]).clone());
    offset += sizes[i];
  }
}

}  // namespace rondo
