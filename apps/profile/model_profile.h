#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace rondo {

struct ModelProfileOptions {
  std::string model;
  nlohmann::json config = nlohmann::json::object();
  std::int64_t batch_size = 4;  // samples of one rank and pass
  std::string optimizer = "adamw";
  int passes = 7;   // that count, for each of with and without checkpointing
  int warm_up = 2;  // before them
};

// Trains a model on made-up data in this process and measures it. One thread.
class ModelProfiler {
 public:
  // Throws UsageError for an unknown model or optimizer.
  explicit ModelProfiler(const ModelProfileOptions& options);
  ~ModelProfiler();
  ModelProfiler(const ModelProfiler&) = delete;
  ModelProfiler& operator=(const ModelProfiler&) = delete;

  // {model, batch_size, base_bytes, units}, as in docs/planner.md; times are medians.
  nlohmann::ordered_json run();
  // One training step that is not measured.
  void pass();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
