#pragma once

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// "float16", "bfloat16", "float32" or "float64" as libtorch's type. Throws UsageError naming `what` and the
// text for anything else.
at::ScalarType parse_float_dtype(std::string_view text, std::string_view what);

// The inverse. `dtype` is one of the four.
std::string float_dtype_name(at::ScalarType dtype);

// Narrower than float32, that is float16 or bfloat16.
bool is_half_width(at::ScalarType dtype);

// What the loss is multiplied with before the backward pass: a number, or a GradScaler's moving scale.
struct LossScale {
  bool dynamic = false;  // a GradScaler moves it
  double value = 1.0;    // with `dynamic` what it begins with, 1 is the scaler's own

  bool scales() const { return dynamic || value != 1.0; }  // whether the loss is multiplied at all
  // Whether both are the same.
  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// "dynamic", "dynamic:START" or a number above 0; throws UsageError naming `what`.
LossScale parse_loss_scale(std::string_view text, std::string_view what);

// Apex' opt levels. O0: the model as it is. O1: autocast. O2: the model in `dtype`, batch norms in float32,
// float32 master weights. O3: everything in `dtype`.
enum class OptLevel { O0, O1, O2, O3 };

// "O0" to "O3"; throws UsageError naming `what`.
OptLevel parse_opt_level(std::string_view text, std::string_view what);
std::vector<std::string> opt_level_names();  // "O0" to "O3".

// A level and the knobs that differ from it; an empty knob is the level's own, see docs/precision.md.
struct PrecisionOptions {
  OptLevel level = OptLevel::O0;                    // what the empty knobs are taken from
  at::ScalarType dtype = at::ScalarType::BFloat16;  // float16 or bfloat16
  std::optional<at::ScalarType> cast_model_type{};  // what parameters, buffers and inputs become
  std::optional<bool> patch_functions{};            // autocast
  std::optional<bool> keep_batchnorm_fp32{};  // with cast_model_type: batch normalisation stays in float32
  std::optional<bool> master_weights{};       // the optimizer changes float32 weights
  std::optional<LossScale> loss_scale{};      // 1 is none
};

// All knobs with their values.
struct PrecisionSettings {
  at::ScalarType dtype = at::ScalarType::BFloat16;  // of autocast
  std::optional<at::ScalarType> cast_model_type{};  // empty: the model stays as it is
  bool patch_functions = false;                     // autocast
  bool keep_batchnorm_fp32 = false;                 // batch normalisation stays in float32
  bool master_weights = false;                      // the optimizer changes float32 weights
  LossScale loss_scale{};                           // 1 is none
};

// Fills in what the level says. Throws UsageError for knobs that contradict it or each other.
PrecisionSettings resolve(const PrecisionOptions& options);

// In which dtypes a sharded unit works, with the fields and defaults of FSDP2's MixedPrecisionPolicy and one
// more. Sharded parameters and the optimizer stay in the dtype the model was made in.
struct MixedPrecisionPolicy {
  std::optional<at::ScalarType> param_dtype{};   // gathered parameters and computation; empty: the model's
  std::optional<at::ScalarType> reduce_dtype{};  // gradients on their way; empty: param_dtype
  std::optional<at::ScalarType> output_dtype{};  // floating outputs of the model; empty: as they come
  bool cast_forward_inputs = true;               // floating inputs of forward become param_dtype
  bool keep_batchnorm_fp32 = false;              // not FSDP2's: parameters of batch norms stay as they are

  // Whether all dtypes are the same.
  friend bool operator==(const MixedPrecisionPolicy&, const MixedPrecisionPolicy&) = default;
};

// "param=bfloat16,reduce=float32,output=float32,cast_forward_inputs=false,keep_batchnorm_fp32=true", each
// part optional, also with FSDP2's names (param_dtype=...); "" is the default, and a dtype alone ("bfloat16")
// is param's. Throws UsageError naming the part.
MixedPrecisionPolicy parse_mixed_precision_policy(std::string_view text);
// What parse_mixed_precision_policy() reads; "" for the default.
std::string to_text(const MixedPrecisionPolicy& policy);

// {"param_dtype": "bfloat16", "reduce_dtype": null, "output_dtype": null, "cast_forward_inputs": true,
// "keep_batchnorm_fp32": false}.
nlohmann::json to_json(const MixedPrecisionPolicy& policy);
// And back: absent keys are null or the default. Throws UsageError naming an unknown key, or a value that its
// key does not take.
MixedPrecisionPolicy mixed_precision_policy_from_json(const nlohmann::json& json);

}  // namespace rondo
