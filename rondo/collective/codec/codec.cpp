#include "rondo/collective/codec/codec.h"

#include <cstring>
#include <map>
#include <mutex>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/builtin.h"

namespace rondo::collective {
namespace {

// The values themselves, for comparison with the other codecs.
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

namespace {

struct Registry {
  std::mutex mutex;  // protects factories
  std::map<std::string, CodecFactory> factories;
};

// Codecs are named process-wide, as engines are; the table starts with the built-in ones.
Registry& registry() {
  static Registry instance{{},
                           {
                               {"none", make_none_codec},
                               {"float16", make_float16_codec},
                               {"bfloat16", make_bfloat16_codec},
                               {"int8", make_int8_codec},
                               {"top_k", make_top_k_codec},
                           }};
  return instance;
}

}  // namespace

std::unique_ptr<Codec> make_codec(std::string_view name) {
  const std::size_t colon = name.find(':');
  const std::string key(name.substr(0, colon));
  const std::string_view argument =
      colon == std::string_view::npos ? std::string_view() : name.substr(colon + 1);
  CodecFactory factory;
  {
    Registry& known = registry();
    const std::lock_guard lock(known.mutex);
    const auto found = known.factories.find(key);
    if (found != known.factories.end()) factory = found->second;
  }
  if (!factory) throw UsageError(str("codec '", key, "' is not one of ", join(codec_names(), ", ")));
  return factory(argument);
}

void register_codec(const std::string& name, CodecFactory factory) {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  known.factories[name] = std::move(factory);
}

std::vector<std::string> codec_names() {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : known.factories) names.push_back(name);
  return names;
}

void refuse_argument(std::string_view codec, std::string_view argument) {
  if (!argument.empty()) throw UsageError(str("codec '", codec, "' takes no argument, not '", argument, "'"));
}

void check_encode(const Codec& codec, std::span<const float> values, std::span<const std::byte> encoded,
                  std::span<const float> residual) {
  if (encoded.size() != codec.encoded_bytes(values.size())) {
    throw UsageError(str("codec '", codec.name(), "': ", values.size(), " values need ",
                         codec.encoded_bytes(values.size()), " bytes, not ", encoded.size()));
  }
  if (!residual.empty() && residual.size() != values.size()) {
    throw UsageError(str("codec '", codec.name(), "': a residual of ", residual.size(), " for ",
                         values.size(), " values"));
  }
}

void check_decode(const Codec& codec, std::span<const std::byte> encoded, std::span<const float> values) {
  if (encoded.size() != codec.encoded_bytes(values.size())) {
    throw DataError(str("codec '", codec.name(), "': ", encoded.size(), " bytes are no encoding of ",
                        values.size(), " values, which take ", codec.encoded_bytes(values.size())));
  }
}

}  // namespace rondo::collective
