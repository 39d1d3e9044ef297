#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::collective {

// An encoder of float32 values in fewer bytes. One object belongs to one stream of tensors and is used by one
// thread at a time. The caller keeps the state between calls (the error feedback), so two codecs of the same
// name are interchangeable.
//
// Error feedback: with a residual, the codec encodes values + residual, and the residual becomes the error of
// that encoding. Nothing is lost, only delayed: the sum of all decoded values plus the residual is the sum of
// all values. Source: Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et
// al., "Error Feedback Fixes SignSGD", ICML 2019.
class Codec {
 public:
  virtual ~Codec() = default;

  // Returns the name for make_codec, without the argument: "float16", "bfloat16", "int8", "top_k", "none".
  virtual std::string_view name() const = 0;

  // Returns the length of the encoding of `values` values in bytes: the same on every rank for any values; 0
  // for 0.
  virtual std::size_t encoded_bytes(std::size_t values) const = 0;

  // Encodes into `encoded`, which has encoded_bytes(values.size()) bytes and the alignment of a float, as in
  // the other functions. `residual` is empty, or the error feedback of `values`, equally long, which is read
  // and rewritten; zeros before the first call. A codec without error feedback ignores it.
  virtual void encode(std::span<const float> values, std::span<std::byte> encoded,
                      std::span<float> residual) = 0;

  // Decodes into `values`. Throws DataError if the bytes are not an encoding of that many values.
  virtual void decode(std::span<const std::byte> encoded, std::span<float> values) const = 0;

  // Adds the decoded values to `values`, each once in float32.
  virtual void decode_add(std::span<const std::byte> encoded, std::span<float> values) const = 0;

  // Returns whether training without a residual would lose the encoding errors.
  virtual bool needs_residual() const = 0;

  // Returns whether an encoding holds few of the values and omits the others. A sum over ranks is then dense,
  // so encodings are gathered and added at the receiver instead of being reduced and encoded again.
  virtual bool is_sparse() const = 0;

  // Returns the largest possible |decoded - value| of one value, without a residual, if no magnitude among
  // the values encoded together is above `largest`.
  virtual double error_bound(double largest) const = 0;
};

// A factory of a codec from its argument, the text after the colon of "top_k:0.01"; empty without one.
using CodecFactory = std::function<std::unique_ptr<Codec>(std::string_view argument)>;

// Makes a codec. `name` is "int8", or with an argument "top_k:0.01". Throws UsageError naming the known
// codecs, or the valid arguments. Any thread.
std::unique_ptr<Codec> make_codec(std::string_view name);

// Registers a codec for make_codec and `--codec`; a registered name is replaced. Any thread.
void register_codec(const std::string& name, CodecFactory factory);

// Returns the names that make_codec accepts, sorted.
std::vector<std::string> codec_names();

}  // namespace rondo::collective
