#include "rondo/pipeline/drawing.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/text.h"

namespace rondo::pipeline {
namespace {

std::string label_of(const Action& action) {
  const char* prefix = action.kind == ActionKind::forward          ? ""
                       : action.kind == ActionKind::backward       ? "b"
                       : action.kind == ActionKind::backward_input ? "i"
                                                                   : "w";
  return str(prefix, action.micro_batch);
}

const char* color_of(const Action& action, bool second) {
  switch (action.kind) {
    case ActionKind::forward:
      return second ? "#1d4ed8" : "#60a5fa";
    case ActionKind::backward:
      return second ? "#15803d" : "#4ade80";
    case ActionKind::backward_input:
      return second ? "#0f766e" : "#2dd4bf";
    default:
      return second ? "#a16207" : "#facc15";
  }
}

double shortest_slot(const Simulation& simulation) {
  double shortest = simulation.step_s;
  for (const std::vector<Slot>& rank : simulation.slots) {
    for (const Slot& slot : rank) shortest = std::min(shortest, slot.end_s - slot.begin_s);
  }
  return shortest;
}

}  // namespace

std::string draw(const Schedule& schedule, const Simulation& simulation, int columns) {
  constexpr int kWidth = 4;  // width of a column: "w15 "
  if (simulation.step_s <= 0) return "";
  const double unit = std::max(shortest_slot(simulation), simulation.step_s * kWidth / columns);
  const auto column = [&](double at) { return static_cast<std::size_t>(std::lround(at / unit)) * kWidth; };
  std::string text;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::string line(column(simulation.step_s), ' ');
    for (std::size_t at = 0; at + 1 < line.size(); at += kWidth) line[at] = '.';
    for (const Slot& slot : simulation.slots[static_cast<std::size_t>(rank)]) {
      const std::size_t begin = column(slot.begin_s);
      const std::size_t end = std::max(column(slot.end_s), begin + kWidth);
      if (end > line.size()) line.resize(end, ' ');
      std::string label = label_of(slot.action);
      label.resize(end - begin - 1, '-');
      line.replace(begin, end - begin, label + ' ');
    }
    text += str("rank ", rank, "  ", line, "\n");
  }
  return text;
}

std::string to_svg(const Schedule& schedule, const Simulation& simulation) {
  constexpr int kLeft = 60, kHeight = 22, kGap = 4;
  if (simulation.step_s <= 0) return "";
  const double scale = std::min(26 / shortest_slot(simulation), 1600 / simulation.step_s);
  const int height = schedule.ranks * (kHeight + kGap) + kGap;
  std::string svg = str("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
                        kLeft + static_cast<int>(simulation.step_s * scale) + kGap, "\" height=\"", height,
                        "\" font-family=\"sans-serif\" font-size=\"11\">\n<title>", schedule.name, ", ",
                        schedule.ranks, " ranks, ", schedule.micro_batches, " micro-batches</title>\n");
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const int top = kGap + rank * (kHeight + kGap);
    svg += str("<text x=\"4\" y=\"", top + 15, "\">rank ", rank, "</text>\n<rect x=\"", kLeft, "\" y=\"", top,
               "\" width=\"", simulation.step_s * scale, "\" height=\"", kHeight, "\" fill=\"#e5e7eb\"/>\n");
    for (const Slot& slot : simulation.slots[static_cast<std::size_t>(rank)]) {
      const double left = kLeft + slot.begin_s * scale, width = (slot.end_s - slot.begin_s) * scale;
      svg += str("<rect x=\"", left, "\" y=\"", top, "\" width=\"", width, "\" height=\"", kHeight,
                 "\" fill=\"", color_of(slot.action, slot.action.stage >= schedule.ranks),
                 "\" stroke=\"white\"/><text x=\"", left + width / 2, "\" y=\"", top + 15,
                 "\" text-anchor=\"middle\">", slot.action.micro_batch, "</text>\n");
    }
  }
  return svg + "</svg>\n";
}

}  // namespace rondo::pipeline
