#include "rondo/models/freeze.h"

#include <torch/types.h>

#include <algorithm>
#include <set>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

bool lies_in(const std::string& parameter, const std::string& part) {
  return str(".", parameter, ".").find(str(".", part, ".")) != std::string::npos;
}

// The first names of all paths, two deep: enough to see what there is.
std::vector<std::string> outline(const torch::nn::Module& model) {
  std::set<std::string> parts;
  for (const auto& parameter : model.named_parameters()) {
    const std::vector<std::string> names = split(parameter.key(), '.');
    parts.insert(names.size() > 2 ? names[0] + "." + names[1] : names[0]);
  }
  return {parts.begin(), parts.end()};
}

}  // namespace

int freeze(torch::nn::Module& model, const std::vector<std::string>& parts) {
  std::vector<at::Tensor> frozen;
  bool something_left = false;
  std::set<std::string> unseen(parts.begin(), parts.end());
  for (const auto& parameter : model.named_parameters()) {
    bool is_frozen = false;
    for (const std::string& part : parts) {
      if (part.empty() || !lies_in(parameter.key(), part)) continue;
      is_frozen = true;
      unseen.erase(part);
    }
    if (is_frozen) frozen.push_back(parameter.value());
    something_left = something_left || (!is_frozen && parameter.value().requires_grad());
  }
  if (!unseen.empty()) {
    throw UsageError(str("cannot freeze '", *unseen.begin(),
                         "': no parameter of the model lies in it; its parts are ",
                         join(outline(model), ", ")));
  }
  if (!something_left) throw UsageError(str("freezing ", join(parts, ", "), " would leave nothing to train"));
  for (at::Tensor& parameter : frozen) parameter.requires_grad_(false);
  return static_cast<int>(frozen.size());
}

}  // namespace rondo
