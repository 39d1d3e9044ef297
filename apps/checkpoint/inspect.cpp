#include <torch/types.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checkpoint/commands.h"
#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json describe_file(const fs::path& path) {
  const SafetensorsFile file(path);
  Json tensors = Json::array();
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const TensorEntry& t : file.tensors()) {
    tensors.push_back(
        {{"name", t.name}, {"dtype", to_string(t.dtype)}, {"shape", t.shape}, {"bytes", t.bytes()}});
    elements += t.bytes() / element_size(t.dtype);
    bytes += t.bytes();
  }
  return {{"name", path.filename().string()},
          {"elements", elements},
          {"bytes", bytes},
          {"metadata", file.metadata()},
          {"tensors", std::move(tensors)}};
}

Json describe(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    require_intact_if_of_checkpoint(path);
    return {{"path", path.string()}, {"files", Json::array({describe_file(path)})}};
  }
  const fs::path checkpoint = open_checkpoint(path);
  const Manifest manifest = read_manifest(checkpoint);
  Json result{{"path", checkpoint.string()}, {"step", manifest.step}, {"files", Json::array()}};
  for (const FileRecord& record : manifest.files) {
    const fs::path file = checkpoint / record.name;
    if (file.extension() == ".safetensors") {
      result["files"].push_back(describe_file(file));
    } else if (file.extension() == ".json") {
      result["state"] = read_json_file(file);
    }
  }
  return result;
}

void print_description(const Json& description) {
  std::printf("%s\n", shown(description["path"].get<std::string>()).c_str());
  if (description.contains("step")) std::printf("step %lld\n", description["step"].get<long long>());
  for (const Json& file : description["files"]) {
    std::printf("\n%s: %zu tensors, %llu elements, %s\n", shown(file["name"].get<std::string>()).c_str(),
                file["tensors"].size(), file["elements"].get<unsigned long long>(),
                to_string(Bytes{file["bytes"].get<std::uint64_t>()}).c_str());
    for (const Json& t : file["tensors"]) {
      std::printf("  %-48s %-10s [%s]\n", shown(t["name"].get<std::string>()).c_str(),
                  t["dtype"].get<std::string>().c_str(), join(t["shape"], ", ").c_str());
    }
    for (const auto& [key, value] : file["metadata"].items()) {
      std::printf("  %s = %s\n", shown(key).c_str(), shown(value.get<std::string>()).c_str());
    }
  }
  const auto state = description.find("state");
  if (state == description.end()) return;
  // A user's own checkpoint may have another JSON file.
  const bool has_values = state->is_object() && state->contains("values");
  const std::string values = (has_values ? state->at("values") : *state).dump(2);
  std::printf("\nvalues\n%s\n", printable(values, values.size()).c_str());
}

}  // namespace

Command add_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("inspect", "List the tensors and values of a checkpoint or safetensors file");
  command->add_option("CHECKPOINT", options->path, "checkpoint, run directory or .safetensors file")
      ->check(existing_path())
      ->required();
  add_json_flag(*command, options->json);
  return {command, [options] {
            const Json description = describe(options->path);
            if (options->json != "-") print_description(description);
            write_json(options->json, description);
            return 0;
          }};
}

namespace {

Json verify(const fs::path& path, bool& is_intact) {
  StageProgress stage;
  stage.begin("verifying " + path.string());
  const fs::path checkpoint = find_checkpoint(path);
  Json result{{"path", checkpoint.string()}, {"intact", true}, {"damage", Json::array()}};
  for (const Damage& d : verify_checkpoint(checkpoint)) {
    result["damage"].push_back({{"file", d.file}, {"tensor", d.tensor}, {"what", d.what}});
  }
  is_intact = result["damage"].empty();
  result["intact"] = is_intact;
  if (is_intact) return result;
  const IntactCheckpoint others = newest_intact_checkpoint(parent_of_checkpoint(checkpoint));
  if (others.newest) result["newest_intact"] = others.newest->path.string();
  result["advice"] = advice_for_damaged(others);
  return result;
}

void print_verdict(const Json& result) {
  const std::string path = shown(result["path"].get<std::string>());
  if (result["intact"].get<bool>()) {
    std::printf("%s: intact\n", path.c_str());
    return;
  }
  for (const Json& d : result["damage"]) {
    const std::string tensor = shown(d["tensor"].get<std::string>());
    std::fprintf(stderr, "%s: %s%s: %s\n", path.c_str(), shown(d["file"].get<std::string>()).c_str(),
                 tensor.empty() ? "" : (", tensor '" + tensor + "'").c_str(),
                 shown(d["what"].get<std::string>()).c_str());
  }
  std::fprintf(stderr, "%s: %s\n", path.c_str(), shown(result["advice"].get<std::string>()).c_str());
}

}  // namespace

Command add_verify(CLI::App& app) {
  struct Options {
    std::string path;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Read every byte and compare it with the manifest; exit code 1 for damage");
  command->add_option("CHECKPOINT", options->path, "checkpoint or run directory")
      ->check(existing_path())
      ->required();
  add_json_flag(*command, options->json);
  return {command, [options] {
            bool is_intact = false;
            const Json result = verify(options->path, is_intact);
            if (options->json != "-" || !is_intact) print_verdict(result);
            write_json(options->json, result);
            return static_cast<int>(is_intact ? ExitCode::ok : ExitCode::failed);
          }};
}

namespace {

using TensorMap = std::map<std::string, at::Tensor>;

std::string describe(const at::Tensor& tensor) {
  return str(c10::toString(tensor.scalar_type()), "[", join(tensor.sizes(), ", "), "]");
}

// Returns the model's and the optimizers' tensors of a checkpoint, or the tensors of a file.
TensorMap read_all(const fs::path& path) {
  TensorMap tensors;
  for (const NamedTensor& t : read_weights(path)) tensors[t.name] = t.tensor;
  if (fs::is_directory(path)) {
    // Verified above.
    for (const NamedTensor& t : full_tensors(stored_tensors(find_checkpoint(path), "optimizer")))
      tensors[t.name] = t.tensor;
  }
  return tensors;
}

// Compares bytes, so that equal NaNs are equal.
bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  return left.nbytes() == 0 || std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
}

std::optional<Json> compare(const std::string& name, const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return Json{
        {"name", name}, {"difference", "shape or dtype"}, {"left", describe(a)}, {"right", describe(b)}};
  }
  if (same_bytes(a, b)) return std::nullopt;
  const at::Tensor difference = (a.to(at::kDouble) - b.to(at::kDouble)).abs();
  return Json{{"name", name},
              {"difference", "values"},
              {"elements", difference.numel()},
              {"elements_that_differ", a.ne(b).sum().item<std::int64_t>()},
              {"largest_difference", difference.max().item<double>()}};
}

Json diff(const fs::path& left_path, const fs::path& right_path) {
  StageProgress stage;
  stage.begin("comparing the tensors");
  const TensorMap left = read_all(left_path);
  const TensorMap right = read_all(right_path);
  Json differences = Json::array();
  for (const auto& [name, tensor] : left) {
    const auto other = right.find(name);
    if (other == right.end()) {
      differences.push_back({{"name", name}, {"difference", "only in left"}});
    } else if (auto difference = compare(name, tensor, other->second)) {
      differences.push_back(std::move(*difference));
    }
  }
  for (const auto& [name, tensor] : right) {
    if (!left.contains(name)) differences.push_back({{"name", name}, {"difference", "only in right"}});
  }
  return {{"left", left_path.string()},
          {"right", right_path.string()},
          {"tensors", left.size()},
          {"same", differences.empty()},
          {"differences", std::move(differences)}};
}

void print_difference(const Json& result) {
  if (result["same"].get<bool>()) {
    std::printf("the same: %zu tensors\n", result["tensors"].get<std::size_t>());
    return;
  }
  std::printf("%s and %s differ:\n", shown(result["left"].get<std::string>()).c_str(),
              shown(result["right"].get<std::string>()).c_str());
  for (const Json& d : result["differences"]) {
    const std::string what = d["difference"].get<std::string>();
    std::string detail;
    if (what == "values") {
      detail = str(": ", d["elements_that_differ"].dump(), " of ", d["elements"].dump(),
                   " elements, by up to ", d["largest_difference"].dump());
    } else if (d.contains("left")) {
      detail = str(": ", d["left"].get<std::string>(), " against ", d["right"].get<std::string>());
    }
    std::printf("%s: %s%s\n", shown(d["name"].get<std::string>()).c_str(), what.c_str(), detail.c_str());
  }
}

}  // namespace

Command add_diff(CLI::App& app) {
  struct Options {
    std::string left;
    std::string right;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("diff", "Compare the tensors of two checkpoints; exit code 1 when they differ");
  command->add_option("LEFT", options->left, "checkpoint, run directory, .safetensors file or archive")
      ->check(existing_path())
      ->required();
  command->add_option("RIGHT", options->right, "the same")->check(existing_path())->required();
  add_json_flag(*command, options->json);
  return {command, [options] {
            const Json result = diff(options->left, options->right);
            if (options->json != "-") print_difference(result);
            write_json(options->json, result);
            return static_cast<int>(result["same"].get<bool>() ? ExitCode::ok : ExitCode::failed);
          }};
}

}  // namespace rondo
