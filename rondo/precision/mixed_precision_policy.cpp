#include "rondo/precision/mixed_precision_policy.h"

#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/precision/dtype.h"

namespace rondo {
namespace {

constexpr const char* kWhat = "mixed precision policy: ";
constexpr const char* kParts =
    "param, reduce and output with a dtype, cast_forward_inputs with true or false";

struct DtypeField {
  const char* name;
  std::optional<at::ScalarType> MixedPrecisionPolicy::*member;
};
constexpr DtypeField kDtypeFields[] = {{"param", &MixedPrecisionPolicy::param_dtype},
                                       {"reduce", &MixedPrecisionPolicy::reduce_dtype},
                                       {"output", &MixedPrecisionPolicy::output_dtype}};

std::string json_key(const DtypeField& field) { return str(field.name, "_dtype"); }

const DtypeField* find_field(std::string_view key) {
  for (const DtypeField& field : kDtypeFields) {
    if (key == field.name || key == json_key(field)) return &field;
  }
  return nullptr;
}

bool parse_bool(std::string_view text) {
  if (text == "true") return true;
  if (text == "false") return false;
  throw UsageError(str(kWhat, "cast_forward_inputs '", text, "' is neither true nor false"));
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
    } else if (key == "cast_forward_inputs") {
      policy.cast_forward_inputs = parse_bool(value);
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
  if (!policy.cast_forward_inputs) parts.emplace_back("cast_forward_inputs=false");
  return join(parts, ",");
}

nlohmann::json to_json(const MixedPrecisionPolicy& policy) {
  nlohmann::json json = {{"cast_forward_inputs", policy.cast_forward_inputs}};
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
    } else if (key == "cast_forward_inputs") {
      policy.cast_forward_inputs = parse_bool(value.dump());
    } else {
      unknown(key);
    }
  }
  return policy;
}

}  // namespace rondo
