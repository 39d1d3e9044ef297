// The reduction loops. Included by one source file per instruction set, each compiled with its own flags, so
// everything here has internal linkage and uses no inline function of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rondo/collective/half_precision.h"
#include "rondo/collective/reduction_dispatch.h"

// Marks a loop as vectorizable: no iteration reads another one's writes.
#ifdef __clang__
#define RONDO_ITERATIONS_ARE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define RONDO_ITERATIONS_ARE_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace rondo {
namespace {

// Elements are combined in blocks that stay in the first-level cache.
constexpr std::size_t kBlock = 1024;

// A format: a storage type, its accumulator type, and the conversions of n elements between them.
template <class T>
struct Plain {
  using Storage = T;
  using Accumulator = T;
  static void load(const Storage* from, Accumulator* to, std::size_t n) {
    std::memcpy(to, from, n * sizeof(T));
  }
  static void store(const Accumulator* from, Storage* to, std::size_t n) {
    std::memcpy(to, from, n * sizeof(T));
  }
};

// Signed integers wrap around, as libtorch's do; unsigned arithmetic makes that defined.
template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<std::int8_t> {
  using type = std::uint8_t;
};
template <>
struct Wrapping<std::int16_t> {
  using type = std::uint16_t;
};
template <>
struct Wrapping<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};

// NaN wins, as in torch::minimum and torch::maximum: every comparison with it is false.
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return a < b || a != a ? a : b;
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Sum {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Product {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::type;
    // Widening first: two 16-bit factors would otherwise overflow int.
    return static_cast<T>(static_cast<W>(1U * static_cast<W>(a) * static_cast<W>(b)));
  }
};
struct ProductFloating {
  template <class T>
  static T apply(T a, T b) {
    return a * b;
  }
};
struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

template <class Format>
const typename Format::Storage* source_at(const ReductionTask& task, std::size_t source,
                                          std::size_t element) {
  return reinterpret_cast<const typename Format::Storage*>(task.sources[source]) + element;
}

template <class Format>
void store_all(const ReductionTask& task, const typename Format::Accumulator* block, std::size_t begin,
               std::size_t n) {
  for (std::size_t d = 0; d < task.destinations.size(); ++d) {
    Format::store(block, reinterpret_cast<typename Format::Storage*>(task.destinations[d]) + begin, n);
  }
}

template <class Format, class Combine>
void reduce_blocks(const ReductionTask& task, double scale) {
  using A = typename Format::Accumulator;
  alignas(64) A sum[kBlock];
  alignas(64) A next[kBlock];
  for (std::size_t begin = 0; begin < task.elements; begin += kBlock) {
    const std::size_t n = task.elements - begin < kBlock ? task.elements - begin : kBlock;
    Format::load(source_at<Format>(task, 0, begin), sum, n);
    for (std::size_t s = 1; s < task.sources.size(); ++s) {
      Format::load(source_at<Format>(task, s, begin), next, n);
      for (std::size_t i = 0; i < n; ++i) sum[i] = Combine::apply(sum[i], next[i]);
    }
    if (scale != 1.0) {
      const A factor = static_cast<A>(scale);
      for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<A>(sum[i] * factor);
    }
    store_all<Format>(task, sum, begin, n);
  }
}

template <class Format>
void weighted_average(const ReductionTask& task) {
  using A = typename Format::Accumulator;
  double total = 0;
  for (std::size_t s = 0; s < task.sources.size(); ++s) total += task.weights[s];
  alignas(64) A sum[kBlock];
  alignas(64) A next[kBlock];
  for (std::size_t begin = 0; begin < task.elements; begin += kBlock) {
    const std::size_t n = task.elements - begin < kBlock ? task.elements - begin : kBlock;
    for (std::size_t i = 0; i < n; ++i) sum[i] = 0;
    for (std::size_t s = 0; s < task.sources.size(); ++s) {
      if (task.weights[s] == 0) continue;
      const A weight = static_cast<A>(task.weights[s] / total);
      Format::load(source_at<Format>(task, s, begin), next, n);
      for (std::size_t i = 0; i < n; ++i) sum[i] += weight * next[i];
    }
    store_all<Format>(task, sum, begin, n);
  }
}

// Fast path of two ranks, which dominates training steps: both results are written in one pass.
template <class T>
void sum_two(const ReductionTask& task, double scale) {
  const T* a = reinterpret_cast<const T*>(task.sources[0]);
  const T* b = reinterpret_cast<const T*>(task.sources[1]);
  T* first = reinterpret_cast<T*>(task.destinations[0]);
  T* second = reinterpret_cast<T*>(task.destinations[task.destinations.size() - 1]);
  const T factor = static_cast<T>(scale);
  const std::size_t n = task.elements;
  // A destination may be a source, but only element by element: no iteration reads another one's writes.
  if (scale == 1.0) {
    RONDO_ITERATIONS_ARE_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) {
      const T value = a[i] + b[i];
      first[i] = value;
      second[i] = value;
    }
  } else {
    RONDO_ITERATIONS_ARE_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) {
      const T value = (a[i] + b[i]) * factor;
      first[i] = value;
      second[i] = value;
    }
  }
}

template <class Format>
void reduce_floating(const ReductionTask& task) {
  const double average = 1.0 / static_cast<double>(task.sources.size());
  switch (task.reduction) {
    case Reduction::sum:
      return reduce_blocks<Format, Sum>(task, 1.0);
    case Reduction::average:
      return reduce_blocks<Format, Sum>(task, average);
    case Reduction::product:
      return reduce_blocks<Format, ProductFloating>(task, 1.0);
    case Reduction::minimum:
      return reduce_blocks<Format, Minimum>(task, 1.0);
    case Reduction::maximum:
      return reduce_blocks<Format, Maximum>(task, 1.0);
    default:
      return;
  }
}

template <class T>
void reduce_plain_floating(const ReductionTask& task) {
  const bool adds = task.reduction == Reduction::sum || task.reduction == Reduction::average;
  if (adds && task.sources.size() == 2 && task.destinations.size() <= 2) {
    return sum_two<T>(task, task.reduction == Reduction::average ? 0.5 : 1.0);
  }
  reduce_floating<Plain<T>>(task);
}

// An integer of less than 64 bits, accumulated in 64, so that the sum behind an average does not wrap.
template <class T>
struct Widened {
  using Storage = T;
  using Accumulator = std::int64_t;
  static void load(const Storage* from, Accumulator* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = from[i];
  }
  static void store(const Accumulator* from, Storage* to, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(from[i]);
  }
};

// Averages integers, rounding towards zero.
template <class T>
void average_integers(const ReductionTask& task) {
  using Format = Widened<T>;
  const auto divisor = static_cast<std::int64_t>(task.sources.size());
  alignas(64) std::int64_t sum[kBlock];
  alignas(64) std::int64_t next[kBlock];
  for (std::size_t begin = 0; begin < task.elements; begin += kBlock) {
    const std::size_t n = task.elements - begin < kBlock ? task.elements - begin : kBlock;
    Format::load(source_at<Format>(task, 0, begin), sum, n);
    for (std::size_t s = 1; s < task.sources.size(); ++s) {
      Format::load(source_at<Format>(task, s, begin), next, n);
      for (std::size_t i = 0; i < n; ++i) sum[i] = Sum::apply(sum[i], next[i]);
    }
    for (std::size_t i = 0; i < n; ++i) sum[i] /= divisor;
    store_all<Format>(task, sum, begin, n);
  }
}

template <class T>
void reduce_integer(const ReductionTask& task) {
  using Format = Plain<T>;
  switch (task.reduction) {
    case Reduction::sum:
      return reduce_blocks<Format, Sum>(task, 1.0);
    case Reduction::average:
      return average_integers<T>(task);
    case Reduction::product:
      return reduce_blocks<Format, Product>(task, 1.0);
    case Reduction::minimum:
      return reduce_blocks<Format, Minimum>(task, 1.0);
    case Reduction::maximum:
      return reduce_blocks<Format, Maximum>(task, 1.0);
    case Reduction::bitwise_and:
      return reduce_blocks<Format, And>(task, 1.0);
    case Reduction::bitwise_or:
      return reduce_blocks<Format, Or>(task, 1.0);
    case Reduction::bitwise_xor:
      return reduce_blocks<Format, Xor>(task, 1.0);
    default:
      return;
  }
}

// Booleans are the bytes 0 and 1: a sum or maximum is "or", a product, minimum or average is "and".
void reduce_boolean(const ReductionTask& task) {
  using Format = Plain<std::uint8_t>;
  switch (task.reduction) {
    case Reduction::sum:
    case Reduction::maximum:
    case Reduction::bitwise_or:
      return reduce_blocks<Format, Or>(task, 1.0);
    case Reduction::bitwise_xor:
      return reduce_blocks<Format, Xor>(task, 1.0);
    default:
      return reduce_blocks<Format, And>(task, 1.0);
  }
}

void run_weighted(const ReductionTask& task) {
  switch (task.type) {
    case DType::float32:
      return weighted_average<Plain<float>>(task);
    case DType::float64:
      return weighted_average<Plain<double>>(task);
    case DType::float16:
      return weighted_average<Float16>(task);
    case DType::bfloat16:
      return weighted_average<BFloat16>(task);
    default:
      return;
  }
}

void run_kernels(const ReductionTask& task) {
  if (!task.weights.empty()) return run_weighted(task);
  switch (task.type) {
    case DType::float32:
      return reduce_plain_floating<float>(task);
    case DType::float64:
      return reduce_plain_floating<double>(task);
    case DType::float16:
      return reduce_floating<Float16>(task);
    case DType::bfloat16:
      return reduce_floating<BFloat16>(task);
    case DType::int8:
      return reduce_integer<std::int8_t>(task);
    case DType::uint8:
      return reduce_integer<std::uint8_t>(task);
    case DType::int16:
      return reduce_integer<std::int16_t>(task);
    case DType::int32:
      return reduce_integer<std::int32_t>(task);
    case DType::int64:
      return reduce_integer<std::int64_t>(task);
    case DType::boolean:
      return reduce_boolean(task);
  }
}

}  // namespace
}  // namespace rondo
