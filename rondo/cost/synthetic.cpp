#include "rondo/cost/synthetic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo::cost {
namespace {

std::uint64_t whole(double value) { return static_cast<std::uint64_t>(std::llround(value)); }

// Parses "k=v,k=v" with the keys of `defaults`.
std::map<std::string, double> parse_settings(std::string_view text, std::map<std::string, double> settings) {
  for (const std::string& entry : split(text, ',')) {
    const std::size_t equal = entry.find('=');
    const std::string key(trim(entry.substr(0, equal)));
    const auto found = settings.find(key);
    if (equal == std::string::npos || found == settings.end()) {
      std::string known;
      for (const auto& [name, value] : settings) known += str(known.empty() ? "" : ", ", name);
      throw UsageError(str("--synthetic: '", entry, "' is not KEY=VALUE with a KEY of ", known));
    }
    const std::string value = entry.substr(equal + 1);
    const std::string what = str("--synthetic ", key);
    found->second = key == "latency" ? seconds(parse_duration(value, what)) : parse_number(value, what);
    const bool may_be_zero = key == "vocab" || key == "latency" || key == "memory";
    if (!(found->second >= 0) || (!may_be_zero && found->second == 0))
      throw UsageError(str(what, ": ", value, " must be positive"));
  }
  return settings;
}

// Costs of a GPT layer by formula.
struct GptLayer {
  double products_s = 0;   // forward
  double attention_s = 0;  // part of products_s: scores and weighted sums, which have no parameters
  // Forward time of memory-bound operations besides the products, divided among ranks and not divided.
  double moved_s = 0, undivided_moved_s = 0;
  double parameter_bytes = 0;
  // Activations kept for backward. All are divided except norms, dropout and residuals: 10 + 24 / t of 34
  // values for t ranks (Korthikanti et al. 2022).
  double divided_activations = 0, undivided_activations = 0;
  double output_bytes = 0;
};

LayerPart part_of(const GptLayer& layer, int ranks, std::uint64_t samples) {
  const double forward = (layer.products_s + layer.moved_s) / ranks + layer.undivided_moved_s;
  const double weight = (layer.products_s - layer.attention_s) / ranks;
  LayerPart part;
  part.ranks = ranks;
  LayerPasses& passes = part.passes.emplace_back();
  passes.samples = samples;
  passes.forward_s = forward;
  passes.backward_s = 2 * forward;
  passes.backward_input_s = 2 * forward - weight;
  passes.backward_weight_s = weight;
  passes.activation_bytes = whole(layer.divided_activations / ranks + layer.undivided_activations);
  // 32 of 34 values (Qi et al., "Zero bubble pipeline parallelism").
  passes.deferred_bytes = whole(static_cast<double>(passes.activation_bytes) * 32 / 34);
  passes.forward_workspace_bytes = whole(4 * layer.output_bytes);
  passes.backward_workspace_bytes = passes.input_workspace_bytes = whole(8 * layer.output_bytes);
  part.parameter_bytes = whole(layer.parameter_bytes / ranks);
  if (ranks > 1) {
    // One after attention and one after feed-forward, and one before each in backward (Megatron-LM).
    part.forward_messages = part.backward_messages = 2;
    part.forward_message_bytes = part.backward_message_bytes = whole(2 * layer.output_bytes);
  }
  return part;
}

// Returns one rank's part under context parallelism: all parameters and 1 / ranks of everything else. Keys
// and values circulate among the ranks, and their gradients after them.
LayerPart piece_of(const GptLayer& layer, int ranks, std::uint64_t samples) {
  LayerPart part = part_of(layer, 1, samples);
  part.dimension = "context";
  part.ranks = ranks;
  LayerPasses& passes = part.passes.front();
  for (double* time :
       {&passes.forward_s, &passes.backward_s, &passes.backward_input_s, &passes.backward_weight_s})
    *time /= ranks;
  for (std::uint64_t* bytes :
       {&passes.activation_bytes, &passes.deferred_bytes, &passes.forward_workspace_bytes,
        &passes.backward_workspace_bytes, &passes.input_workspace_bytes})
    *bytes /= static_cast<std::uint64_t>(ranks);
  const double held = 2 * layer.output_bytes / ranks;
  part.forward_messages = ranks - 1;
  part.forward_message_bytes = whole((ranks - 1) * held);
  part.backward_messages = 2 * ranks - 1;
  part.backward_message_bytes = whole((2 * ranks - 1) * held);
  return part;
}

}  // namespace

Profile synthetic_profile(std::string_view text, int ranks) {
  const std::size_t colon = text.find(':');
  if (text.substr(0, colon) != "gpt")
    throw UsageError(str("--synthetic: '", text, "' is not gpt:KEY=VALUE,..., as in gpt:layers=48,dim=4096"));
  const SyntheticMachine machine;
  const auto s = parse_settings(colon == std::string_view::npos ? "" : text.substr(colon + 1),
                                {{"layers", 48},
                                 {"dim", 4096},
                                 {"batch", 1},
                                 {"seq", 2048},
                                 {"vocab", 0},
                                 {"heads", 32},
                                 {"bytes", 2},
                                 {"flops", machine.flops_per_s},
                                 {"memory", 0},
                                 {"rate", machine.link_bytes_per_s},
                                 {"latency", machine.link_latency_s}});
  const double dim = s.at("dim");
  const double tokens = s.at("batch") * s.at("seq");
  const double bytes = s.at("bytes");
  const auto layers = static_cast<int>(s.at("layers"));
  if (layers < 1 || layers > 10000 || s.at("layers") != layers)
    throw UsageError(str("--synthetic layers: ", s.at("layers"), " is not a whole number from 1 to 10000"));

  Profile profile;
  profile.model = std::string(text);
  profile.batch_size = std::max<std::uint64_t>(1, whole(s.at("batch")));
  profile.base_bytes = whole(tokens * 16);  // token numbers and targets, 64 bits each
  profile.link = ring_link(ranks, s.at("latency"), s.at("rate"));
  for (int layer = 0; layer < layers; ++layer) {
    // Attention and feed-forward have 12 d^2 weights, biases and norms 13 d.
    double parameters = 12 * dim * dim + 13 * dim;
    // Two FLOPs per weight and token. Scores and weighted sums of attention add 4 s d per token.
    double flops = 2 * tokens * 12 * dim * dim + 4 * tokens * s.at("seq") * dim;
    // 34 values of 2 bytes per token and dimension (Korthikanti et al. 2022). The attention matrix is not
    // counted, because fused kernels do not keep it.
    double activations = 34 * tokens * dim * bytes / 2;
    GptLayer by_formula;
    by_formula.undivided_activations = 10 * tokens * dim * bytes / 2;
    by_formula.attention_s = 4 * tokens * s.at("seq") * dim / s.at("flops");
    // Kept activations and the scores of all heads (5 a s^2) are written once and read once.
    if (s.at("memory") > 0) {
      by_formula.undivided_moved_s = 2 * by_formula.undivided_activations / s.at("memory");
      by_formula.moved_s = (2 * (activations - by_formula.undivided_activations) +
                            10 * tokens * s.at("heads") * s.at("seq") * bytes / 2) /
                           s.at("memory");
    }
    if (layer == 0) parameters += s.at("vocab") * dim;
    if (layer + 1 == layers && s.at("vocab") > 0) {
      parameters += s.at("vocab") * dim;
      flops += 2 * tokens * s.at("vocab") * dim;
      activations += tokens * s.at("vocab") * 4;
    }
    UnitProfile unit;
    unit.name = str("layers.", layer);
    by_formula.products_s = flops / s.at("flops");
    unit.forward_s = by_formula.products_s + by_formula.moved_s + by_formula.undivided_moved_s;
    unit.backward_s = 2 * unit.forward_s;
    unit.recompute_s = unit.forward_s;
    unit.parameter_bytes = whole(parameters * bytes);
    unit.gradient_bytes = whole(parameters * bytes);
    // Adam's two moments, and the master copy if parameters have 16 bits, all float32.
    unit.optimizer_bytes = whole(parameters * (bytes < 4 ? 12 : 8));
    // The update reads parameters, gradients and state and writes them back, at 2 TB/s.
    unit.optimizer_s = parameters * (bytes * 3 + 16) / 2e12;
    unit.activation_bytes = whole(activations);
    unit.checkpointed_activation_bytes = whole(tokens * dim * bytes);
    unit.forward_workspace_bytes = whole(4 * tokens * dim * bytes);
    unit.backward_workspace_bytes = whole(8 * tokens * dim * bytes);
    by_formula.parameter_bytes = parameters * bytes;
    by_formula.divided_activations = activations - by_formula.undivided_activations;
    by_formula.output_bytes = tokens * dim * bytes;
    LayerProfile piece;
    piece.name = piece.unit = unit.name;
    piece.output_bytes = piece.checkpointed_activation_bytes = unit.checkpointed_activation_bytes;
    for (int ranks = 1; ranks <= 64; ranks *= 2) {
      if (static_cast<int>(s.at("heads")) % ranks != 0) break;
      piece.parts.push_back(part_of(by_formula, ranks, profile.batch_size));
    }
    for (int ranks = 2; ranks <= 64 && std::fmod(s.at("seq"), 2 * ranks) == 0; ranks *= 2)
      piece.parts.push_back(piece_of(by_formula, ranks, profile.batch_size));
    profile.layers.push_back(std::move(piece));
    profile.units.push_back(std::move(unit));
  }
  return profile;
}

Profile random_profile(std::uint64_t seed, int units, int ranks) {
  RandomStream random(seed, /*stream=*/6);
  const auto between = [&](double low, double high) { return low + (high - low) * random.uniform(); };
  Profile profile;
  profile.model = str("random:seed=", seed, ",units=", units);
  profile.base_bytes = whole(between(0, 64e6));
  double compute = 0;
  double bytes = 0;
  const double spread = between(0, 0.8);  // inequality of the units' sizes
  const double activation_share = between(0.2, 3);
  for (int u = 0; u < units; ++u) {
    UnitProfile unit;
    unit.name = str("unit.", u);
    const double size = 200e6 * (1 + spread * between(-1, 1));
    unit.forward_s = 10e-3 * (1 + spread * between(-1, 1));
    unit.backward_s = unit.forward_s * between(1.6, 2.4);
    unit.recompute_s = unit.forward_s * between(0.9, 1.1);
    unit.optimizer_s = size * between(0.5, 1.5) * 1e-11;
    unit.parameter_bytes = whole(size);
    unit.gradient_bytes = whole(size);
    unit.optimizer_bytes = whole(size * (random.below(2) == 0 ? 2 : 6));
    unit.activation_bytes = whole(size * activation_share * between(0.7, 1.3));
    unit.checkpointed_activation_bytes =
        whole(static_cast<double>(unit.activation_bytes) * between(0.03, 0.2));
    unit.forward_workspace_bytes = whole(size * between(0, 0.3));
    unit.backward_workspace_bytes = whole(size * between(0, 0.6));
    compute += unit.forward_s + unit.backward_s;
    bytes += size;
    profile.units.push_back(std::move(unit));
  }
  // The rate at which two gathers and one reduction take `ratio` times the compute.
  const double ratio = between(0.5, 2);
  const double n = ranks;
  const double rate = 3 * bytes * (n - 1) / n / (ratio * compute);
  profile.link = ring_link(ranks, between(1e-6, 20e-6) / std::max(1.0, n - 1), rate,
                           random.below(2) == 0 ? 0 : between(0, 0.2));
  return profile;
}

}  // namespace rondo::cost
