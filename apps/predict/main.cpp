// `rondo predict`: what a trained model says of data.
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <numeric>
#include <optional>
#include <sstream>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/predict/rows.h"
#include "apps/train/opened_run.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/format/file.h"
#include "rondo/observe/progress.h"
#include "rondo/strategy/value_collectives.h"
#include "rondo/train/agreement.h"

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

// Rows go to `sink` on rank 0, in the order of samples; ranks compute batches by turns.
void write_rows(const PredictFlags& flags, const rondo::OpenedRun& opened, const Sink& sink) {
  const at::NoGradGuard no_gradients;
  const rondo::Dataset& data = *opened.data;
  const rondo::Context& context = opened.context;
  std::ostringstream text;
  std::unique_ptr<rondo::PredictionRows> rows;
  const std::int64_t together = flags.batch_size * context.world_size();
  const std::int64_t batches = rondo::divide_rounding_up(data.size(), flags.batch_size);
  rondo::ProgressOptions shown;
  // Rows on a terminal are their own progress.
  if (context.rank() > 0 || (flags.output == "-" && isatty(STDOUT_FILENO) != 0))
    shown.style = rondo::ProgressStyle::off;
  rondo::Progress progress(stderr, shown);
  for (std::int64_t first = 0; first < data.size(); first += together) {
    const std::int64_t begin = std::min(data.size(), first + flags.batch_size * context.rank());
    // Empty where the last batches are other ranks'.
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
  // On rank 0, and told to all.
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
      "What a trained model says of data: class and probabilities, tokens, or numbers, a row for each "
      "sample.",
      "rondo predict");
  app.footer(
      "A table may lack the column that is predicted. Of images in folders with a test part, that part is "
      "read.\n\n"
      "Examples:\n"
      "  rondo predict runs/iris --data new_flowers.csv\n"
      "  rondo predict runs/digits --data mnist/ --format jsonl -o predictions.jsonl\n"
      "  rondo predict runs/digits --data mnist/ --nproc-per-node 2 -o predictions.csv");
  flags.run.add_model_flags(app);
  flags.run.add_data_flags(app, "File or directory to predict for");
  app.get_option("--data")->required();
  rondo::RunArguments::add_batch_size_flag(app, flags.batch_size);
  app.add_option("--format", flags.format, "csv: class or numbers in columns; jsonl: a JSON object a line")
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
