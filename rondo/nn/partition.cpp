#include "rondo/nn/partition.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>

#include "rondo/nn/unit.h"

namespace rondo {
namespace {

// Units from the outermost to the innermost around some place in the model.
using Path = std::vector<UnitState*>;

struct Found {
  std::string name;
  at::Tensor tensor;
  Path path;
};

class Walk {
 public:
  void visit(const torch::nn::Module& module, const std::string& name, Path path) {
    if (UnitState* unit = unit_at(module)) {
      unit->set_name(name);
      // A module that is registered twice is one unit.
      if (std::find(units_.begin(), units_.end(), unit) == units_.end()) units_.push_back(unit);
      path.push_back(unit);
    }
    const std::string prefix = name.empty() ? name : name + ".";
    for (const auto& entry : module.named_parameters(/*recurse=*/false)) {
      add(prefix + entry.key(), entry.value(), path);
    }
    for (const auto& entry : module.named_children()) visit(*entry.value(), prefix + entry.key(), path);
  }

  const std::vector<UnitState*>& units() const { return units_; }
  const std::vector<Found>& parameters() const { return parameters_; }

 private:
  // A const module gives away units all the same: what observers do with them does not change the module.
  static UnitState* unit_at(const torch::nn::Module& module) {
    auto* unit = dynamic_cast<const UnitBase*>(&module);
    return unit ? &const_cast<UnitBase*>(unit)->unit_state() : nullptr;
  }

  void add(std::string name, const at::Tensor& tensor, const Path& path) {
    if (!tensor.defined()) return;
    const auto [place, is_new] = index_.try_emplace(tensor.unsafeGetTensorImpl(), parameters_.size());
    if (is_new) {
      parameters_.push_back({std::move(name), tensor, path});
      return;
    }
    Path& shared = parameters_[place->second].path;
    const auto end = std::mismatch(shared.begin(), shared.end(), path.begin(), path.end()).first;
    shared.erase(end, shared.end());
  }

  std::vector<UnitState*> units_;
  std::vector<Found> parameters_;
  std::map<const void*, std::size_t> index_;
};

}  // namespace

std::uint64_t ModelUnit::parameter_bytes() const {
  std::uint64_t bytes = 0;
  for (const ModelTensor& parameter : parameters) bytes += parameter.tensor.nbytes();
  return bytes;
}

std::vector<UnitState*> units_of(const torch::nn::Module& model) {
  Walk walk;
  walk.visit(model, "", {});
  return walk.units();
}

std::vector<ModelUnit> partition_into_units(const torch::nn::Module& model) {
  Walk walk;
  walk.visit(model, "", {});
  std::vector<ModelUnit> units = {{.name = kRootUnit}};
  std::map<UnitState*, std::size_t> place = {{nullptr, 0}};
  for (UnitState* state : walk.units()) {
    place[state] = units.size();
    // The model itself may be a unit.
    units.push_back({.name = state->name().empty() ? kRootUnit : state->name(), .state = state});
  }
  for (const Found& found : walk.parameters()) {
    ModelUnit& unit = units[place.at(found.path.empty() ? nullptr : found.path.back())];
    unit.parameters.push_back({found.name, found.tensor});
  }
  std::erase_if(units, [](const ModelUnit& unit) { return unit.parameters.empty(); });
  return units;
}

}  // namespace rondo
