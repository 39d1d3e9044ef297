#include "rondo/checkpoint/optimizer_state.h"

#include <torch/optim.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/nn/optimizers/optimizer_fields.h"

namespace rondo {
namespace {

using Json = nlohmann::json;
using torch::optim::Optimizer;
using ParameterNames = std::map<const c10::TensorImpl*, std::string>;
constexpr const char* archive_type = "archive";

ParameterNames parameter_names(const NamedTensors& model) {
  ParameterNames names;
  for (const NamedTensor& t : model) names.emplace(t.tensor.unsafeGetTensorImpl(), t.name);
  return names;
}

// Returns the parameters of a group by name, without those with an empty name. Throws UsageError for a
// parameter that `names` lacks.
std::vector<NamedTensor> named_parameters(const std::string& optimizer,
                                          const torch::optim::OptimizerParamGroup& group,
                                          const ParameterNames& names) {
  std::vector<NamedTensor> result;
  for (const at::Tensor& parameter : group.params()) {
    const auto found = names.find(parameter.unsafeGetTensorImpl());
    if (found == names.end()) {
      throw UsageError(str("optimizer '", optimizer, "' holds a parameter of shape [",
                           join(parameter.sizes(), ", "),
                           "] that is not in the model to be saved or loaded"));
    }
    if (!found->second.empty()) result.push_back({found->second, parameter});
  }
  return result;
}

std::string tensor_name(const std::string& optimizer, const std::string& parameter,
                        const std::string& field) {
  return str(optimizer, "/", parameter, "/", field);
}

at::Tensor archive_bytes(const Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  const std::string bytes = stream.str();
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

// Upper bound for the step counters of a valid checkpoint.
constexpr std::int64_t kMostOptimizerSteps = std::int64_t{1} << 53;

// Parses one option of a group or one counter of a parameter. The optimizers themselves refuse negative
// values, except for SGD's dampening.
template <class Value>
void read_field(const Json& fields, const char* key, const std::string& where, Value& value) {
  const Json& field = json_member(fields, key, where);
  const std::string place = json_place(where, key);
  if constexpr (std::is_same_v<Value, bool>) {
    value = json_boolean(field, place);
  } else if constexpr (std::is_same_v<Value, std::int64_t>) {
    value = json_integer(field, place, 0, kMostOptimizerSteps);
  } else if constexpr (std::is_same_v<Value, double>) {
    value = std::string_view(key) == "dampening" ? json_number(field, place) : json_number(field, place, 0);
  } else {
    static_assert(std::is_same_v<Value, std::tuple<double, double>>);
    if (json_list(field, place).size() != 2)
      throw DataError(str(place, " has ", field.size(), " numbers, expected 2"));
    value = {json_number(field[0], place, 0, 1), json_number(field[1], place, 0, 1)};
  }
}

// State collected by prepare_optimizer() before anything is changed.
struct Restored {
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;  // one for each group
  std::vector<void*> parameters;  // parameters whose previous state is removed
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states;
  // copies into existing tensors of the optimizer: to, from
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
};

class Preparation {
 public:
  Preparation(const std::string& name, Optimizer& optimizer, const Json& description,
              const NamedTensors& tensors, const std::string& what, const std::string& file)
      : name_(name),
        optimizer_(optimizer),
        description_(description),
        what_(what),
        where_(str(file.empty() ? what : file, ": optimizer '", name, "'")) {
    for (const NamedTensor& t : tensors) tensors_.emplace(t.name, t.tensor);
  }

  void check_type(const std::string& type) const {
    const std::string saved =
        json_text(json_member(description_, "type", where_), json_place(where_, "type"));
    if (saved != type) fail(str("it was saved by ", saved, ", here is ", type));
  }

  void check_groups(const ParameterNames& names) const {
    const Json& saved_groups = groups();
    if (saved_groups.size() != optimizer_.param_groups().size()) {
      fail(str("it has ", saved_groups.size(), " groups of parameters, here are ",
               optimizer_.param_groups().size()));
    }
    for (std::size_t g = 0; g < saved_groups.size(); ++g) {
      const auto parameters = named_parameters(name_, optimizer_.param_groups()[g], names);
      const std::string place = json_place(group_place(g), "parameters");
      const Json& saved = json_list(json_member(saved_groups[g], "parameters", group_place(g)), place);
      for (std::size_t p = 0; p < std::max(saved.size(), parameters.size()); ++p) {
        const std::string theirs = p < saved.size() ? json_text(saved[p], place) : "no parameter";
        const std::string ours = p < parameters.size() ? parameters[p].name : "no parameter";
        if (theirs != ours)
          fail(str("parameter ", p, " of group ", g, " is '", theirs, "', here it is '", ours, "'"));
      }
    }
  }

  template <class Kind>
  Restored restore_fields(const ParameterNames& names) const {
    Restored restored;
    const Json& saved_groups = groups();
    // Counters by parameter; parameters that had no gradient yet have none.
    const Json& states = json_object(json_member(description_, "state", where_), json_place(where_, "state"));
    for (std::size_t g = 0; g < saved_groups.size(); ++g) {
      auto& group = optimizer_.param_groups()[g];
      auto options = std::make_unique<typename Kind::Options>(static_cast<const typename Kind::Options&>(
          group.has_options() ? group.options() : optimizer_.defaults()));
      const Json& saved_options = json_member(saved_groups[g], "options", group_place(g));
      visit_options(*options, [&](const char* key, auto& value) {
        read_field(saved_options, key, json_place(group_place(g), "options"), value);
      });
      restored.options.push_back(std::move(options));
      const std::vector<NamedTensor> parameters = named_parameters(name_, group, names);
      const std::set<std::string> used = used_fields<Kind>(parameters);
      for (const NamedTensor& parameter : parameters) {
        restored.parameters.push_back(parameter.tensor.unsafeGetTensorImpl());
        const auto counters = states.find(parameter.name);
        if (counters == states.end()) continue;
        json_object(*counters, state_place(parameter.name));
        auto state = std::make_unique<typename Kind::State>();
        std::map<std::string, at::Tensor> present = tensors_of<Kind>(parameter);
        visit_state(*state, [&](const char* field, auto& value) {
          if constexpr (std::is_same_v<decltype(value), at::Tensor&>) {
            restore(parameter, used, field, present[field], value, restored);
          } else {
            read_field(*counters, field, state_place(parameter.name), value);
          }
        });
        restored.states.emplace_back(parameter.tensor.unsafeGetTensorImpl(), std::move(state));
      }
    }
    return restored;
  }

  at::Tensor archive() const {
    const auto found = tensors_.find(str(name_, "/", archive_type));
    if (found == tensors_.end()) fail("its archive is missing");
    return found->second;
  }

  [[noreturn]] void fail(const std::string& how) const {
    throw DataError(str(what_, " does not fit optimizer '", name_, "': ", how));
  }

 private:
  const Json& groups() const {
    return json_list(json_member(description_, "groups", where_), json_place(where_, "groups"));
  }
  std::string group_place(std::size_t group) const { return str(where_, ": group ", group); }
  std::string state_place(const std::string& parameter) const {
    return json_place(json_place(where_, "state"), parameter);
  }

  // Returns the fields that the group's options use: if one parameter has a field, all parameters with state
  // have it.
  template <class Kind>
  std::set<std::string> used_fields(const std::vector<NamedTensor>& parameters) const {
    std::set<std::string> used;
    typename Kind::State state;
    visit_state(state, [&](const char* field, auto&) {
      for (const NamedTensor& parameter : parameters) {
        if (tensors_.contains(tensor_name(name_, parameter.name, field))) used.insert(field);
      }
    });
    return used;
  }

  // Returns the optimizer's current tensors of the parameter.
  template <class Kind>
  std::map<std::string, at::Tensor> tensors_of(const NamedTensor& parameter) const {
    std::map<std::string, at::Tensor> result;
    const auto state = optimizer_.state().find(parameter.tensor.unsafeGetTensorImpl());
    if (state == optimizer_.state().end()) return result;
    visit_state(static_cast<typename Kind::State&>(*state->second), [&](const char* field, auto& value) {
      if constexpr (std::is_same_v<decltype(value), at::Tensor&>) result[field] = value;
    });
    return result;
  }

  // Reuses existing memory: allocating new pages costs as much as the copy.
  void restore(const NamedTensor& parameter, const std::set<std::string>& used, const char* field,
               const at::Tensor& present, at::Tensor& value, Restored& restored) const {
    const std::string tensor = tensor_name(name_, parameter.name, field);
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end()) {
      if (used.contains(field)) fail(str("tensor '", tensor, "' is missing"));
      return;
    }
    if (found->second.sizes() != parameter.tensor.sizes()) {
      fail(str("tensor '", found->first, "' has shape [", join(found->second.sizes(), ", "),
               "], the parameter here has [", join(parameter.tensor.sizes(), ", "), "]"));
    }
    const at::ScalarType dtype = found->second.scalar_type();
    if (present.defined() && present.sizes() == found->second.sizes() && present.scalar_type() == dtype) {
      value = present;
      restored.copies.emplace_back(present, found->second);
    } else {
      value = at::empty_like(parameter.tensor, parameter.tensor.options().dtype(dtype)).copy_(found->second);
    }
  }

  const std::string& name_;
  Optimizer& optimizer_;
  const Json& description_;
  const std::string& what_;
  std::string where_;  // location of the description, for errors about its values
  std::map<std::string, at::Tensor> tensors_;
};

void put_in_place(Optimizer& optimizer, Restored& restored) {
  for (std::size_t g = 0; g < restored.options.size(); ++g) {
    optimizer.param_groups()[g].set_options(std::move(restored.options[g]));
  }
  for (void* const parameter : restored.parameters) optimizer.state().erase(parameter);
  for (auto& [key, state] : restored.states) optimizer.state()[key] = std::move(state);
  for (auto& [to, from] : restored.copies) to.copy_(from);
}

}  // namespace

std::string parameter_of(const std::string& optimizer, const std::string& tensor) {
  // Format: "OPTIMIZER/PARAMETER/FIELD".
  const std::size_t begin = optimizer.size() + 1;
  const std::size_t end = tensor.rfind('/');
  return begin < end ? tensor.substr(begin, end - begin) : std::string();
}

NamedTensors cut_optimizer(const std::string& optimizer, const StoredTensors& tensors,
                           const std::vector<Shard>& shards) {
  NamedTensors parts;
  for (const StoredTensor& tensor : tensors) {
    const Shard* const shard = find_shard(shards, parameter_of(optimizer, tensor.name));
    // prepare_optimizer() reports a tensor with another shape.
    const bool is_cut = shard != nullptr && tensor.sizes == shard->global_sizes;
    parts.push_back({tensor.name, is_cut ? tensor.read(*shard) : tensor.full()});
  }
  return parts;
}

OptimizerSnapshot snapshot_optimizer(const std::string& name, Optimizer& optimizer,
                                     const NamedTensors& model) {
  const ParameterNames names = parameter_names(model);
  OptimizerSnapshot snapshot;
  Json& description = snapshot.description;
  description = {{"type", archive_type}, {"groups", Json::array()}, {"state", Json::object()}};
  for (const auto& group : optimizer.param_groups()) {
    Json parameters = Json::array();
    for (const NamedTensor& parameter : named_parameters(name, group, names))
      parameters.push_back(parameter.name);
    description["groups"].push_back({{"parameters", std::move(parameters)}});
  }
  const bool is_known = with_optimizer_kind(optimizer, [&]<class Kind>(Kind) {
    description["type"] = Kind::name;
    for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
      auto& group = optimizer.param_groups()[g];
      Json& options = description["groups"][g]["options"];
      visit_options(static_cast<typename Kind::Options&>(group.options()),
                    [&](const char* key, auto& value) { options[key] = value; });
      for (const NamedTensor& parameter : named_parameters(name, group, names)) {
        const auto state = optimizer.state().find(parameter.tensor.unsafeGetTensorImpl());
        if (state == optimizer.state().end()) continue;
        Json& counters = description["state"][parameter.name] = Json::object();
        visit_state(static_cast<typename Kind::State&>(*state->second), [&](const char* field, auto& value) {
          if constexpr (std::is_same_v<decltype(value), at::Tensor&>) {
            if (value.defined())
              snapshot.tensors.push_back({tensor_name(name, parameter.name, field), value});
          } else {
            counters[field] = value;
          }
        });
      }
    }
  });
  if (!is_known) snapshot.tensors.push_back({str(name, "/", archive_type), archive_bytes(optimizer)});
  return snapshot;
}

std::function<void()> prepare_optimizer(const std::string& name, Optimizer& optimizer,
                                        const NamedTensors& model, const Json& description,
                                        const NamedTensors& tensors, const std::string& what,
                                        bool trusts_archive, const std::string& file) {
  const Preparation preparation(name, optimizer, description, tensors, what, file);
  const ParameterNames names = parameter_names(model);
  try {
    std::string type = archive_type;
    with_optimizer_kind(optimizer, [&]<class Kind>(Kind) { type = Kind::name; });
    preparation.check_type(type);
    preparation.check_groups(names);
    const auto restored = std::make_shared<Restored>();
    if (with_optimizer_kind(optimizer,
                            [&]<class Kind>(Kind) { *restored = preparation.restore_fields<Kind>(names); })) {
      return [&optimizer, restored] { put_in_place(optimizer, *restored); };
    }
  } catch (const Json::exception& e) {
    preparation.fail(json_problem(e));
  }
  const at::Tensor bytes = preparation.archive();
  if (!trusts_archive) {
    throw UsageError(
        str(what, " has the state of optimizer '", name, "', of a kind that rondo does not know, as ",
            "libtorch's archive '", name, "/", archive_type,
            "', and reading it may run code of the checkpoint. If you trust the checkpoint, say so: "
            "Trainer::trust_archives(), LoadOptions::trust_archives of rondo::load, or "
            "TrainingState::trust_archives"));
  }
  return [&optimizer, bytes] {
    torch::serialize::InputArchive archive;
    archive.load_from(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes());
    optimizer.load(archive);
  };
}

}  // namespace rondo
