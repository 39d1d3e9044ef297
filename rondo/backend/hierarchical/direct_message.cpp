#include "rondo/backend/hierarchical/direct_message.h"

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
            split(reason, '\n').front(), ")"),
        blamed()));
    std::rethrow_exception(record.first(error));
  }
};

class DirectMessage final : public c10d::Work {
 public:
  DirectMessage(c10::intrusive_ptr<c10d::Work> work, Named named, std::chrono::milliseconds timeout)
      : work_(std::move(work)), named_(std::move(named)), timeout_(timeout) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return work_->isSuccess(); }
  std::exception_ptr exception() const override { return work_->exception(); }
  int sourceRank() const override { return work_->sourceRank(); }
  std::vector<at::Tensor> result() override { return work_->result(); }
  void abort() override { work_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return work_->getFuture(); }

  bool wait(std::chrono::milliseconds timeout) override {
    const bool unset = timeout <= std::chrono::milliseconds::zero();
    const std::chrono::milliseconds limit = unset ? timeout_ : timeout;
    const Deadline deadline = Deadline::after(limit);
    try {
      if (work_->wait(limit)) return true;
    } catch (const std::exception& e) {
      if (!deadline.passed()) named_.lost(e.what());
      throw TimeoutError(str(named_.what, " did not complete in time"), named_.blamed());
    }
    throw CancelledError(str(named_.what, " was aborted"));
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  Named named_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

c10::intrusive_ptr<c10d::Work> direct_message(const StartMessage& start, std::string what, int peer,
                                              std::chrono::milliseconds timeout, FailureRecord record) {
  Named named{std::move(what), peer, std::move(record)};
  try {
    return c10::make_intrusive<DirectMessage>(start(), named, timeout);
  } catch (const CancelledError&) {
    throw;  // this rank has given up before
  } catch (const std::exception& e) {
    named.lost(e.what());
  }
}

}  // namespace rondo::hierarchical
