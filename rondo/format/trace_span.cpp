#include "rondo/format/trace_span.h"

namespace rondo {

std::string_view to_string(Lane lane) { return lane == Lane::compute ? "compute" : "communication"; }

}  // namespace rondo
