#include "rondo/backend/hierarchical/direct_message.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "rondo/backend/engine/engine_reason.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo::hierarchical {
namespace {

struct Named {
  std::string what;
  int peer;
  FailureRecord record;

  std::vector<int> blamed() const { return peer < 0 ? std::vector<int>{} : std::vector<int>{peer}; }

  [[noreturn]] void lost(const std::string& reason) {
    const auto error = std::make_exception_ptr(PeerLostError(
        str(what,
            " cannot complete: the connection is lost, its process or its host is gone, or it gave up (",
            reason, ")"),
        blamed()));
    std::rethrow_exception(record.first(error));
  }
};

class DirectMessage final : public c10d::Work {
 public:
  DirectMessage(c10::intrusive_ptr<c10d::Work> work, DenseTensor tensor, Named named,
                std::chrono::milliseconds timeout)
      : work_(std::move(work)), tensor_(std::move(tensor)), named_(std::move(named)), timeout_(timeout) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override {
    return tensor_.copy_of.defined() ? std::vector<at::Tensor>{tensor_.copy_of} : work_->result();
  }
  void abort() override { work_->abort(); }
  void synchronize() override {
    work_->synchronize();
    copy_back();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = work_->getFuture();
    if (!tensor_.copy_of.defined()) return future;
    return future->then(
        [tensor = tensor_](c10::ivalue::Future& done) {
          done.value();  // throws the message's error
          tensor.copy_back();
          return c10::IValue(std::vector<at::Tensor>{tensor.copy_of});
        },
        future->elementType());
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const bool unset = timeout <= std::chrono::milliseconds::zero();
    const auto limit =
        unset ? timeout_ : std::chrono::ceil<std::chrono::milliseconds>(bounded_duration(timeout));
    const Deadline deadline = Deadline::after(limit);
    bool done = false;
    try {
      done = work_->wait(limit);
    } catch (const std::exception& e) {
      if (!deadline.passed()) named_.lost(engine_reason(e));
      throw TimeoutError(str(named_.what, " did not complete in time"), named_.blamed());
    }
    if (!done) throw CancelledError(str(named_.what, " was aborted"));
    copy_back();
    return true;
  }

 private:
  void copy_back() {
    std::call_once(copied_back_, [this] { tensor_.copy_back(); });
  }

  c10::intrusive_ptr<c10d::Work> work_;
  DenseTensor tensor_;
  std::once_flag copied_back_;
  Named named_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, DenseTensor tensor, std::string what,
                                              int peer, std::chrono::milliseconds timeout,
                                              FailureRecord record) {
  Named named{std::move(what), peer, std::move(record)};
  try {
    return c10::make_intrusive<DirectMessage>(start(), std::move(tensor), named, timeout);
  } catch (const CancelledError&) {
    throw;  // this rank has given up before
  } catch (const UsageError&) {
    throw;
  } catch (const c10::DistError& e) {
    named.lost(engine_reason(e));
  } catch (const c10::Error&) {
    throw;  // a wrong argument; Gloo's own errors are none of these
  } catch (const std::exception& e) {
    named.lost(engine_reason(e));
  }
}

}  // namespace rondo::hierarchical
