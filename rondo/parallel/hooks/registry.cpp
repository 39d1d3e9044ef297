#include "rondo/parallel/hooks/registry.h"

#include <algorithm>
#include <map>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/parallel/hooks/codec_hook.h"
#include "rondo/parallel/hooks/default_hooks.h"
#include "rondo/parallel/hooks/power_sgd_hook.h"

namespace rondo {
namespace {

PowerSgdOptions power_sgd_options(const std::string& settings) {
  PowerSgdOptions options;
  for (const std::string& setting : split(settings, ',')) {
    const std::size_t equals = setting.find('=');
    const std::string key = setting.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : setting.substr(equals + 1);
    const std::string what = "codec 'power_sgd': setting '" + key + "'";
    if (key == "rank") {
      options.matrix_approximation_rank = parse_integer(value, what);
    } else if (key == "start") {
      options.start_iter = parse_integer(value, what);
    } else if (key == "min_compression_rate") {
      options.min_compression_rate = parse_number(value, what);
    } else if (key == "epsilon") {
      options.orthogonalization_epsilon = parse_number(value, what);
    } else if (key == "seed") {
      options.random_seed = static_cast<std::uint32_t>(parse_integer(value, what));
    } else {
      throw UsageError(what + " is not one of rank, start, min_compression_rate, epsilon, seed");
    }
  }
  return options;
}

using Factory = CommHook (*)(const Group& group, const std::string& settings);

// Hooks other than byte codecs.
const std::map<std::string, Factory>& factories() {
  static const std::map<std::string, Factory> table = {
      {"power_sgd",
       [](const Group& group, const std::string& settings) {
         return power_sgd_hook(group, power_sgd_options(settings));
       }},
      {"allreduce", [](const Group& group, const std::string&) { return allreduce_hook(group); }},
      {"fp16_compress", [](const Group& group, const std::string&) { return fp16_compress_hook(group); }},
      {"bf16_compress", [](const Group& group, const std::string&) { return bf16_compress_hook(group); }},
      {"noop", [](const Group&, const std::string&) { return noop_hook(); }},
  };
  return table;
}

}  // namespace

CommHook make_comm_hook(const std::string& name, const Group& group) {
  const std::size_t colon = name.find(':');
  const std::string key = name.substr(0, colon);
  const std::string settings = colon == std::string::npos ? "" : name.substr(colon + 1);
  const auto hook = factories().find(key);
  if (hook == factories().end()) {
    const std::vector<std::string> codecs = collective::codec_names();
    if (std::find(codecs.begin(), codecs.end(), key) == codecs.end() || key == "none") {
      throw UsageError(str("codec '", key, "' is not one of none, ", join(comm_hook_names(), ", ")));
    }
    return codec_hook(group, name);
  }
  if (!settings.empty() && key != "power_sgd") {
    throw UsageError(str("codec '", key, "' takes no settings, not '", settings, "'"));
  }
  return hook->second(group, settings);
}

void check_byte_codec(const std::string& codec, const std::string& strategy) {
  try {
    collective::make_codec(codec);
  } catch (const UsageError& error) {
    throw UsageError(str("strategy ", strategy, ": ", error.what(),
                         "; power_sgd and PyTorch's hooks need whole gradients, which strategy ddp has"));
  }
}

std::vector<std::string> comm_hook_names() {
  std::vector<std::string> names = collective::codec_names();
  std::erase(names, "none");
  for (const auto& [name, factory] : factories()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace rondo
