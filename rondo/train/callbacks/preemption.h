#pragma once

#include <filesystem>
#include <vector>

#include "rondo/train/callback.h"

namespace rondo {

// Ends training in good order when the machine is about to be taken away: a signal on some rank, or a file
// that appears. All ranks end after the same step with FitEnd::preempted, and ModelCheckpoint and
// BackupAndRestore save.
class Preemption final : public Callback {
 public:
  // What announces it.
  struct Options {
    std::vector<int> signals = {};           // taken over while training, and given back
    std::filesystem::path notice_file = {};  // looked for once in a second; empty: none
  };
  // Signals are taken over when training begins.
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
  std::vector<std::pair<int, void (*)(int)>> former_;  // signals and their handlers before
};

}  // namespace rondo
