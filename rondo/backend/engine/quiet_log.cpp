#include "rondo/backend/engine/quiet_log.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <mutex>

namespace rondo {
namespace {

// libtorch has one level for the process. The mutex protects both.
struct LogLevel {
  std::mutex mutex;
  int quiet = 0;   // objects that live
  int before = 0;  // the level without them

  static LogLevel& instance() {
    static LogLevel level;
    return level;
  }
};

}  // namespace

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

}  // namespace rondo
