#include "rondo/backend/engine/engine_reason.h"

#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "rondo/base/printable.h"
#include "rondo/base/text.h"

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

std::string engine_reason(const std::exception& error) {
  const std::string text = plain_message(error);
  std::string line = text.substr(0, text.find('\n'));
  // Gloo's word for a connection that another thread has closed, with a picture behind it.
  if (line.find("GLHF!") != std::string::npos) return "the connection was closed";
  // "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] " and the message becomes the message.
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

}  // namespace rondo
