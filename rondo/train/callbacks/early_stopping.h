#pragma once

#include <limits>

#include "rondo/train/callback.h"

namespace rondo {

// Ends training when a validation figure has not improved for some passes over the validation data.
class EarlyStopping final : public Callback {
 public:
  struct Options {
    std::string metric = "loss";
    int patience = 3;           // passes without improvement that end training
    double minimum_change = 0;  // smaller improvements do not count
    bool larger_is_better = false;
  };
  explicit EarlyStopping(Options options) : options_(std::move(options)) {}

  std::string name() const override { return "early_stopping"; }
  // Throws UsageError when the trainer computes no such metric.
  void on_validation_end(Trainer& trainer, const ValidationRecord& record) override;
  bool wants_to_stop() const override { return passes_without_improvement_ >= options_.patience; }
  nlohmann::json state() const override;
  void restore(const nlohmann::json& state) override;

 private:
  Options options_;
  double best_ = std::numeric_limits<double>::infinity();  // negated when larger is better
  int passes_without_improvement_ = 0;
};

}  // namespace rondo
