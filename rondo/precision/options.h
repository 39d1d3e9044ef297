#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rondo {

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

}  // namespace rondo
