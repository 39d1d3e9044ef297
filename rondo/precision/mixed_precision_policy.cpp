#include "rondo/precision/mixed_precision_policy.h"

#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/precision/dtype.h"

namespace rondo {
namespace {

constexpr const char* kWhat = "mixed precision policy: ";
constexpr const char* kParts =
    "param, reduce and output with a dtype, cast_forward_inputs and keep_batchnorm_fp32 with true or false";

struct DtypeField {
  const char* name;
  std::optional<at::ScalarType> MixedPrecisionPolicy::*member;
};
constexpr DtypeField kDtypeFields[] = {{"param", &MixedPrecisionPolicy::param_dtype},
                                       {"reduce", &MixedPrecisionPolicy::reduce_dtype},
                                       {"output", &MixedPrecisionPolicy::output_dtype}};

struct SwitchField {
  const char* name;
  bool MixedPrecisionPolicy::*member;
};
constexpr SwitchField kSwitches[] = {{"cast_forward_inputs", &MixedPrecisionPolicy::cast_forward_inputs},
                                     {"keep_batchnorm_fp32", &MixedPrecisionPolicy::keep_batchnorm_fp32}};

std::string json_key(const DtypeField& field) { return str(field.name, "_dtype"); }

const DtypeField* find_field(std::string_view key) {
  for (const DtypeField& field : kDtypeFields) {
    if (key == field.name || key == json_key(field)) return &field;
  }
  return nullptr;
}

const SwitchField* find_switch(std::string_view key) {
  for (const SwitchField& field : kSwitches) {
    if (key == field.name) return &field;
  }
  return nullptr;
}

bool parse_bool(const SwitchField& field, std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw UsageError(str(kWhat, field.name, " '", text, "' is neither true nor false"));
}

[[noreturn]] void unknown(std::string_view part) {
  throw UsageError(str(kWhat, "'", part, "' is not a part of it; there are ", kParts));
}

}  // namespace

MixedPrecisionPolicy parse_mixed_precision_policy(std::string_view text) {
  MixedPrecisionPolicy policy;
  for (const std::string& part : split(text, ',')) {
    const std::string_view trimmed = trim(part);
    const std::size_t equals = trimmed.find('=');
    const std::string_view key = trimmed.substr(0, equals);
    if (equals == std::string_view::npos) {
      policy.param_dtype = parse_float_dtype(key, str(kWhat, "param_dtype"));
      continue;
    }
    const std::string_view value = trimmed.substr(equals + 1);
    if (const DtypeField* field = find_field(key)) {
      policy.*(field->member) = parse_float_dtype(value, kWhat + json_key(*field));
    } else if (const SwitchField* field = find_switch(key)) {
      policy.*(field->member) = parse_bool(*field, value);
    } else {
      unknown(trimmed);
    }
  }
  return policy;
}

std::string to_text(const MixedPrecisionPolicy& policy) {
  std::vector<std::string> parts;
  for (const DtypeField& field : kDtypeFields) {
    if (const auto dtype = policy.*(field.member))
      parts.push_back(str(field.name, "=", float_dtype_name(*dtype)));
  }
  for (const SwitchField& field : kSwitches) {
    const bool value = policy.*(field.member);
    if (value != MixedPrecisionPolicy{}.*(field.member))
      parts.push_back(str(field.name, "=", value ? "true" : "false"));
  }
  return join(parts, ",");
}

nlohmann::json to_json(const MixedPrecisionPolicy& policy) {
  nlohmann::json json;
  for (const SwitchField& field : kSwitches) json[field.name] = policy.*(field.member);
  for (const DtypeField& field : kDtypeFields) {
    const auto dtype = policy.*(field.member);
    json[json_key(field)] = dtype ? nlohmann::json(float_dtype_name(*dtype)) : nlohmann::json(nullptr);
  }
  return json;
}

MixedPrecisionPolicy mixed_precision_policy_from_json(const nlohmann::json& json) {
  if (!json.is_object()) throw UsageError(str(kWhat, json.dump(), " is not a JSON object"));
  MixedPrecisionPolicy policy;
  for (const auto& [key, value] : json.items()) {
    if (const DtypeField* field = find_field(key); field != nullptr && key == json_key(*field)) {
      if (value.is_null()) continue;
      const std::string name = value.is_string() ? value.get<std::string>() : value.dump();
      policy.*(field->member) = parse_float_dtype(name, kWhat + key);
    } else if (const SwitchField* field = find_switch(key)) {
      policy.*(field->member) = parse_bool(*field, value.dump());
    } else {
      unknown(key);
    }
  }
  return policy;
}

}  // namespace rondo
