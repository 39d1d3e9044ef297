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
// Number of chunks at the beginning that are measured with each kind of store. The first ones use buffers
// that were never written; their weight must fade before the kinds are compared.
constexpr std::uint64_t kFirstChunks = 16;

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

bool StagingStores::Way::measured() const { return chunks == kFirstChunks; }

double StagingStores::Way::total() const { return std::accumulate(phases.begin(), phases.end(), 0.0); }

std::optional<bool> StagingStores::measured_way(std::uint64_t ticket, const Times& times) {
  const std::uint64_t group = ticket / (2 * kStagingChunks);
  const std::uint64_t hash = (group * 0x9E3779B97F4A7C15ULL) >> 57;
  if (hash <= 1) return hash == 1;
  if (!times.cached.measured()) return false;
  if (!times.streamed.measured()) return true;
  return std::nullopt;
}

bool StagingStores::streams(std::uint64_t ticket, std::uint64_t chunks) const {
  const Times& times = chunks == 1 ? single_ : several_;
  return measured_way(ticket, times).value_or(times.streamed.total() < times.cached.total());
}

bool StagingStores::measures(std::uint64_t ticket, std::uint64_t chunks) const {
  return measured_way(ticket, chunks == 1 ? single_ : several_).has_value();
}

void StagingStores::add(StagingPhase phase, std::uint64_t ticket, std::uint64_t chunks, std::size_t bytes,
                        Duration time) {
  Times& times = chunks == 1 ? single_ : several_;
  const std::optional<bool> streamed = measured_way(ticket, times);
  // A group writes each staging buffer twice. At the first write, the buffer is in the cache state that the
  // other kind of store has left.
  if (!streamed || bytes < kLeastBytes || ticket / kStagingChunks % 2 == 0) return;
  Way& way = *streamed ? times.streamed : times.cached;
  const auto lines = static_cast<double>(bytes) / kCacheLine;
  average(way.phases[static_cast<std::size_t>(phase)],
          static_cast<double>(std::chrono::nanoseconds(time).count()) / lines);
  if (phase == StagingPhase::fetch && !way.measured()) ++way.chunks;
}

}  // namespace rondo::shared_memory
