#include "rondo/format/prometheus.h"

#include <cmath>
#include <string_view>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {
namespace {

// Names there hold letters, digits, '_' and ':'.
std::string metric_name(std::string_view name) {
  std::string result = "rondo_";
  for (const char c : name) {
    const bool allowed =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    result += allowed ? c : '_';
  }
  return result;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  TextStream text;
  text.precision(9);
  text << value;
  return text.str();
}

class Page {
 public:
  void begin(std::string_view name, std::string_view help) {
    name_ = metric_name(name);
    text_ += str("# HELP ", name_, " ", help, "\n# TYPE ", name_, " gauge\n");
  }
  void value(double value) { text_ += str(name_, " ", number_text(value), "\n"); }
  void value(int rank, double value) {
    text_ += str(name_, "{rank=\"", rank, "\"} ", number_text(value), "\n");
  }
  void figure(std::string_view name, std::string_view help, double of_it) {
    begin(name, help);
    value(of_it);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string name_;
  std::string text_;
};

struct RankFigure {
  const char* name;
  const char* help;
  std::optional<double> MetricsRow::*field;
  double scale;
};

struct JointFigure {
  const char* name;
  const char* help;
  std::optional<double> MetricsRow::*field;
};

}  // namespace

std::string prometheus_text(std::span<const MetricsRow> of_step,
                            const std::optional<MetricsRow>& validation) {
  Page page;
  if (!of_step.empty()) {
    const MetricsRow& first = of_step.front();
    page.figure("step", "optimizer steps done", static_cast<double>(first.step));
    page.figure("epoch", "epochs begun, from 0", static_cast<double>(first.epoch));
    page.figure("elapsed_seconds", "training time, resumed runs included", first.elapsed_s);
    page.figure("ranks", "ranks that train", static_cast<double>(of_step.size()));
    for (const JointFigure& joint :
         {JointFigure{"loss", "mean over the global batch", &MetricsRow::loss},
          {"learning_rate", "of the first parameter group", &MetricsRow::learning_rate},
          {"loss_scale", "of the gradient scaler", &MetricsRow::loss_scale},
          {"tokens_per_second", "of all ranks together", &MetricsRow::tokens_per_s},
          {"samples_per_second", "of all ranks together", &MetricsRow::samples_per_s}}) {
      if (first.*joint.field) page.figure(joint.name, joint.help, *(first.*joint.field));
    }
    for (const auto& [name, value] : first.others) page.figure(name, "of this step", value);
    for (const RankFigure& figure :
         {RankFigure{"step_seconds", "wall time of the step", &MetricsRow::step_ms, 1e-3},
          {"compute_seconds", "of the step, without waiting", &MetricsRow::compute_ms, 1e-3},
          {"communication_seconds", "communication under way", &MetricsRow::comm_ms, 1e-3},
          {"waiting_seconds", "computation stood still for communication", &MetricsRow::exposed_comm_ms,
           1e-3}}) {
      if (!(first.*figure.field)) continue;
      page.begin(figure.name, figure.help);
      for (const MetricsRow& row : of_step)
        if (row.*figure.field) page.value(row.rank, *(row.*figure.field) * figure.scale);
    }
    if (first.peak_bytes) {
      page.begin("peak_bytes", "most memory of tensors and buffers");
      for (const MetricsRow& row : of_step)
        if (row.peak_bytes) page.value(row.rank, static_cast<double>(*row.peak_bytes));
    }
  }
  if (validation) {
    page.figure("validation_step", "optimizer steps before the newest validation",
                static_cast<double>(validation->step));
    if (validation->validation_loss)
      page.figure("validation_loss", "over the validation data", *validation->validation_loss);
    if (validation->validation_accuracy)
      page.figure("validation_accuracy", "over the validation data", *validation->validation_accuracy);
    for (const auto& [name, value] : validation->others) page.figure(name, "over the validation data", value);
  }
  return page.take();
}

}  // namespace rondo
