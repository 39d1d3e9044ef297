#include "rondo/observe/unit_spans.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "rondo/base/time.h"
#include "rondo/nn/activation_checkpoint.h"

namespace rondo {

const char* UnitSpans::forward_pass() { return recomputing() ? "recompute" : "forward"; }

void UnitSpans::begin(UnitState& unit, const char* pass) { open_.push_back({&unit, pass, monotonic_ns()}); }

void UnitSpans::end(UnitState& unit, const char* pass) {
  const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) {
    return open.unit == &unit && std::strcmp(open.pass, pass) == 0;
  });
  if (found == open_.rend()) return;
  TraceSpan event;
  event.name = pass;
  event.unit = unit.name();
  event.begin_ns = found->begin_ns;
  event.end_ns = monotonic_ns();
  ended_.push_back(std::move(event));
  open_.erase(std::next(found).base());
}

std::vector<TraceSpan> UnitSpans::take() {
  open_.clear();  // what an exception has left
  return std::exchange(ended_, {});
}

}  // namespace rondo
