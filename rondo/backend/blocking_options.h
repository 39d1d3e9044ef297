#pragma once

namespace rondo {

// Returns options for a c10d call whose wait follows at once: asyncOp is false, as in c10d's own calls
// without async_op. An engine may then run the operation in the caller's thread. `Options` is
// AllreduceOptions, BroadcastOptions, ReduceOptions, AllgatherOptions or ReduceScatterOptions of c10d. Any
// thread.
template <class Options>
Options blocking_options() {
  Options options;
  options.asyncOp = false;
  return options;
}

}  // namespace rondo
