#include "rondo/backend/hierarchical/two_stage_executor.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/replica.h"
#include "rondo/base/text.h"

namespace rondo::hierarchical {

struct TwoStageExecutor::Entry {
  Job job;
  OperationHeader own;
  std::vector<OperationHeader> theirs;  // by the transports' peers, as are the receives
  std::vector<OuterLink::Transfer> sends;
  std::vector<OuterLink::Transfer> receives;
};

namespace {

std::string describe(const OperationHeader& header) {
  CollectiveRequest request;
  request.kind = header.kind;
  request.type = header.type;
  request.reduction = header.reduction;
  request.root = header.root;
  request.elements = header.elements;
  return str(rondo::describe(request), header.compressed != 0 ? " compressed" : "");
}

std::string describe_call(const OperationHeader& header) {
  return rondo::describe_call(static_cast<CollectiveCall>(header.call), describe(header));
}

}  // namespace

TwoStageExecutor::TwoStageExecutor(std::unique_ptr<Transports> transports, int window, OnFailure on_failure)
    : transports_(std::move(transports)), window_(window), on_failure_(std::move(on_failure)) {}

std::shared_ptr<TwoStageExecutor> TwoStageExecutor::start(std::unique_ptr<Transports> transports, int window,
                                                          OnFailure on_failure) {
  std::shared_ptr<TwoStageExecutor> made(
      new TwoStageExecutor(std::move(transports), window, std::move(on_failure)));
  made->first_ = replica_thread([made] { made->loop(&TwoStageExecutor::run_first); });
  made->second_ = replica_thread([made] { made->loop(&TwoStageExecutor::run_second); });
  return made;
}

void TwoStageExecutor::drain(Duration patience) {
  std::unique_lock lock(mutex_);
  const auto own = std::this_thread::get_id();
  if (own == first_.get_id() || own == second_.get_id()) return;
  if (changed_.wait_for(lock, patience, [this] { return unfinished_.empty() && !finishing_; })) return;
  lock.unlock();
  abort(str("the group was closed, and operations were still in flight after ", to_string(patience)));
}

void TwoStageExecutor::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  // Do not wait for operations in flight: other ranks may never join them.
  if (std::unique_lock lock(mutex_); !unfinished_.empty()) {
    lock.unlock();
    abort("the communicator was destroyed while operations were in flight");
  }
  for (std::thread* thread : {&first_, &second_}) {
    if (thread->get_id() == std::this_thread::get_id()) {
      thread->detach();  // it ends when done() returns
    } else {
      thread->join();
    }
  }
  transports_.reset();
}

void TwoStageExecutor::submit(Job job) {
  auto entry = std::make_shared<Entry>();
  entry->job = std::move(job);
  std::exception_ptr broken;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    entry->own = entry->job.header;
    entry->own.sequence = submitted_++;
    unfinished_.push_back(entry);
    try {
      // Sends headers immediately, in the order of submission, so that they complete their round trip while
      // the data of earlier jobs is in flight and the link does not idle between jobs.
      exchange_headers(*entry);
      waiting_.push_back(entry);
    } catch (...) {
      broken = std::current_exception();
    }
  }
  if (broken) fail(broken, entry.get());
  changed_.notify_all();
}

std::uint64_t TwoStageExecutor::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

void TwoStageExecutor::abort(const std::string& reason) {
  fail(std::make_exception_ptr(CancelledError(reason)), nullptr);
}

void TwoStageExecutor::loop(void (TwoStageExecutor::*steps)()) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_ || (stopping_ && unfinished_.empty())) return;
    }
    (this->*steps)();
  }
}

void TwoStageExecutor::run_first() {
  std::shared_ptr<Entry> entry;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !waiting_.empty() || failure_ || stopping_; });
    if (failure_ || waiting_.empty()) return;
    entry = waiting_.front();
    waiting_.pop_front();
  }
  try {
    check_headers(*entry);
    for (std::size_t chunk = 0; chunk < entry->job.operation->chunks(); ++chunk) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return under_way_ < window_ || failure_; });
        if (failure_) return;
        ++under_way_;
      }
      entry->job.operation->first(chunk, *transports_, entry->job.deadline);
      const std::lock_guard lock(mutex_);
      gathered_.push_back({entry, chunk});
      changed_.notify_all();
    }
  } catch (...) {
    fail(std::current_exception(), entry.get());
  }
}

void TwoStageExecutor::run_second() {
  Position position;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !gathered_.empty() || failure_ || (stopping_ && unfinished_.empty()); });
    if (failure_ || gathered_.empty()) return;
    position = gathered_.front();
    gathered_.pop_front();
  }
  Entry& entry = *position.entry;
  try {
    entry.job.operation->second(position.chunk, *transports_, entry.job.deadline);
  } catch (...) {
    fail(std::current_exception(), &entry);
    return;
  }
  const bool last = position.chunk + 1 == entry.job.operation->chunks();
  {
    const std::lock_guard lock(mutex_);
    --under_way_;
    if (failure_) return;  // fail() also reports the failure to this job
    if (last) unfinished_.pop_front();
    finishing_ = last;
  }
  changed_.notify_all();
  if (!last) return;
  entry.job.done(nullptr);
  {
    const std::lock_guard lock(mutex_);
    finishing_ = false;
  }
  changed_.notify_all();
}

// Ranks that communicate compare headers before any of them sends data: Gloo ends a process that receives
// more bytes than it expects, and treats fewer bytes as the whole message.
void TwoStageExecutor::exchange_headers(Entry& entry) {
  const std::vector<int>& peers = transports_->peers;
  entry.theirs.resize(peers.size());
  for (std::size_t i = 0; i < peers.size(); ++i) {
    entry.receives.push_back(transports_->between_hosts->receive(peers[i], OuterLink::Lane::header,
                                                                 &entry.theirs[i], sizeof entry.theirs[i]));
    entry.sends.push_back(
        transports_->between_hosts->send(peers[i], OuterLink::Lane::header, &entry.own, sizeof entry.own));
  }
}

void TwoStageExecutor::check_headers(Entry& entry) {
  OuterLink& link = *transports_->between_hosts;
  for (std::size_t i = 0; i < entry.receives.size(); ++i) {
    const int peer = transports_->peers[i];
    link.wait(entry.receives[i], entry.job.deadline);
    const OperationHeader& theirs = entry.theirs[i];
    if (agree(theirs, entry.own)) continue;
    throw MismatchError(
        str("ranks disagree: ", link.name(transports_->map.rank()), " ", describe_call(entry.own), ", but ",
            link.name(peer), " ", describe_call(theirs),
            ". All ranks must make the same calls in the same order with the same shapes and dtypes."),
        {peer});
  }
  for (OuterLink::Transfer& send : entry.sends) link.wait(send, entry.job.deadline);
}

void TwoStageExecutor::fail(std::exception_ptr error, const Entry* entry) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;  // this error is a consequence of the recorded failure
    failure_ = error;
  }
  error = on_failure_(error);
  std::string reason;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError& e) {
    reason = e.what();
    if (entry != nullptr) {
      const std::string prefix =
          str(describe(entry->own), in_call(static_cast<CollectiveCall>(entry->own.call)), ", sequence ",
              entry->own.sequence, ", on ", transports_->between_hosts->name(transports_->map.rank()),
              " cannot complete: ");
      // Keeps the type of the error: callers distinguish a lost peer from a timeout.
      if (dynamic_cast<const PeerLostError*>(&e) != nullptr) {
        error = std::make_exception_ptr(PeerLostError(prefix + reason, e.ranks()));
      } else if (dynamic_cast<const TimeoutError*>(&e) != nullptr) {
        error = std::make_exception_ptr(TimeoutError(prefix + reason, e.ranks()));
      } else if (dynamic_cast<const MismatchError*>(&e) == nullptr) {
        error = std::make_exception_ptr(CommunicationError(prefix + reason, e.ranks()));
      }
    }
  } catch (const std::exception& e) {
    reason = e.what();
  }
  std::deque<std::shared_ptr<Entry>> unfinished;
  {
    const std::lock_guard lock(mutex_);
    failure_ = error;
    waiting_.clear();
    gathered_.clear();
    unfinished.swap(unfinished_);
  }
  if (transports_->intra_host_reduce) transports_->intra_host_reduce->abort(reason);
  if (transports_->intra_host_broadcast) transports_->intra_host_broadcast->abort(reason);
  transports_->between_hosts->abort();
  changed_.notify_all();
  for (const auto& job : unfinished) job->job.done(error);
}

}  // namespace rondo::hierarchical
