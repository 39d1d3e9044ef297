#pragma once

#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

// Errors of the monitored barrier, in the words of Gloo's, for all engines.
namespace rondo {

// Returns the error of rank 0 if the timeout is zero.
inline TimeoutError no_time_for_monitored_barrier(const std::string& group) {
  return {str("[Rank 0]: Rank 0 timed out in monitoredBarrier of group '", group,
              "' before it looked for others: no time was given"),
          {0}};
}

// Returns the error of rank 0 that names the ranks which did not arrive.
inline TimeoutError missing_in_monitored_barrier(const std::string& group, const std::vector<int>& missing,
                                                 Duration timeout) {
  return {str("[Rank 0]: Rank", missing.size() > 1 ? "s " : " ", join(missing, ", "),
              " failed to pass monitoredBarrier of group '", group, "' in ", to_string(timeout)),
          missing};
}

// Returns the error of another rank. `told`: rank 0 has reported that a rank is missing; otherwise rank 0 has
// not answered.
inline TimeoutError not_passed_monitored_barrier(const std::string& group, int rank, bool told,
                                                 Duration timeout) {
  return {str("[Rank ", rank, "]: Rank ", rank,
              " successfully reached monitoredBarrier, but received errors while waiting for "
              "send/recv from rank 0 of group '",
              group, "': ",
              told ? "another rank is missing, and rank 0 names it"
                   : str("rank 0 did not come in ", to_string(timeout))),
          told ? std::vector<int>{} : std::vector<int>{0}};
}

}  // namespace rondo
