#include "rondo/precision/autocast.h"

#include <ATen/autocast_mode.h>
#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/precision/dtype.h"

namespace rondo {

Autocast::Autocast(c10::DeviceType device, at::ScalarType dtype, bool enabled)
    : device_(device),
      was_enabled_(at::autocast::is_autocast_enabled(device)),
      former_dtype_(at::autocast::get_autocast_dtype(device)) {
  if (enabled && !is_half_width(dtype)) {
    throw UsageError(str("autocast computes in float16 or bfloat16, not in ", c10::toString(dtype)));
  }
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  // Casts of weights are cached for the outermost scope: the next step has other weights.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, former_dtype_);
}

}  // namespace rondo
