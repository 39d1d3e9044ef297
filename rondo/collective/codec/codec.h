#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::collective {

// Turns float32 values into fewer bytes and back. One object belongs to one stream of tensors and is used by
// one thread at a time; what must outlive a call (the error feedback) is the caller's, so two codecs of the
// same name are interchangeable.
//
// Error feedback: with a residual, what is encoded is values + residual, and the residual becomes what the
// encoding left out of that. Nothing is lost then, it only arrives later: the sum of all decoded values plus
// the residual is the sum of all values. Source: Seide et al., "1-Bit Stochastic Gradient Descent",
// Interspeech 2014; Karimireddy et al., "Error Feedback Fixes SignSGD", ICML 2019.
class Codec {
 public:
  virtual ~Codec() = default;

  // As make_codec knows it, without the argument: "float16", "bfloat16", "int8", "top_k", "none".
  virtual std::string_view name() const = 0;

  // Length of the encoding of so many values: the same on every rank, whatever the values are. 0 for 0.
  virtual std::size_t encoded_bytes(std::size_t values) const = 0;

  // Fills `encoded`, encoded_bytes(values.size()) long and aligned as a float (the others read it so too).
  // `residual` is empty, or as long as `values`: their error feedback, read and rewritten; zeros before the
  // first call. A codec that needs none leaves it alone.
  virtual void encode(std::span<const float> values, std::span<std::byte> encoded,
                      std::span<float> residual) = 0;

  // values = what `encoded` stands for. Throws DataError when the bytes are no encoding of so many values.
  virtual void decode(std::span<const std::byte> encoded, std::span<float> values) const = 0;

  // values += what `encoded` stands for, each value added once in float32.
  virtual void decode_add(std::span<const std::byte> encoded, std::span<float> values) const = 0;

  // Whether training without a residual would lose what encodings leave out.
  virtual bool needs_residual() const = 0;

  // Whether an encoding holds few of the values and leaves the others out. A sum over ranks then fills up, so
  // encodings are gathered and added at the receiver instead of being added on the way and encoded again.
  virtual bool is_sparse() const = 0;

  // Largest possible |decoded - value| of one value, without a residual, when no magnitude among those
  // encoded together is above `largest`.
  virtual double error_bound(double largest) const = 0;
};

// Makes a codec from its argument, the text behind the colon of "top_k:0.01"; empty without one.
using CodecFactory = std::function<std::unique_ptr<Codec>(std::string_view argument)>;

// `name` is "int8", or with an argument "top_k:0.01". Throws UsageError naming the codecs there are, or what
// the argument may be. Any thread.
std::unique_ptr<Codec> make_codec(std::string_view name);

// Names a codec for make_codec and `--codec`; a name already taken is replaced. Any thread.
void register_codec(const std::string& name, CodecFactory factory);

// Names that make_codec accepts, sorted.
std::vector<std::string> codec_names();

}  // namespace rondo::collective
