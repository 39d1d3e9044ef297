#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace rondo {

using Clock = std::chrono::steady_clock;  // what durations are measured with; it never goes back
using Duration = Clock::duration;         // a length of time, in nanoseconds
using TimePoint = Clock::time_point;      // a moment of Clock

// The longest that anything is waited for. What is said to be longer, or for ever, counts as this: a moment
// of Clock that is later by it is still one.
inline constexpr Duration kLongestDuration = std::chrono::hours(24 * 365 * 100);

// `length`, which a Duration may be too short for; kLongestDuration at most.
template <class Rep, class Period>
constexpr Duration bounded_duration(std::chrono::duration<Rep, Period> length) {
  using Given = std::chrono::duration<Rep, Period>;
  if (length > std::chrono::duration_cast<Given>(kLongestDuration)) return kLongestDuration;
  return std::chrono::duration_cast<Duration>(length);
}

// A point in time after which a wait gives up. Passed by value through every call that may block, so that
// nested waits share one budget.
class Deadline {
 public:
  // `duration` from now, or kLongestDuration. Not never(), in whose place some waits put a deadline of
  // theirs.
  static Deadline after(Duration duration) { return Deadline(Clock::now() + bounded_duration(duration)); }
  // The same of a duration in any unit.
  template <class Rep, class Period>
  static Deadline after(std::chrono::duration<Rep, Period> duration) {
    return after(bounded_duration(duration));
  }
  static Deadline never() { return Deadline(TimePoint::max()); }  // does not pass

  bool passed() const { return at_ != TimePoint::max() && Clock::now() >= at_; }  // whether waiting is over
  bool is_never() const { return at_ == TimePoint::max(); }                       // whether this is never()
  TimePoint at() const { return at_; }  // the point in time; TimePoint::max() for never()
  // The same moved by `duration`; never() stays, and is what takes the place of what is too late for Clock.
  Deadline later_by(Duration duration) const {
    return is_never() || duration > TimePoint::max() - at_ ? never() : Deadline(at_ + duration);
  }
  // Zero once passed.
  Duration remaining() const {
    if (is_never()) return Duration::max();
    const TimePoint now = Clock::now();
    return now >= at_ ? Duration::zero() : at_ - now;
  }

 private:
  explicit Deadline(TimePoint at) : at_(at) {}
  TimePoint at_;
};

// In seconds.
inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
inline double milliseconds(Duration duration) { return seconds(duration) * 1e3; }  // in milliseconds
// Of a number of nanoseconds, as traces keep it.
inline double ns_to_milliseconds(long long ns) { return static_cast<double>(ns) * 1e-6; }

// Reads "1.5s", "200ms", "10us", "2min", "1h" or a plain number of seconds. Throws UsageError that names
// `what`.
Duration parse_duration(std::string_view text, std::string_view what);

// "1.5 s", "200 ms", "12 us".
std::string to_string(Duration duration);

// Nanoseconds of the monotonic clock, the same for all processes of one host: trace files of ranks line up.
long long monotonic_ns();

}  // namespace rondo
