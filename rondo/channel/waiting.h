#pragma once

#include <chrono>

// What waits in shared memory have in common: they spin, then yield, then sleep on a futex.
namespace rondo {

// How long a waiter yields the processor between spinning and sleeping, and how long it then sleeps at most
// before it looks whether its peers still live.
inline constexpr auto kYieldTime = std::chrono::milliseconds(2);
inline constexpr auto kSleepTime = std::chrono::milliseconds(20);
inline constexpr auto kPeerCheckInterval = std::chrono::milliseconds(5);

// Tells the processor that this is a loop that waits.
inline void relax_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace rondo
