#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace rondo {

using Clock = std::chrono::steady_clock;  // monotonic clock for all durations
using Duration = Clock::duration;         // a length of time, in nanoseconds
using TimePoint = Clock::time_point;      // a moment of Clock

// Longest duration of a wait, 100 years. Longer and infinite durations are clamped to it, so that adding it
// to the current time does not overflow Clock.
inline constexpr Duration kLongestDuration = std::chrono::hours(24 * 365 * 100);

// Converts `length` to a Duration, clamped to kLongestDuration.
template <class Rep, class Period>
constexpr Duration bounded_duration(std::chrono::duration<Rep, Period> length) {
  using Given = std::chrono::duration<Rep, Period>;
  if (length > std::chrono::duration_cast<Given>(kLongestDuration)) return kLongestDuration;
  return std::chrono::duration_cast<Duration>(length);
}

// A point in time after which a wait gives up. Passed by value through every blocking call, so that nested
// waits share one budget.
class Deadline {
 public:
  // Returns the deadline `duration` from now, at most kLongestDuration. Never equals never(), which some
  // waits replace by their own deadline.
  static Deadline after(Duration duration) { return Deadline(Clock::now() + bounded_duration(duration)); }
  // Accepts a duration in any unit.
  template <class Rep, class Period>
  static Deadline after(std::chrono::duration<Rep, Period> duration) {
    return after(bounded_duration(duration));
  }
  static Deadline never() { return Deadline(TimePoint::max()); }  // never passes

  // whether the deadline has passed
  bool passed() const { return at_ != TimePoint::max() && Clock::now() >= at_; }
  bool is_never() const { return at_ == TimePoint::max(); }  // whether this is never()
  TimePoint at() const { return at_; }  // the point in time; TimePoint::max() for never()
  // Returns the deadline moved by `duration`. Returns never() for never() or if the result does not fit
  // Clock.
  Deadline later_by(Duration duration) const {
    return is_never() || duration > TimePoint::max() - at_ ? never() : Deadline(at_ + duration);
  }
  // Returns the remaining time; zero after the deadline, Duration::max() for never().
  Duration remaining() const {
    if (is_never()) return Duration::max();
    const TimePoint now = Clock::now();
    return now >= at_ ? Duration::zero() : at_ - now;
  }

 private:
  explicit Deadline(TimePoint at) : at_(at) {}
  TimePoint at_;
};

// Converts to seconds.
inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
inline double milliseconds(Duration duration) { return seconds(duration) * 1e3; }  // converts to milliseconds
// Converts nanoseconds, the unit of traces, to milliseconds.
inline double ns_to_milliseconds(long long ns) { return static_cast<double>(ns) * 1e-6; }

// Parses "1.5s", "200ms", "10us", "2min", "1h" or a plain number of seconds. Throws UsageError that names
// `what`.
Duration parse_duration(std::string_view text, std::string_view what);

// Returns text such as "1.5 s", "200 ms", "12 us".
std::string to_string(Duration duration);

// Returns nanoseconds of the monotonic clock. All processes of a host share it, so trace files of ranks
// align.
long long monotonic_ns();

}  // namespace rondo
