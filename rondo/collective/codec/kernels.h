#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

// The loops of the codecs, one build per instruction set. All builds compute the same bits.
namespace rondo::collective::kernels {

// Number of values of an int8 block, which share one scale.
inline constexpr std::size_t kInt8Block = 512;

struct CodecKernels {
  const char* name;  // "avx512", "avx2" or "baseline"

  void (*to_float16)(const float* values, std::uint16_t* encoded, std::size_t n);
  void (*from_float16)(const std::uint16_t* encoded, float* values, std::size_t n);
  void (*add_float16)(const std::uint16_t* encoded, float* values, std::size_t n);

  void (*to_bfloat16)(const float* values, std::uint16_t* encoded, std::size_t n);
  void (*from_bfloat16)(const std::uint16_t* encoded, float* values, std::size_t n);
  void (*add_bfloat16)(const std::uint16_t* encoded, float* values, std::size_t n);

  // Encodes one block, n <= kInt8Block, and returns the scale. `residual` may be null.
  float (*to_int8)(const float* values, float* residual, std::int8_t* encoded, std::size_t n);
  void (*from_int8)(const std::int8_t* encoded, float scale, float* values, std::size_t n);
  void (*add_int8)(const std::int8_t* encoded, float scale, float* values, std::size_t n);
};

// Returns the builds that this processor can run, widest first.
std::span<const CodecKernels* const> runnable_kernels();

// Returns the widest build that this processor can run.
const CodecKernels& codec_kernels();

extern const CodecKernels baseline_kernels;
#if defined(RONDO_X86_KERNELS)
extern const CodecKernels avx2_kernels;
extern const CodecKernels avx512_kernels;
#endif

}  // namespace rondo::collective::kernels
