#include <algorithm>

#include "apps/bench/collectives/coded_exercise.h"
#include "apps/bench/collectives/contender.h"
#include "rondo/base/time.h"

namespace rondo::bench {
namespace {

constexpr int kFreshSets = 4;
constexpr int kWarmUps = 5;

class BackendContender final : public Contender {
 public:
  BackendContender(Labels labels, c10::intrusive_ptr<c10d::Backend> backend, Memory memory)
      : labels_(std::move(labels)), backend_(std::move(backend)), memory_(memory) {}

  const Labels& labels() const override { return labels_; }
  bool can(const Case& what) const override {
    return !coded() || (what.operation == "all_reduce" && what.dtype == at::kFloat);
  }

  bool prepare(const Case& what) override {
    fresh_ = what.fresh;
    sets_.clear();
    samples_.clear();
    bool right = true;
    for (int set = 0; set < (fresh_ ? kFreshSets : 1); ++set) {
      sets_.push_back(coded() ? make_coded_all_reduce(labels_.codec, backend_, what.bytes)
                              : make_exercise(what.operation, backend_, what.bytes, what.dtype, memory_));
      right = sets_.back().correct() && right;
    }
    for (int i = 0; i < kWarmUps; ++i) sets_.front().run();
    return right;
  }

  double estimate_us() override {
    constexpr int kRuns = 3;
    const long long start = monotonic_ns();
    for (int i = 0; i < kRuns; ++i) sets_.front().run();
    return static_cast<double>(monotonic_ns() - start) / 1e3 / kRuns;
  }

  void run(const Burst& burst) override {
    for (int sample = 0; sample < burst.samples; ++sample) {
      long long elapsed = 0;
      if (fresh_) {
        const Exercise& set = sets_[next_set_++ % sets_.size()];
        set.write();
        elapsed = -monotonic_ns();
        set.run();
        elapsed += monotonic_ns();
      } else {
        elapsed = -monotonic_ns();
        for (int i = 0; i < burst.batch; ++i) sets_.front().run();
        elapsed += monotonic_ns();
      }
      const double operations = fresh_ ? 1 : burst.batch;
      samples_.push_back(static_cast<double>(elapsed) / 1e3 / operations * sets_.front().time_share);
    }
  }

  Timing finish() override {
    sets_.clear();
    return summarize(std::move(samples_));
  }

 private:
  bool coded() const { return labels_.codec != "none"; }

  Labels labels_;
  c10::intrusive_ptr<c10d::Backend> backend_;
  Memory memory_;
  bool fresh_ = false;
  std::vector<Exercise> sets_;
  std::size_t next_set_ = 0;
  std::vector<double> samples_;
};

}  // namespace

std::unique_ptr<Contender> make_backend_contender(Labels labels, c10::intrusive_ptr<c10d::Backend> backend,
                                                  Memory memory) {
  return std::make_unique<BackendContender>(std::move(labels), std::move(backend), memory);
}

Timing summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {samples[samples.size() / 2], samples.front(), static_cast<int>(samples.size())};
}

}  // namespace rondo::bench
