// `rondo predict`: writes a trained model's predictions for a data set.
#include <ATen/core/Tensor.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/train/trained_run.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/progress.h"
#include "rondo/base/text.h"
#include "rondo/format/file.h"
#include "rondo/strategy/value_collectives.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

// The kind of a model's outputs.
enum class PredictionKind {
  classes,  // [samples, classes] of logits
  tokens,   // [samples, length, vocabulary] of logits
  numbers,  // anything else: values for each sample
};

// Writes predictions, one row per sample, in the order of samples.
class PredictionRows {
 public:
  virtual ~PredictionRows() = default;
  // Writes the next samples' rows; `outputs` is on the CPU, in float32. May be called until the samples end.
  virtual void write(const at::Tensor& outputs) = 0;
};

// Returns the shortest text that reads back as the same value.
std::string number_text(float value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
}

// A sample's prediction, independent of the format.
struct Prediction {
  std::int64_t sample = 0;
  std::int64_t likeliest = -1;       // classes
  std::vector<float> values;         // probabilities, or numbers
  std::vector<std::int64_t> tokens;  // tokens
};

class Rows : public PredictionRows {
 public:
  Rows(PredictionKind kind, std::vector<std::string> class_names)
      : kind_(kind), class_names_(std::move(class_names)) {}

  void write(const at::Tensor& outputs) final {
    at::Tensor values = outputs;
    at::Tensor best;
    if (kind_ == PredictionKind::classes) values = outputs.softmax(1);
    if (kind_ == PredictionKind::numbers) values = outputs.reshape({outputs.size(0), -1});
    if (kind_ != PredictionKind::numbers) best = outputs.argmax(-1).contiguous();
    values = values.contiguous();
    for (std::int64_t row = 0; row < outputs.size(0); ++row) {
      Prediction prediction{.sample = sample_++, .values = {}, .tokens = {}};
      if (kind_ == PredictionKind::tokens) {
        const std::int64_t* tokens = best[row].data_ptr<std::int64_t>();
        prediction.tokens.assign(tokens, tokens + best.size(1));
      } else {
        const float* numbers = values[row].data_ptr<float>();
        prediction.values.assign(numbers, numbers + values.size(1));
        if (kind_ == PredictionKind::classes) prediction.likeliest = best[row].item<std::int64_t>();
      }
      write_row(prediction);
    }
  }

 protected:
  virtual void write_row(const Prediction& prediction) = 0;
  std::string name_of(std::int64_t number) const {
    return static_cast<std::size_t>(number) < class_names_.size()
               ? class_names_[static_cast<std::size_t>(number)]
               : std::to_string(number);
  }

  PredictionKind kind_;

 private:
  std::vector<std::string> class_names_;
  std::int64_t sample_ = 0;
};

class CsvRows final : public Rows {
 public:
  CsvRows(PredictionKind kind, std::vector<std::string> class_names, std::ostream& out)
      : Rows(kind, std::move(class_names)), out_(out) {}

 private:
  void write_header(const Prediction& first) {
    out_ << "sample";
    if (kind_ == PredictionKind::tokens) out_ << ",tokens";
    if (kind_ == PredictionKind::classes) out_ << ",class";
    for (std::size_t i = 0; i < first.values.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      out_ << ","
           << csv_field(kind_ == PredictionKind::classes ? str("p(", name_of(number), ")")
                                                         : str("value ", number));
    }
    out_ << "\n";
  }
  void write_row(const Prediction& prediction) override {
    if (prediction.sample == 0) write_header(prediction);
    out_ << prediction.sample;
    if (kind_ == PredictionKind::tokens) out_ << "," << join(prediction.tokens, " ");
    if (kind_ == PredictionKind::classes) out_ << "," << csv_field(name_of(prediction.likeliest));
    for (const float value : prediction.values) out_ << "," << number_text(value);
    out_ << "\n";
  }

  std::ostream& out_;
};

class JsonRows final : public Rows {
 public:
  JsonRows(PredictionKind kind, std::vector<std::string> class_names, std::ostream& out)
      : Rows(kind, std::move(class_names)), out_(out) {}

 private:
  void write_row(const Prediction& prediction) override {
    nlohmann::ordered_json row = {{"sample", prediction.sample}};
    if (kind_ == PredictionKind::tokens) row["tokens"] = prediction.tokens;
    if (kind_ == PredictionKind::classes) row["class"] = name_of(prediction.likeliest);
    if (kind_ != PredictionKind::tokens)
      row[kind_ == PredictionKind::classes ? "probabilities" : "values"] = prediction.values;
    out_ << row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }

  std::ostream& out_;
};

// Creates a writer. `format` is "csv" (with a header line) or "jsonl". If `class_names` is empty, classes are
// numbers.
std::unique_ptr<PredictionRows> make_prediction_rows(const std::string& format, PredictionKind kind,
                                                     std::vector<std::string> class_names,
                                                     std::ostream& out) {
  if (format == "csv") return std::make_unique<CsvRows>(kind, std::move(class_names), out);
  if (format == "jsonl") return std::make_unique<JsonRows>(kind, std::move(class_names), out);
  throw UsageError(str("--format ", format, ": expected csv or jsonl"));
}

}  // namespace
}  // namespace rondo

namespace {

struct PredictFlags {
  rondo::RunArguments run;
  rondo::ProcessArguments processes;
  std::int64_t batch_size = 32;
  std::string format = "csv";
  std::string output = "-";
};

rondo::PredictionKind kind_of(const at::Tensor& output, const rondo::DatasetInfo& info) {
  if (info.kind == "regression") return rondo::PredictionKind::numbers;
  if (output.dim() == 3) return rondo::PredictionKind::tokens;
  return output.dim() == 2 ? rondo::PredictionKind::classes : rondo::PredictionKind::numbers;
}

using Sink = std::function<void(const std::string& text)>;

// Passes rows to `sink` on rank 0, in the order of samples; ranks compute batches in turn.
void write_rows(const PredictFlags& flags, const rondo::OpenedRun& opened, const Sink& sink) {
  const at::NoGradGuard no_gradients;
  const rondo::Dataset& data = *opened.data;
  const rondo::Context& context = opened.context;
  std::ostringstream text;
  std::unique_ptr<rondo::PredictionRows> rows;
  const std::int64_t together = flags.batch_size * context.world_size();
  const std::int64_t batches = rondo::divide_rounding_up(data.size(), flags.batch_size);
  rondo::ProgressOptions shown;
  // Rows on a terminal already show the progress.
  if (context.rank() > 0 || (flags.output == "-" && isatty(STDOUT_FILENO) != 0))
    shown.style = rondo::ProgressStyle::off;
  rondo::Progress progress(stderr, shown);
  for (std::int64_t first = 0; first < data.size(); first += together) {
    const std::int64_t begin = std::min(data.size(), first + flags.batch_size * context.rank());
    // Empty if the last batches belong to other ranks.
    std::vector<std::int64_t> samples(
        static_cast<std::size_t>(std::min(flags.batch_size, data.size() - begin)));
    std::iota(samples.begin(), samples.end(), begin);
    rondo::Tensors inputs = data.get(samples).inputs;
    for (at::Tensor& input : inputs) input = input.to(opened.device);
    at::Tensor output = opened.model.forward.run(inputs).front().to(c10::kCPU, at::kFloat);
    if (context.world_size() > 1) output = rondo::gather_values({output}, 0, context.world());
    if (context.rank() != 0) continue;
    if (!rows)
      rows = rondo::make_prediction_rows(flags.format, kind_of(output, data.info()), data.info().class_names,
                                         text);
    rows->write(output);
    sink(text.str());
    text.str("");
    progress.activity("prediction", std::min(batches, (first + together) / flags.batch_size), batches,
                      "batches");
  }
}

void predict(const PredictFlags& flags, const rondo::OpenedRun& opened) {
  opened.model.module->to(opened.device);
  opened.model.module->eval();
  // Opened on rank 0; run_agreed() reports a failure on all ranks.
  std::optional<rondo::ReplacedFile> target;
  std::optional<rondo::OutputFile> file;
  rondo::run_agreed(opened.context, [&] {
    if (opened.context.rank() != 0 || flags.output == "-") return;
    target.emplace(flags.output, rondo::ReplacedFile::Links::follow);
    file.emplace(target->temporary(), rondo::OutputFile::Mode::create, target->target());
  });
  write_rows(flags, opened, [&](const std::string& text) {
    if (file) {
      file->write(text);
    } else {
      std::cout << text;
    }
  });
  rondo::run_agreed(opened.context, [&] {
    if (!file) return;
    file->sync();
    file->close();
    target->commit();
  });
}

}  // namespace

int main(int argc, char** argv) {
  PredictFlags flags;
  CLI::App app(
      "Writes predictions of a trained model, one row per sample: class and probabilities, tokens, or "
      "numbers.",
      "rondo predict");
  app.footer(
      "The label column of a table may be missing. Of an image folder with a test part, only that part is "
      "read.\n\nExamples:\n  rondo predict runs/iris --data new_flowers.csv\n  rondo predict runs/digits "
      "--data mnist/ --format jsonl -o predictions.jsonl\n  rondo predict runs/digits --data mnist/ "
      "--nproc-per-node 2 -o predictions.csv");
  flags.run.add_model_flags(app);
  flags.run.add_data_flags(app, "File or directory to predict for");
  app.get_option("--data")->required();
  rondo::RunArguments::add_batch_size_flag(app, flags.batch_size);
  app.add_option("--format", flags.format,
                 "csv: class or numbers in columns; jsonl: one JSON object per line")
      ->check(CLI::IsMember({"csv", "jsonl"}))
      ->capture_default_str();
  app.add_option("-o,--output", flags.output, "File for the rows; - is standard output")
      ->capture_default_str();
  flags.processes.add_flags(app);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::run_command_line(app, argc, argv, [&] {
    if (flags.processes.processes > 1 && flags.output == "-")
      throw rondo::UsageError("several processes write to standard output; name a file with --output");
    return rondo::use_run(flags.run, flags.processes, arguments,
                          [&](const rondo::OpenedRun& opened) { predict(flags, opened); });
  });
}
