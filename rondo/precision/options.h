#pragma once

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// Returns the dtype named "float16", "bfloat16", "float32" or "float64". Throws UsageError naming `what` and
// the text for any other.
at::ScalarType parse_float_dtype(std::string_view text, std::string_view what);

// Returns the name of `dtype`, the inverse of parse_float_dtype(). Throws UsageError for any other dtype.
std::string float_dtype_name(at::ScalarType dtype);

// Returns whether `dtype` is float16 or bfloat16.
bool is_half_width(at::ScalarType dtype);

// A multiplier of the loss before the backward pass: a constant, or the moving scale of a GradScaler.
struct LossScale {
  bool dynamic = false;  // whether a GradScaler adjusts the scale
  double value = 1.0;    // with `dynamic` the initial scale; 1 is the scaler's default

  bool scales() const { return dynamic || value != 1.0; }  // whether the loss is scaled at all
  // Returns whether both are the same.
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// Parses "dynamic", "dynamic:START" or a number above 0. Throws UsageError naming `what`.
LossScale parse_loss_scale(std::string_view text, std::string_view what);

// Apex's opt levels. O0: the model as it is. O1: autocast. O2: the model in `dtype`, batch norms in float32,
// float32 master weights. O3: everything in `dtype`.
enum class OptLevel { O0, O1, O2, O3 };

// Parses "O0" to "O3". Throws UsageError naming `what`.
OptLevel parse_opt_level(std::string_view text, std::string_view what);
std::vector<std::string> opt_level_names();  // "O0" to "O3"

// A level and the options that override it; an empty option uses the level's value, see docs/precision.md.
struct PrecisionOptions {
  OptLevel level = OptLevel::O0;                    // source of the values of empty options
  at::ScalarType dtype = at::ScalarType::BFloat16;  // float16 or bfloat16
  std::optional<at::ScalarType> cast_model_type{};  // dtype of parameters, buffers and inputs
  std::optional<bool> patch_functions{};            // autocast
  std::optional<bool> keep_batchnorm_fp32{};        // with cast_model_type: batch norms stay in float32
  std::optional<bool> master_weights{};             // whether the optimizer updates float32 weights
  std::optional<LossScale> loss_scale{};            // 1: no scaling
};

// All options, with their resolved values.
struct PrecisionSettings {
  at::ScalarType dtype = at::ScalarType::BFloat16;  // dtype of autocast
  std::optional<at::ScalarType> cast_model_type{};  // empty: the model keeps its dtype
  bool patch_functions = false;                     // autocast
  bool keep_batchnorm_fp32 = false;                 // whether batch norms stay in float32
  bool master_weights = false;                      // whether the optimizer updates float32 weights
  LossScale loss_scale{};                           // 1: no scaling
};

// Replaces empty options by the level's values. Throws UsageError for options that contradict the level or
// each other.
PrecisionSettings resolve(const PrecisionOptions& options);

// Dtypes of a sharded unit: the fields and defaults of FSDP2's MixedPrecisionPolicy, and keep_batchnorm_fp32.
// Sharded parameters and the optimizer keep the dtype in which the model was created.
struct MixedPrecisionPolicy {
  std::optional<at::ScalarType> param_dtype{};   // gathered parameters and computation; empty: the model's
  std::optional<at::ScalarType> reduce_dtype{};  // gradients in the reduction; empty: param_dtype
  std::optional<at::ScalarType> output_dtype{};  // floating-point outputs of the model; empty: unchanged
  bool cast_forward_inputs = true;               // whether forward casts float inputs to param_dtype
  bool keep_batchnorm_fp32 = false;              // not in FSDP2: parameters of batch norms keep their dtype

  // Returns whether all fields are the same.
  friend bool operator==(const MixedPrecisionPolicy&, const MixedPrecisionPolicy&) = default;
};

// Parses "param=bfloat16,reduce=float32,output=float32,cast_forward_inputs=false,keep_batchnorm_fp32=true".
// Each part is optional, and FSDP2's names (param_dtype=...) are accepted. "" is the default; a dtype alone
// ("bfloat16") sets param. Throws UsageError naming the part.
MixedPrecisionPolicy parse_mixed_precision_policy(std::string_view text);
// Returns the text that parse_mixed_precision_policy() reads; "" for the default.
std::string to_text(const MixedPrecisionPolicy& policy);

// Returns {"param_dtype": "bfloat16", "reduce_dtype": null, "output_dtype": null, "cast_forward_inputs":
// true, "keep_batchnorm_fp32": false}.
nlohmann::json to_json(const MixedPrecisionPolicy& policy);
// Reads the form that to_json() writes; absent keys are null or the default. Throws UsageError naming an
// unknown key or an invalid value.
MixedPrecisionPolicy mixed_precision_policy_from_json(const nlohmann::json& json);

}  // namespace rondo
