#pragma once

#include <c10/core/ScalarType.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace rondo {

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
