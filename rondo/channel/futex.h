#pragma once

#include <atomic>
#include <cstdint>

#include "rondo/base/time.h"

namespace rondo {

// Sleeps while `word` holds `expected`, at most for `timeout`; may also return for no reason. Works between
// processes when the word lies in shared memory.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration timeout);

// Wakes everyone who sleeps on `word`.
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace rondo
