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

// Returns the class of the style below: the kind, and the second stage of a rank.
const char* class_of(const Action& action, bool second) {
  switch (action.kind) {
    case ActionKind::forward:
      return second ? "f2" : "f1";
    case ActionKind::backward:
      return second ? "b2" : "b1";
    case ActionKind::backward_input:
      return second ? "i2" : "i1";
    default:
      return second ? "w2" : "w1";
  }
}

// Colours for light and dark pages. The background is painted, because a page may be dark where the reader's
// system is light.
constexpr const char* kStyle = R"(<style>
svg { --page: #ffffff; --text: #1b1f24; --idle: #e5e7eb; }
@media (prefers-color-scheme: dark) { svg { --page: #161b22; --text: #e6e9ee; --idle: #323a45; } }
text { fill: var(--text); } rect { stroke: var(--page); } .page { fill: var(--page); } .idle { fill: var(--idle); stroke: none; }
.f1 { fill: #60a5fa; } .b1 { fill: #4ade80; } .i1 { fill: #2dd4bf; } .w1 { fill: #facc15; } .on1 { fill: #0b1220; }
.f2 { fill: #1d4ed8; } .b2 { fill: #166534; } .i2 { fill: #0f766e; } .w2 { fill: #854d0e; } .on2 { fill: #ffffff; }
</style>
)";

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
  constexpr double kWidth = 900, kLeft = 84, kLargestFont = 24;
  if (simulation.step_s <= 0) return "";
  // Numbers are as large as possible, so that they are readable on a phone.
  const double scale = (kWidth - kLeft - 6) / simulation.step_s;
  const double digits = schedule.micro_batches > 10 ? 2 : 1;
  const double font = std::min(kLargestFont, std::max(3.0, 1.5 * shortest_slot(simulation) * scale / digits));
  const int row = static_cast<int>(std::max(font, kLargestFont / 1.3) * 1.6);
  const int height = schedule.ranks * (row + 6) + 6;
  std::string svg =
      str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kWidth, " ", height, "\" width=\"",
          kWidth, "\" height=\"", height, "\" font-family=\"system-ui, sans-serif\" font-size=\"",
          std::lround(font * 10) / 10.0, "\">\n<title>", schedule.name, ", ", schedule.ranks, " ranks, ",
          schedule.micro_batches, " micro-batches</title>\n", kStyle, "<rect class=\"page\" width=\"", kWidth,
          "\" height=\"", height, "\"/>\n");
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const int top = 6 + rank * (row + 6);
    const double baseline = top + row / 2.0 + 0.36 * font;
    svg += str("<text x=\"6\" y=\"", top + row / 2 + 8, "\" font-size=\"23\">rank ", rank,
               "</text>\n<rect class=\"idle\" x=\"", kLeft, "\" y=\"", top, "\" width=\"",
               simulation.step_s * scale, "\" height=\"", row, "\"/>\n");
    for (const Slot& slot : simulation.slots[static_cast<std::size_t>(rank)]) {
      const double left = kLeft + slot.begin_s * scale, width = (slot.end_s - slot.begin_s) * scale;
      const bool second = slot.action.stage >= schedule.ranks;
      svg += str("<rect class=\"", class_of(slot.action, second), "\" x=\"", left, "\" y=\"", top,
                 "\" width=\"", width, "\" height=\"", row, "\"/><text class=\"", second ? "on2" : "on1",
                 "\" x=\"", left + width / 2, "\" y=\"", baseline, "\" text-anchor=\"middle\">",
                 slot.action.micro_batch, "</text>\n");
    }
  }
  return svg + "</svg>\n";
}

}  // namespace rondo::pipeline
