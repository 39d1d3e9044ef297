#include "rondo/train/callbacks/timeline.h"

#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/train/clock_reading.h"
#include "rondo/train/trainer.h"

namespace rondo {

std::function<void(TraceSpan)> Timeline::sink() {
  return [this](const TraceSpan& event) {
    if (writer_) output_.write([&] { writer_->add(event); });
  };
}

std::function<void(const TraceCounter&)> Timeline::memory_sink() {
  return [this](const TraceCounter& counter) {
    if (writer_) output_.write([&] { writer_->add(counter); });
  };
}

void Timeline::on_train_begin(Trainer& trainer, const FitOutline&) {
  clock_at_begin_ = read_clock(trainer.strategy().context());
}

void Timeline::on_step_begin(Trainer& trainer, std::int64_t /*step*/) {
  has_stepped_ = true;
  if (writer_) return;
  output_.write(
      [&] { writer_ = std::make_unique<TraceWriter>(run_directory_, trainer.strategy().context().rank()); });
}

void Timeline::on_train_end(Trainer& trainer, const FitResult&) {
  if (!std::exchange(has_stepped_, false)) return;
  writer_.reset();
  const Context& context = trainer.strategy().context();
  const ClockReading at_end = read_clock(context);
  // All parts are complete after this exchange between the ranks.
  const std::vector<nlohmann::json> readings = gather_object(
      {clock_at_begin_.own_ns, clock_at_begin_.ahead_ns, at_end.own_ns, at_end.ahead_ns}, context.world());
  if (context.rank() != 0) return;
  ClockReadings clocks;
  for (int rank = 0; rank < context.world_size(); ++rank) {
    const auto numbers = readings[static_cast<std::size_t>(rank)].get<std::vector<std::int64_t>>();
    clocks[rank] = {{.own_ns = numbers.at(0), .ahead_ns = numbers.at(1)},
                    {.own_ns = numbers.at(2), .ahead_ns = numbers.at(3)}};
  }
  SideOutput(run_directory_ / "trace.json").write([&] { merge_traces(run_directory_, clocks); });
}

}  // namespace rondo
