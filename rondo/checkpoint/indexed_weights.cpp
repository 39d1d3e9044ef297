#include "rondo/checkpoint/indexed_weights.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/checkpoint_choice.h"

namespace rondo {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

bool is_index(const fs::path& path) { return path.string().ends_with(".index.json"); }

// The names of the tensors of each part. A part is a file beside the index.
std::map<std::string, std::set<std::string>> parts_of(const fs::path& index) {
  const std::string source = index.string();
  const auto document = read_json_file(index);
  const auto& map =
      json_object(json_member(document, "weight_map", source), json_place(source, "weight_map"));
  std::map<std::string, std::set<std::string>> parts;
  for (const auto& [tensor, file] : map.items()) {
    const std::string name = json_text(file, str(source, ": the file of tensor '", printable(tensor), "'"));
    if (name.empty() || name != fs::path(name).filename())
      throw DataError(str(source, ": tensor '", printable(tensor), "' is in '", printable(name),
                          "', expected a file in the folder of the index"));
    parts[name].insert(tensor);
  }
  if (parts.empty()) throw DataError(str(source, ": it lists no tensors"));
  return parts;
}

}  // namespace

std::optional<fs::path> weights_in_folder(const fs::path& folder) {
  for (const char* name : {kWeights, kIndex}) {
    if (fs::exists(folder / name)) return folder / name;
  }
  return {};
}

NamedTensors read_safetensors(const fs::path& path) {
  if (!is_index(path)) {
    require_intact_if_of_checkpoint(path);
    return map_tensors(path);
  }
  NamedTensors all;
  for (const auto& [name, wanted] : parts_of(path)) {
    const fs::path part = path.parent_path() / name;
    if (!fs::exists(part))
      throw DataError(str(path.string(), " lists ", printable(name), ", which is not beside it"));
    std::set<std::string> missing = wanted;
    for (NamedTensor& tensor : map_tensors(part)) {
      if (missing.erase(tensor.name) > 0) all.push_back(std::move(tensor));
    }
    if (!missing.empty())
      throw DataError(str(part.string(), " has no tensor '", printable(*missing.begin()),
                          "', which the index says is in it"));
  }
  return all;
}

}  // namespace rondo
