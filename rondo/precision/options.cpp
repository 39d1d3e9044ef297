#include "rondo/precision/options.h"

#include <torch/types.h>

#include <cmath>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

struct Name {
  const char* name;
  at::ScalarType dtype;
};
constexpr Name kNames[] = {
    {"float16", at::kHalf}, {"bfloat16", at::kBFloat16}, {"float32", at::kFloat}, {"float64", at::kDouble}};

}  // namespace

at::ScalarType parse_float_dtype(std::string_view text, std::string_view what) {
  for (const Name& name : kNames) {
    if (text == name.name) return name.dtype;
  }
  throw UsageError(str(what, " '", text, "' is not one of float16, bfloat16, float32, float64"));
}

std::string float_dtype_name(at::ScalarType dtype) {
  for (const Name& name : kNames) {
    if (dtype == name.dtype) return name.name;
  }
  throw UsageError(str(c10::toString(dtype), " is not a dtype that a model trains in"));
}

bool is_half_width(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

namespace {

constexpr const char* kLevels[] = {"O0", "O1", "O2", "O3"};

const char* name_of(OptLevel level) { return kLevels[static_cast<int>(level)]; }

// Under autocast weights stay in float32, so options that concern weights are errors.
void reject_weight_options(const PrecisionOptions& options) {
  const auto refuse = [&](const char* knob, const char* why) {
    throw UsageError(str("opt level O1 takes no ", knob, ": ", why, "; use O2 or O3, or leave it out"));
  };
  if (options.cast_model_type)
    refuse("cast_model_type", "it casts the inputs of operations, weights stay as they are");
  if (options.keep_batchnorm_fp32)
    refuse("keep_batchnorm_fp32", "autocast itself decides what a batch norm computes in");
  if (options.master_weights) refuse("master_weights", "the weights themselves are float32");
}

}  // namespace

LossScale parse_loss_scale(std::string_view text, std::string_view what) {
  if (text == "dynamic") return {.dynamic = true};
  const UsageError wrong(str(what, " '", text, "' is neither dynamic nor a number above 0"));
  constexpr std::string_view begins = "dynamic:";
  const bool dynamic = text.starts_with(begins);
  double value = 0;
  try {
    value = parse_number(dynamic ? text.substr(begins.size()) : text, what);
  } catch (const UsageError&) {
    throw wrong;
  }
  if (!(value > 0)) throw wrong;
  return {.dynamic = dynamic, .value = value};
}

OptLevel parse_opt_level(std::string_view text, std::string_view what) {
  for (int level = 0; level < 4; ++level) {
    if (text == kLevels[level]) return static_cast<OptLevel>(level);
  }
  throw UsageError(
      str(what, " '", text, "' is not one of ", join(kLevels, ", "), " (the letter O and a digit)"));
}

std::vector<std::string> opt_level_names() { return {std::begin(kLevels), std::end(kLevels)}; }

PrecisionSettings resolve(const PrecisionOptions& options) {
  if (!is_half_width(options.dtype)) {
    throw UsageError(str("mixed precision needs float16 or bfloat16, not ", c10::toString(options.dtype),
                         "; for float32 use opt level O0"));
  }
  if (options.level == OptLevel::O1) reject_weight_options(options);
  if (options.patch_functions == true && options.level != OptLevel::O1) {
    throw UsageError(
        str("patch_functions belongs to opt level O1; ", name_of(options.level), " casts the model instead"));
  }
  const bool casts = options.level == OptLevel::O2 || options.level == OptLevel::O3;
  PrecisionSettings settings;
  settings.dtype = options.dtype;
  settings.cast_model_type = options.cast_model_type;
  if (casts && !options.cast_model_type) settings.cast_model_type = options.dtype;
  settings.patch_functions = options.patch_functions.value_or(options.level == OptLevel::O1);
  settings.keep_batchnorm_fp32 = options.keep_batchnorm_fp32.value_or(options.level == OptLevel::O2);
  settings.master_weights = options.master_weights.value_or(options.level == OptLevel::O2);
  // bfloat16 has float32's exponent range: its gradients do not underflow as float16's do.
  const bool needs_range = options.dtype == at::kHalf;
  const bool dynamic = options.level == OptLevel::O1 || options.level == OptLevel::O2;
  settings.loss_scale = options.loss_scale.value_or(LossScale{.dynamic = dynamic && needs_range});

  const bool half_model = settings.cast_model_type && is_half_width(*settings.cast_model_type);
  if (settings.master_weights && !half_model) {
    throw UsageError(str("master_weights need a model in float16 or bfloat16; opt level ",
                         name_of(options.level), " leaves it in float32. Use O2 or O3"));
  }
  if (settings.cast_model_type == at::kHalf && !settings.master_weights && settings.loss_scale.scales()) {
    throw UsageError(
        "a loss scale with a float16 model needs master_weights: float16 gradients cannot be unscaled "
        "without "
        "losing what the scale was for. Use opt level O2, or a loss scale of 1");
  }
  return settings;
}

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
