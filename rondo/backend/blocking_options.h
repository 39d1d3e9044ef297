#pragma once

namespace rondo {

// The options of a c10d call that is followed by its wait, as c10d's own calls are without async_op: an
// engine may then do the work in the caller's thread. `Options` is one of c10d's: AllreduceOptions,
// BroadcastOptions, ReduceOptions, AllgatherOptions, ReduceScatterOptions. Any thread.
template <class Options>
Options blocking_options() {
  Options options;
  options.asyncOp = false;
  return options;
}

}  // namespace rondo
