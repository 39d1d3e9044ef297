#include "rondo/train/callbacks/preemption.h"

#include <csignal>
#include <memory>
#include <optional>

#include "rondo/base/time.h"

namespace rondo {
namespace {

// A handler has no other way to tell.
volatile std::sig_atomic_t preemption_announced = 0;

void announce_preemption(int) { preemption_announced = 1; }

constexpr Duration kNoticeInterval = std::chrono::seconds(1);

}  // namespace

std::function<bool()> Preemption::stop_request() {
  give_back_signals();
  preemption_announced = 0;
  for (const int signal : options_.signals)
    former_.emplace_back(signal, std::signal(signal, announce_preemption));
  // The first look is at once.
  auto looked = std::make_shared<std::optional<TimePoint>>();
  return [file = options_.notice_file, looked] {
    if (preemption_announced != 0) return true;
    if (file.empty()) return false;
    const TimePoint now = Clock::now();
    if (*looked && now - **looked < kNoticeInterval) return false;
    *looked = now;
    std::error_code ignored;
    return std::filesystem::exists(file, ignored);
  };
}

void Preemption::give_back_signals() noexcept {
  for (const auto& [signal, handler] : former_) std::signal(signal, handler);
  former_.clear();
}

}  // namespace rondo
