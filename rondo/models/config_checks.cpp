#include "rondo/models/config_checks.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void check_positive(std::string_view model, std::string_view entry, std::int64_t value) {
  if (value < 1) throw UsageError(str(model, ": ", entry, " is ", value, ", expected at least 1"));
}

void check_probability(std::string_view model, std::string_view entry, double value) {
  if (!(value >= 0.0 && value < 1.0)) {
    throw UsageError(str(model, ": ", entry, " is ", value, ", expected 0 <= ", entry, " < 1"));
  }
}

void check_heads(std::string_view model, std::int64_t width, std::int64_t heads) {
  if (width % heads != 0)
    throw UsageError(str(model, ": width ", width, " is not a multiple of heads ", heads));
}

}  // namespace rondo
