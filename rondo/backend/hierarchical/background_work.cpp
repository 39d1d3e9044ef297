#include "rondo/backend/hierarchical/background_work.h"

#include <ATen/core/jit_type.h>

namespace rondo::hierarchical {

BackgroundWork::BackgroundWork(int rank, c10d::OpType type, std::vector<at::Tensor> results,
                               std::function<void()> conclude)
    : c10d::Work(rank, type),
      results_(std::move(results)),
      conclude_(std::move(conclude)),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

void BackgroundWork::complete(std::exception_ptr error) {
  if (!error && conclude_) {
    try {
      conclude_();
    } catch (...) {
      error = std::current_exception();
    }
  }
  conclude_ = nullptr;
  finish(error);
  // Not under the lock of the work: callbacks may start the next collective.
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(c10::IValue(results_));
  }
}

}  // namespace rondo::hierarchical
