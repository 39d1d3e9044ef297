#include "rondo/precision/options.h"

#include <torch/types.h>

#include <cmath>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/precision/dtype.h"

namespace rondo {
namespace {

constexpr const char* kLevels[] = {"O0", "O1", "O2", "O3"};

const char* name_of(OptLevel level) { return kLevels[static_cast<int>(level)]; }

// With autocast the weights stay in float32, so what is said of weights cannot be meant.
void refuse_knobs_of_weights(const PrecisionOptions& options) {
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
    throw UsageError(str("mixed precision is with float16 or bfloat16, not with ",
                         c10::toString(options.dtype), "; for float32 use opt level O0"));
  }
  if (options.level == OptLevel::O1) refuse_knobs_of_weights(options);
  if (options.patch_functions == true && options.level != OptLevel::O1) {
    throw UsageError(
        str("patch_functions is what opt level O1 is; ", name_of(options.level), " casts the model instead"));
  }
  const bool casts = options.level == OptLevel::O2 || options.level == OptLevel::O3;
  PrecisionSettings settings;
  settings.dtype = options.dtype;
  settings.cast_model_type = options.cast_model_type;
  if (casts && !options.cast_model_type) settings.cast_model_type = options.dtype;
  settings.patch_functions = options.patch_functions.value_or(options.level == OptLevel::O1);
  settings.keep_batchnorm_fp32 = options.keep_batchnorm_fp32.value_or(options.level == OptLevel::O2);
  settings.master_weights = options.master_weights.value_or(options.level == OptLevel::O2);
  // bfloat16 has float32's range of exponents: its gradients do not vanish where float16's do.
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

}  // namespace rondo
