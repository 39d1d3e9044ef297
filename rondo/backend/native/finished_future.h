#pragma once

#include <ATen/core/ivalue.h>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace rondo {

// A future of what a work gives, for works that nothing runs in the background: waits for the work first, so
// that the future is complete.
c10::intrusive_ptr<c10::ivalue::Future> finished_future(c10d::Work& work);

}  // namespace rondo
