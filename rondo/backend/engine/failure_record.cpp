#include "rondo/backend/engine/failure_record.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// The log level of libtorch, one for the process. The mutex protects both fields.
struct LogLevel {
  std::mutex mutex;
  int quiet = 0;   // number of QuietLog objects
  int before = 0;  // level to restore

  static LogLevel& instance() {
    static LogLevel level;
    return level;
  }
};

}  // namespace

std::string engine_reason(const std::exception& error) {
  const std::string text = plain_message(error);
  std::string line = text.substr(0, text.find('\n'));
  // Gloo's message for a connection that another thread has closed, followed by ASCII art.
  if (line.find("GLHF!") != std::string::npos) return "the connection was closed";
  // Removes a prefix such as "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] ".
  if (const std::size_t end = line.find("] "); line.starts_with('[') && line.find(".cc:") < end)
    line.erase(0, end + 2);
  std::erase_if(line, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  line = std::string(trim(line));
  return line.empty() ? "no reason given" : line;
}

QuietLog::QuietLog() {
  LogLevel& level = LogLevel::instance();
  const std::lock_guard lock(level.mutex);
  if (level.quiet++ > 0 || std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) return;
  level.before = FLAGS_caffe2_log_level;
  FLAGS_caffe2_log_level = c10::GLOG_FATAL;
}

QuietLog::~QuietLog() {
  LogLevel& level = LogLevel::instance();
  const std::lock_guard lock(level.mutex);
  if (--level.quiet > 0 || std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) return;
  FLAGS_caffe2_log_level = level.before;
}

namespace {

c10::intrusive_ptr<c10d::Store> bounded(const c10::intrusive_ptr<c10d::Store>& store, Duration limit) {
  if (!store) return {};
  return c10::make_intrusive<BoundedStore>(
      store, BoundedStore::Options{.keeper = "the job's store", .timeout = limit});
}

}  // namespace

FailureRecord::FailureRecord(const c10::intrusive_ptr<c10d::Store>& group,
                             const c10::intrusive_ptr<c10d::Store>& job, std::vector<int> world_ranks,
                             Duration limit)
    : group_(bounded(group, limit)), job_(bounded(job, limit)), world_ranks_(std::move(world_ranks)) {}

// Writes `failure` unless the store has one already; returns the stored one.
FailureRecord::Failure FailureRecord::record(c10d::Store& store, const Failure& failure) {
  const std::string text =
      nlohmann::json{{"ranks", failure.ranks}, {"mismatch", failure.mismatch}, {"what", failure.what}}.dump();
  const std::vector<std::uint8_t> present =
      store.compareSet("failure", {}, std::vector<std::uint8_t>(text.begin(), text.end()));
  const nlohmann::json first =
      parse_json_strict(std::string(present.begin(), present.end()), "the first failure");
  return {first.at("ranks").get<std::vector<int>>(), first.at("mismatch").get<bool>(),
          first.at("what").get<std::string>()};
}

// A lost peer may be a consequence of a failure in another group. A mismatch or a timeout is always a cause.
std::exception_ptr FailureRecord::first_of_job(const std::exception_ptr& error,
                                               const CommunicationError& failure) noexcept {
  try {
    if (!job_) return error;
    Failure own{{}, dynamic_cast<const MismatchError*>(&failure) != nullptr, failure.what()};
    for (const int rank : failure.ranks()) {
      const bool known = rank >= 0 && static_cast<std::size_t>(rank) < world_ranks_.size();
      own.ranks.push_back(known ? world_ranks_[static_cast<std::size_t>(rank)] : rank);
    }
    const Failure first = record(*job_, own);
    // The error already contains the cause if other ranks of the group passed it on.
    const bool named = own.what.find(first.what) != std::string::npos;
    if (named || dynamic_cast<const PeerLostError*>(&failure) == nullptr) return error;
    std::vector<int> ranks;
    for (const int rank : first.ranks) {
      const auto member = std::find(world_ranks_.begin(), world_ranks_.end(), rank);
      if (world_ranks_.empty()) ranks.push_back(rank);
      if (member != world_ranks_.end()) ranks.push_back(static_cast<int>(member - world_ranks_.begin()));
    }
    if (ranks.empty()) ranks = failure.ranks();
    return std::make_exception_ptr(
        PeerLostError(str(first.what, " (here as a consequence: ", own.what, ")"), std::move(ranks)));
  } catch (...) {
    return error;
  }
}

std::exception_ptr FailureRecord::first(const std::exception_ptr& error) noexcept {
  Failure own;
  try {
    std::rethrow_exception(error);
  } catch (const CommunicationError& e) {
    own = {e.ranks(), dynamic_cast<const MismatchError*>(&e) != nullptr, e.what()};
  } catch (const std::exception& e) {
    own.what = e.what();
  }
  std::exception_ptr counts = error;
  try {
    const Failure group = group_ ? record(*group_, own) : own;
    if (group.what != own.what) {
      counts = group.mismatch ? std::make_exception_ptr(MismatchError(group.what, group.ranks))
                              : std::make_exception_ptr(PeerLostError(group.what, group.ranks));
    }
  } catch (...) {
    return error;  // the store is lost
  }
  try {
    std::rethrow_exception(counts);
  } catch (const CommunicationError& e) {
    return first_of_job(counts, e);
  } catch (...) {
    return counts;
  }
}

}  // namespace rondo
