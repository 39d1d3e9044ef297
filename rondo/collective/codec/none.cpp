#include <cstring>

#include "rondo/collective/codec/builtin.h"

namespace rondo::collective {
namespace {

// The values themselves: what a comparison with the other codecs starts from.
class NoneCodec final : public Codec {
 public:
  std::string_view name() const override { return "none"; }
  std::size_t encoded_bytes(std::size_t values) const override { return values * sizeof(float); }

  void encode(std::span<const float> values, std::span<std::byte> encoded,
              std::span<float> residual) override {
    check_encode(*this, values, encoded, residual);
    if (!values.empty()) std::memcpy(encoded.data(), values.data(), encoded.size());
  }
  void decode(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    if (!values.empty()) std::memcpy(values.data(), encoded.data(), encoded.size());
  }
  void decode_add(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    const auto* decoded = reinterpret_cast<const float*>(encoded.data());
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += decoded[i];
  }

  bool needs_residual() const override { return false; }
  bool is_sparse() const override { return false; }
  double error_bound(double) const override { return 0; }
};

}  // namespace

std::unique_ptr<Codec> make_none_codec(std::string_view argument) {
  refuse_argument("none", argument);
  return std::make_unique<NoneCodec>();
}

}  // namespace rondo::collective
