#include "rondo/models/config_checks.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void check_positive(std::string_view model, std::string_view entry, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    throw UsageError(str(model, ": ", entry, " is ", value, ", expected 1 to ", most));
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
