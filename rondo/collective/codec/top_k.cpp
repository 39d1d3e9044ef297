#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/builtin.h"

namespace rondo::collective {
namespace {

constexpr double kDefaultFraction = 0.01;

std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU; }

// Counts each value of `Bits` bits at `shift` among the magnitudes whose higher bits equal `prefix`. Uses
// four tables, because neighbours often fall into the same bin and would wait for each other.
template <int Bits>
std::array<std::uint32_t, 1U << Bits> histogram(std::span<const float> values, int shift,
                                                std::uint32_t prefix) {
  constexpr std::size_t bins = 1U << Bits;
  std::array<std::array<std::uint32_t, bins>, 4> tables{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = magnitude(values[i]) >> shift;
    if (bits >> Bits == prefix) ++tables[i % 4][bits & (bins - 1)];
  }
  for (std::size_t bin = 0; bin < bins; ++bin) {
    tables[0][bin] += tables[1][bin] + tables[2][bin] + tables[3][bin];
  }
  return tables[0];
}

// The k-th largest magnitude, and the number of values with that magnitude among the first k.
struct Threshold {
  std::uint32_t magnitude = 0;
  std::size_t ties = 0;
};

// Radix selection from the top bits down: three counting passes for any values.
Threshold find_threshold(std::span<const float> values, std::size_t k) {
  Threshold threshold{0, k};
  const auto narrow = [&](const auto& counts, int bits) {
    std::size_t bin = counts.size() - 1;
    while (counts[bin] < threshold.ties) threshold.ties -= counts[bin--];
    threshold.magnitude = threshold.magnitude << bits | static_cast<std::uint32_t>(bin);
  };
  narrow(histogram<11>(values, 20, 0), 11);
  narrow(histogram<10>(values, 10, threshold.magnitude), 10);
  narrow(histogram<10>(values, 0, threshold.magnitude), 10);
  return threshold;
}

// Sends the k values of largest magnitude, k = ceil(fraction * n), the first ones among equal magnitudes; the
// others decode as zero and stay in the residual. Source: Lin et al., "Deep Gradient Compression", ICLR 2018;
// Aji and Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017.
//
// Encoding: k indices (uint32, ascending), then k values (float32, unchanged). A NaN or an infinity is larger
// than every number, so it is always sent, and it never stays in the residual.
class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(double fraction) : fraction_(fraction) {}

  std::string_view name() const override { return "top_k"; }
  std::size_t encoded_bytes(std::size_t values) const override {
    return kept(values) * (sizeof(std::uint32_t) + sizeof(float));
  }

  void encode(std::span<const float> values, std::span<std::byte> encoded,
              std::span<float> residual) override {
    check_encode(*this, values, encoded, residual);
    check_indices(values.size());
    if (values.empty()) return;
    for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += values[i];
    const std::span<const float> inputs = residual.empty() ? values : residual;

    const std::size_t k = kept(values.size());
    auto* indices = reinterpret_cast<std::uint32_t*>(encoded.data());
    auto* chosen = reinterpret_cast<float*>(encoded.data()) + k;
    Threshold threshold = find_threshold(inputs, k);
    std::size_t next = 0;
    bool finite = true;
    for (std::size_t i = 0; next < k; ++i) {
      const std::uint32_t size = magnitude(inputs[i]);
      if (size < threshold.magnitude) continue;
      if (size == threshold.magnitude) {
        if (threshold.ties == 0) continue;
        --threshold.ties;
      }
      finite = finite && std::isfinite(inputs[i]);
      indices[next] = static_cast<std::uint32_t>(i);
      chosen[next++] = inputs[i];
      if (!residual.empty()) residual[i] = 0;
    }
    if (finite) return;
    for (float& left : residual) {
      if (!std::isfinite(left)) left = 0;
    }
  }

  void decode(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    std::fill(values.begin(), values.end(), 0.0F);
    decode_add(encoded, values);
  }

  void decode_add(std::span<const std::byte> encoded, std::span<float> values) const override {
    check_decode(*this, encoded, values);
    const std::size_t k = kept(values.size());
    const auto* indices = reinterpret_cast<const std::uint32_t*>(encoded.data());
    const auto* chosen = reinterpret_cast<const float*>(encoded.data()) + k;
    for (std::size_t i = 0; i < k; ++i) {
      // The index comes from a peer: check it before writing.
      if (indices[i] >= values.size()) {
        throw DataError(
            str("codec 'top_k': index ", indices[i], " in an encoding of ", values.size(), " values"));
      }
      values[indices[i]] += chosen[i];
    }
  }

  bool needs_residual() const override { return true; }
  bool is_sparse() const override { return true; }
  double error_bound(double largest) const override { return fraction_ == 1 ? 0 : largest; }

 private:
  std::size_t kept(std::size_t values) const {
    const auto k = static_cast<std::size_t>(std::ceil(fraction_ * static_cast<double>(values)));
    return std::min(values, std::max<std::size_t>(k, 1));
  }

  static void check_indices(std::size_t values) {
    if (values > std::numeric_limits<std::uint32_t>::max()) {
      throw UsageError(str("codec 'top_k' takes up to 2^32 - 1 values at a time, not ", values));
    }
  }

  double fraction_;
};

}  // namespace

std::unique_ptr<Codec> make_top_k_codec(std::string_view argument) {
  const double fraction =
      argument.empty() ? kDefaultFraction : parse_number(argument, "codec 'top_k': the fraction of values");
  if (!(fraction > 0 && fraction <= 1)) {
    throw UsageError(
        str("codec 'top_k': the fraction of values to keep is above 0 and at most 1, not ", argument));
  }
  return std::make_unique<TopKCodec>(fraction);
}

}  // namespace rondo::collective
