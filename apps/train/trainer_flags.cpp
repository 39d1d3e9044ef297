#include "apps/train/trainer_flags.h"

namespace rondo {

OptionsOf<TrainerFlags> trainer_flags_table() {
  using Flags = TrainerFlags;
  OptionsOf<TrainerFlags> table;
  table.begin_group("Epochs, metrics, weights (docs/trainer.md)");
  table.add("steps-per-epoch", &Flags::steps_per_epoch,
            "An epoch ends after so many steps, wherever the data is; 0 is a pass over it", zero_or_more());
  table.add(
      "metrics", &Flags::metrics,
      "Of validations beside the loss: accuracy, auc, f1, mae, mse, perplexity, precision, recall, top_k; "
      "default: as the model has it");
  table.add("class-weights", &Flags::class_weights, "What a prediction of each class counts in the loss");
  table.begin_group("Alongside training (docs/trainer.md)");
  table.add("restore-best", &Flags::restore_best,
            "With --early-stopping-patience: end with the weights of the best validation");
  table.add("keep-best", &Flags::best_of,
            "Keep checkpoints of the best validations by this metric in RUN/best");
  table.add("lr-plateau-patience", &Flags::reduce_on_plateau,
            "A tenth of the learning rate after so many validations without a better loss; 0 is never",
            zero_or_more());
  table.add("terminate-on-nan", &Flags::terminate_on_nan, "End training at a loss that is not finite");
  table.add("gradient-norm-every", &Flags::gradient_norm_every,
            "Steps between measurements of the gradients' norm; 0 is never", zero_or_more());
  table.add(
      "ema-decay", &Flags::average_weights,
      "Decay of an average of the weights, which is validated, kept in RUN/average and ended with; 0 is none",
      within(0, 0.999999));
  table.add("csv-log", &Flags::csv_log, "A row for every epoch to this CSV file").type = "FILE";
  table.add("json-log", &Flags::json_log, "A JSON object for every epoch to this file").type = "FILE";
  table.add("log-to", &Flags::log_to, "Besides metrics.jsonl: tensorboard, mlflow, or both with a comma");
  table.add("mlflow-dir", &Flags::mlflow_dir, "With --log-to mlflow: the folder of runs; default RUN/mlruns")
      .type = "DIR";
  table.add("histograms-every", &Flags::histograms_every,
            "Steps between TensorBoard's histograms of every weight and gradient; 0 is never",
            zero_or_more());
  table
      .add("peak-flops", &Flags::peak_flops,
           "Floating-point operations a second that a rank can do, as 140e12, or measured: then metrics have "
           "mfu "
           "(docs/trainer.md)")
      .type = "FLOPS";
  table
      .add(
          "prometheus", &Flags::prometheus,
          "Serve the newest figures for Prometheus on rank 0; without a host 127.0.0.1, port 0 is a free one")
      .type = "[HOST:]PORT";
  table
      .add("preemption-file", &Flags::preemption_file,
           "End in good order, as at TERM, when this file appears on a host")
      .type = "FILE";
  table.add("trace-after", &Flags::trace_after, "Steps before the first of --trace-steps", zero_or_more());
  table.without_flags({"class-weights", "csv-log", "lr-plateau-patience", "gradient-norm-every",
                       "histograms-every", "json-log", "mlflow-dir", "peak-flops", "preemption-file",
                       "restore-best", "steps-per-epoch", "terminate-on-nan", "trace-after"});
  return table;
}

}  // namespace rondo
