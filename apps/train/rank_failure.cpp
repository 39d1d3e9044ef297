#include "apps/train/rank_failure.h"

#include <exception>

#include "apps/train/stop_signals.h"
#include "rondo/backend/collectives.h"
#include "rondo/base/job_error.h"
#include "rondo/launch/failure.h"

namespace rondo {

int record_failures(const std::function<int()>& body) {
  try {
    return body();
  } catch (const JobError& error) {
    let_error_end_process();
    if (error.mine_to_report()) launch::record_failure(error);
    throw;
  } catch (const std::exception& error) {
    let_error_end_process();
    launch::record_failure(error);
    throw;
  }
}

// A launcher sends TERM to the others as soon as one rank has failed.
void stand_by_report(const Context& context) {
  let_error_end_process();
  try {
    barrier(context.world());
  } catch (const std::exception&) {
    // A rank has ended all the same; there is an error to report already.
  }
}

}  // namespace rondo
