#include <torch/types.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "apps/checkpoint/commands.h"
#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/checkpoint_directory.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using TensorMap = std::map<std::string, at::Tensor>;

std::string describe(const at::Tensor& tensor) {
  return str(c10::toString(tensor.scalar_type()), "[", join(tensor.sizes(), ", "), "]");
}

// Of a checkpoint the model's and the optimizers' tensors, of a file its own.
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

// Bytes decide, so that equal NaNs are equal.
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
