#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace rondo::bench {

// What all systems of one comparison train on.
struct StepCase {
  std::string model;  // a name for make_model
  nlohmann::json config;
  std::string dtype;  // float32, or bfloat16 for autocast
  std::string optimizer;
  double learning_rate = 0;
  double clip_norm = 0;              // L2 norm that gradients are scaled down to; 0 is no clipping
  std::int64_t batch_size = 0;       // samples per rank
  std::string codec = "none";        // how ddp's gradients travel
  std::string mixed_precision = {};  // policy of sharded units, as MixedPrecisionPolicy's text
  std::string weights;               // safetensors file with the initial weights
  std::uint64_t gradient_bytes = 0;  // of the whole model
  // Systems track what they allocate, which takes rondo some time of small models' steps.
  bool tracks_memory = false;

  bool is_gpt() const { return config.contains("context"); }
  // What throughput counts: tokens or samples of one rank's batch.
  std::int64_t items() const {
    return is_gpt() ? batch_size * config.at("context").get<std::int64_t>() : batch_size;
  }
  const char* throughput() const { return is_gpt() ? "tokens_per_s" : "samples_per_s"; }
};

// What connects the ranks.
struct Network {
  int hosts = 1;  // emulated; 1 is this machine itself
  std::string rate = {};
  double bits_per_second = 0;
};

}  // namespace rondo::bench
