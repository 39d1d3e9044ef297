#include <algorithm>
#include <limits>

#include "rondo/collective/codec/builtin.h"
#include "rondo/collective/codec/kernels.h"

namespace rondo::collective {
namespace {

// IEEE 754 binary16, rounded to nearest even: 11 significant bits. Magnitudes from 65520 on become infinite,
// as in PyTorch's fp16_compress_hook; below 2^-14 the step is 2^-24.
class Float16Codec final : public Codec {
 public:
  std::string_view name() const override { return "float16"; }
  std::size_t encoded_bytes(std::size_t values) const override { return values * sizeof(std::uint16_t); }

  void encode(std::span<const float> values, std::span<std::byte> encoded,
              std::span<float> residual) override {
    check_encode(*this, values, encoded, residual);
    kernels_.to_float16(values.data(), reinterpret_cast<std::uint16_t*>(encoded.data()), values.size());
  }
  void decode(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    kernels_.from_float16(reinterpret_cast<const std::uint16_t*>(encoded.data()), values.data(),
                          values.size());
  }
  void decode_add(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    kernels_.add_float16(reinterpret_cast<const std::uint16_t*>(encoded.data()), values.data(),
                         values.size());
  }

  bool needs_residual() const override { return false; }
  bool is_sparse() const override { return false; }
  double error_bound(double largest) const override {
    if (largest >= 65520) return std::numeric_limits<double>::infinity();
    return std::max(largest * 0x1p-11, 0x1p-25);
  }

 private:
  const kernels::CodecKernels& kernels_ = kernels::codec_kernels();
};

}  // namespace

std::unique_ptr<Codec> make_float16_codec(std::string_view argument) {
  refuse_argument("float16", argument);
  return std::make_unique<Float16Codec>();
}

namespace {

// The upper half of a float32, rounded to nearest even: 8 significant bits and float32's range.
class BFloat16Codec final : public Codec {
 public:
  std::string_view name() const override { return "bfloat16"; }
  std::size_t encoded_bytes(std::size_t values) const override { return values * sizeof(std::uint16_t); }

  void encode(std::span<const float> values, std::span<std::byte> encoded,
              std::span<float> residual) override {
    check_encode(*this, values, encoded, residual);
    kernels_.to_bfloat16(values.data(), reinterpret_cast<std::uint16_t*>(encoded.data()), values.size());
  }
  void decode(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    kernels_.from_bfloat16(reinterpret_cast<const std::uint16_t*>(encoded.data()), values.data(),
                           values.size());
  }
  void decode_add(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    kernels_.add_bfloat16(reinterpret_cast<const std::uint16_t*>(encoded.data()), values.data(),
                          values.size());
  }

  bool needs_residual() const override { return false; }
  bool is_sparse() const override { return false; }
  double error_bound(double largest) const override { return std::max(largest * 0x1p-8, 0x1p-134); }

 private:
  const kernels::CodecKernels& kernels_ = kernels::codec_kernels();
};

}  // namespace

std::unique_ptr<Codec> make_bfloat16_codec(std::string_view argument) {
  refuse_argument("bfloat16", argument);
  return std::make_unique<BFloat16Codec>();
}

}  // namespace rondo::collective
