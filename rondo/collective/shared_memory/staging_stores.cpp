#include "rondo/collective/shared_memory/staging_stores.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rondo/collective/shared_memory/layout.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rondo::shared_memory {
namespace {

// Chunks with fewer bytes are not measured: reading the clock would dominate.
constexpr std::size_t kLeastBytes = 4096;
// Weight of a measurement, and factor by which one may exceed the average: a copy during which the rank lost
// its processor counts little.
constexpr double kWeight = 0.25;
constexpr double kLargestFactor = 3;

void average(double& average, double measured) {
  if (average == 0) {
    average = measured;
  } else {
    average += kWeight * (std::min(measured, kLargestFactor * average) - average);
  }
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__x86_64__)
  const std::size_t whole = bytes / 64 * 64;
  for (std::size_t at = 0; at < whole; at += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + whole, from + whole, bytes - whole);
#else
  std::memcpy(to, from, bytes);
#endif
}

void fence_streamed() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

bool StagingStores::Times::prefers_streaming() const {
  // Each way is tried first.
  const auto measured = [](const PhaseTimes& times) {
    return std::all_of(times.begin(), times.end(), [](double time) { return time > 0; });
  };
  if (!measured(cached) || !measured(streamed)) return measured(cached);
  const auto sum = [](const PhaseTimes& times) { return std::accumulate(times.begin(), times.end(), 0.0); };
  return sum(streamed) < sum(cached);
}

bool StagingStores::probes(std::uint64_t ticket) {
  return ((ticket / (2 * kStagingChunks)) * 0x9E3779B97F4A7C15ULL) >> 57 == 0;
}

bool StagingStores::streams(std::uint64_t ticket, std::uint64_t chunks) const {
  return (chunks == 1 ? single_ : several_).prefers_streaming() != probes(ticket);
}

void StagingStores::add(StagingPhase phase, std::uint64_t ticket, std::uint64_t chunks, std::size_t bytes,
                        Duration time) {
  // In a probe each staging buffer is written twice, and the first time finds it as the other way has left
  // it.
  if (bytes < kLeastBytes || (probes(ticket) && ticket / kStagingChunks % 2 == 0)) return;
  const auto lines = static_cast<double>(bytes) / kCacheLine;
  const double measured = static_cast<double>(std::chrono::nanoseconds(time).count()) / lines;
  Times& times = chunks == 1 ? single_ : several_;
  PhaseTimes& phases = streams(ticket, chunks) ? times.streamed : times.cached;
  average(phases[static_cast<std::size_t>(phase)], measured);
}

}  // namespace rondo::shared_memory
