#include <algorithm>
#include <cstring>

#include "rondo/collective/codec/builtin.h"
#include "rondo/collective/codec/kernels.h"

namespace rondo::collective {
namespace {

using kernels::kInt8Block;

// Integers -127..127 times one scale per block of 512 values, scale = largest magnitude / 127, rounded to
// nearest even: symmetric uniform quantization with error feedback (Seide et al. 2014 for the feedback;
// Alistarh et al., "QSGD", NeurIPS 2017, for buckets with a scale of their own).
//
// Encoding: for each block its scale (float32), then one byte per value; the last block may be shorter. A
// block with a NaN or an infinity decodes as NaN throughout, so that checks for overflow detect it, and its
// residual becomes zero. A block whose largest magnitude is below 2^-119 decodes as zeros.
class Int8Codec final : public Codec {
 public:
  std::string_view name() const override { return "int8"; }
  std::size_t encoded_bytes(std::size_t values) const override {
    return values + (values + kInt8Block - 1) / kInt8Block * sizeof(float);
  }

  void encode(std::span<const float> values, std::span<std::byte> encoded,
              std::span<float> residual) override {
    check_encode(*this, values, encoded, residual);
    std::byte* to = encoded.data();
    for (std::size_t begin = 0; begin < values.size(); begin += kInt8Block) {
      const std::size_t n = std::min(kInt8Block, values.size() - begin);
      const float scale =
          kernels_.to_int8(values.data() + begin, residual.empty() ? nullptr : residual.data() + begin,
                           reinterpret_cast<std::int8_t*>(to + sizeof(float)), n);
      std::memcpy(to, &scale, sizeof(scale));
      to += sizeof(float) + n;
    }
  }
  void decode(std::span<const std::byte> encoded, std::span<float> values) const override {
    for_each_block(encoded, values, kernels_.from_int8);
  }
  void decode_add(std::span<const std::byte> encoded, std::span<float> values) const override {
    for_each_block(encoded, values, kernels_.add_int8);
  }

  bool needs_residual() const override { return true; }
  bool is_sparse() const override { return false; }
  // Half a quantization step, plus the rounding of the step itself.
  double error_bound(double largest) const override {
    return std::max(largest / 254 * (1 + 0x1p-14), 0x1p-119);
  }

 private:
  template <class Kernel>
  void for_each_block(std::span<const std::byte> encoded, std::span<float> values, Kernel kernel) const {
    check_decode(*this, encoded, values);
    const std::byte* from = encoded.data();
    for (std::size_t begin = 0; begin < values.size(); begin += kInt8Block) {
      const std::size_t n = std::min(kInt8Block, values.size() - begin);
      float scale = 0;
      std::memcpy(&scale, from, sizeof(scale));
      kernel(reinterpret_cast<const std::int8_t*>(from + sizeof(float)), scale, values.data() + begin, n);
      from += sizeof(float) + n;
    }
  }

  const kernels::CodecKernels& kernels_ = kernels::codec_kernels();
};

}  // namespace

std::unique_ptr<Codec> make_int8_codec(std::string_view argument) {
  refuse_argument("int8", argument);
  return std::make_unique<Int8Codec>();
}

}  // namespace rondo::collective
