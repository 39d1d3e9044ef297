#pragma once

#include <filesystem>
#include <vector>

#include "rondo/train/callback.h"

namespace rondo {

// A callback that ends training cleanly before the machine is taken away: at a signal on some rank, or when a
// file appears. All ranks end after the same step with FitEnd::preempted, and ModelCheckpoint and
// BackupAndRestore save.
class Preemption final : public Callback {
 public:
  // Sources of the notice.
  struct Options {
    std::vector<int> signals = {};           // handled during training, restored afterwards
    std::filesystem::path notice_file = {};  // checked once per second; empty: none
  };
  // Signal handlers are installed when training begins.
  explicit Preemption(Options options) : options_(std::move(options)) {}
  ~Preemption() override { give_back_signals(); }
  Preemption(const Preemption&) = delete;
  Preemption& operator=(const Preemption&) = delete;

  std::string name() const override { return "preemption"; }
  std::function<bool()> stop_request() override;
  void on_train_end(Trainer&, const FitResult&) override { give_back_signals(); }
  void on_exception(Trainer&, const std::exception&) noexcept override { give_back_signals(); }

 private:
  void give_back_signals() noexcept;

  Options options_;
  std::vector<std::pair<int, void (*)(int)>> former_;  // signals and their previous handlers
};

}  // namespace rondo
