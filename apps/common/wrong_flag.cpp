#include "apps/common/wrong_flag.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "rondo/base/text.h"

namespace rondo {
namespace {

// Names in other programs for one of rondo's flags.
struct FieldWords {
  const char* words;
  const char* name;
  const char* text = nullptr;  // text to suggest, if the suggestion is more than a flag
};

// rondo's programs may have different flags with one meaning: the first that the program has is suggested.
constexpr FieldWords kFieldWords[] = {
    {"learning-rate learningrate eta alpha base-lr max-lr peak-lr step-size", "lr"},
    {"bf16 bfloat16 amp-bf16 use-bf16 half bf16-mixed autocast mixed", "precision",
     "--precision O1 --amp-dtype bfloat16"},
    {"fp16 float16 amp-fp16 use-fp16 fp16-mixed apex", "precision", "--precision O1 --amp-dtype float16"},
    {"fp32 float32 full-precision tf32", "precision", "--precision O0"},
    {"amp amp-level opt-level fp16-opt-level use-amp", "precision"},
    {"dtype torch-dtype compute-dtype half-precision-backend", "amp-dtype"},
    {"batch bs batchsize mini-batch-size minibatch-size micro-batch-size train-batch-size samples-per-gpu "
     "per-device-train-batch-size per-gpu-train-batch-size train-micro-batch-size-per-gpu batch-per-gpu "
     "device-batch-size",
     "batch-size"},
    {"total-batch-size effective-batch-size batch-size-total", "global-batch-size"},
    {"per-device-eval-batch-size val-batch-size validation-batch-size test-batch-size", "eval-batch-size"},
    {"gpus ngpus num-gpus n-gpus gpus-per-node nproc nprocs np num-processes num-procs processes world-size "
     "n-devices "
     "ntasks ntasks-per-node num-workers-per-node",
     "nproc-per-node"},
    {"num-nodes nodes hosts num-hosts machines num-machines", "nnodes"},
    {"node-id machine-rank host-rank", "node-rank"},
    {"main-process-ip master master-address coordinator-address", "master-addr"},
    {"main-process-port port", "master-port"},
    {"num-epochs n-epochs nb-epoch num-train-epochs max-epochs epoch", "epochs"},
    {"max-steps num-steps train-iters max-iters iterations num-iterations total-steps num-training-steps",
     "steps"},
    {"limit-val-batches validation-steps eval-iters val-batches eval-steps-limit batches", "eval-batches"},
    {"gradient-accumulation grad-accum grad-accum-steps grad-accumulation-steps accumulate "
     "accumulation-steps "
     "accumulate-grad-batches accum-freq update-freq",
     "gradient-accumulation-steps"},
    {"clip-norm clip-grad clip-grad-norm grad-clip gradient-clip gradient-clipping gradient-clip-val "
     "grad-norm clipnorm "
     "clip",
     "max-grad-norm"},
    {"warmup warm-up warmup-iters warmup-updates lr-warmup lr-warmup-iters num-warmup-steps warmup-ratio",
     "warmup-steps"},
    {"schedule scheduler lr-scheduler lr-scheduler-type lr-decay lr-decay-style sched lr-policy",
     "lr-schedule"},
    {"lr-end min-lr end-lr final-lr lr-final min-lr-rate", "lr-min-ratio"},
    {"lr-step decay-epochs decay-steps step-epochs lr-decay-steps", "lr-step-size"},
    {"lr-factor gamma decay-rate lr-decay-rate", "lr-gamma"},
    {"checkpoint-activations gradient-checkpointing recompute recompute-granularity activation-recomputation "
     "recompute-activations remat",
     "activation-checkpointing"},
    {"optim opt optimiser", "optimizer"},
    {"wd l2 weightdecay", "weight-decay"},
    {"decay no-decay-bias", "weight-decay-on"},
    {"adam-beta1 b1", "beta1"},
    {"adam-beta2 b2", "beta2"},
    {"trust trust-coefficient eeta", "lars-trust-coefficient"},
    {"init pretrained pretrained-model model-name-or-path from-hf hf-model", "from-pretrained"},
    {"init-weights weights load-weights pretrained-weights load-model initialize-from load", "init-from"},
    {"init-partial strict", "init-strict", "--init-strict false"},
    {"average-weights ema ema-rate swa weight-averaging", "ema-decay"},
    {"early-stopping patience early-stop", "early-stopping-patience"},
    {"reduce-on-plateau reduce-lr-on-plateau plateau", "lr-plateau-patience"},
    {"keep save-total-limit max-to-keep keep-last save-top-k", "keep-checkpoints"},
    {"best-of save-best save-best-only load-best-model-at-end monitor metric-for-best-model", "keep-best"},
    {"checkpoint-in-parts sharded-checkpoint dist-checkpoint", "checkpoint-sharded"},
    {"checkpoint-in-background async-save async-checkpoint", "checkpoint-async"},
    {"save-steps save-every save-interval save-freq checkpoint-interval ckpt-every every-n-train-steps",
     "checkpoint-every"},
    {"eval-steps eval-interval val-check-interval validation-freq evaluate-every", "eval-every"},
    {"logging-steps log-interval log-every-n-steps print-freq logging-interval", "log-every"},
    {"output-dir out-dir outdir save-dir save logdir log-dir workdir default-root-dir checkpoint-dir "
     "experiment-dir",
     "run-dir"},
    {"resume-from-checkpoint ckpt-path restart continue load-checkpoint", "resume"},
    {"checkpoint model-path", "checkpoint"},
    {"seq-length sequence-length context context-length segment-size max-seq-len max-seq-length max-length "
     "n-ctx ctx-len "
     "max-position-embeddings",
     "seq-len"},
    {"hidden-size d-model n-embd dim hidden-dim embed-dim emb-dim", "width"},
    {"num-layers n-layer n-layers depth num-hidden-layers", "layers"},
    {"num-heads n-head n-heads num-attention-heads", "heads"},
    {"num-experts n-experts moe-experts", "experts"},
    {"dataset train-data data-path data-dir train-file train-dir dataset-path input", "data"},
    {"workers num-workers dataloader-num-workers data-workers loader-workers n-workers", "loader-threads"},
    {"val-split validation-split test-size val-fraction", "validation-fraction"},
    {"criterion loss-fn objective", "loss"},
    {"arch architecture network net", "model"},
    {"random-seed manual-seed rng-seed", "seed"},
    {"distributed-strategy distribution parallel distributed parallelism sharding", "strategy"},
    {"fsdp fully-sharded zero zero-stage deepspeed", "strategy", "--strategy zero3"},
    {"ddp data-parallel distributed-data-parallel", "strategy", "--strategy ddp"},
    {"tp tensor-parallel tensor-parallel-size tensor-model-parallel-size tp-size", "mesh", "--mesh tensor=N"},
    {"pp pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size pp-size", "mesh",
     "--mesh pipeline=N"},
    {"cp context-parallel context-parallel-size cp-size sequence-parallel-size", "mesh", "--mesh context=N"},
    {"ep expert-parallel expert-model-parallel-size expert-parallel-size ep-size", "mesh", "--mesh expert=N"},
    {"dist-backend distributed-backend communication-backend ddp-backend process-group-backend engine",
     "backend"},
    {"bucket-bytes bucket-cap-mb ddp-bucket-cap-mb reduce-bucket-size", "bucket-size"},
    {"block-bytes chunk-bytes", "segment-size"},
    {"meshes search mesh-search", "plan-search"},
    {"time-limit max-search-time", "plan-time-limit"},
    {"shard-group sharding-group", "shard-ranks"},
    {"outer diloco", "outer-optimizer"},
    {"end-of-document eos eos-token eod", "eos-token-id"},
    {"use-cuda no-cuda cuda accelerator gpu", "device"},
    {"cpu use-cpu", "device", "--device cpu"},
    {"use-deterministic-algorithms reproducible", "deterministic"},
    {"ddp-find-unused-parameters", "find-unused-parameters"},
    {"dist-timeout ddp-timeout distributed-timeout", "timeout"},
    {"max-memory memory memory-budget mem-limit", "memory-limit"},
    {"grad-scaler loss-scaling initial-scale-power init-scale", "loss-scale"},
    {"report-to logger loggers tracker log-with", "log-to"},
    {"tb tensor-board", "tensorboard"},
    {"open-telemetry opentelemetry otel", "otlp"},
    {"json jsonlines", "jsonl"},
    {"tensorboard use-tensorboard", "log-to", "--log-to tensorboard"},
    {"mlflow", "log-to", "--log-to mlflow"},
    {"prometheus metrics-port prometheus-port", "log-to", "--log-to prometheus"},
    {"otlp", "log-to", "--log-to otlp"},
    {"csv-log", "log-to", "--log-to csv"},
    {"json-log", "log-to", "--log-to jsonl"},
    {"cfg config-file conf yaml", "config"},
    {"verbose quiet silent", "progress"},
    {"prompt generate", "sample"},
    {"max-new-tokens num-tokens max-tokens", "length"},
    {"output out output-file json-out", "json"},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

bool has_name(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

FlagHint by_meaning(const std::string& given, const std::vector<std::string>& names) {
  for (const FieldWords& entry : kFieldWords) {
    if (!has_name(names, entry.name)) continue;
    for (const std::string& word : split(entry.words, ' ')) {
      if (word == given) return {entry.name, entry.text != nullptr ? entry.text : str("--", entry.name)};
    }
  }
  return {};
}

std::string by_beginning(const std::string& given, const std::vector<std::string>& names) {
  constexpr std::size_t kLeast = 4;
  std::string found;
  if (given.size() < kLeast) return found;
  for (const std::string& name : names) {
    if (!name.starts_with(given)) continue;
    if (!found.empty()) return {};
    found = name;
  }
  return found;
}

std::string by_letters(const std::string& given, const std::vector<std::string>& names) {
  std::string nearest;
  std::size_t least = std::clamp<std::size_t>(given.size() * 2 / 5, 1, 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(name, given);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace

FlagHint suggest_flag(const std::string& given, const std::vector<std::string>& names) {
  std::string name = given;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return c == '_' ? '-' : static_cast<char>(std::tolower(c)); });
  if (FlagHint hint = by_meaning(name, names); !hint.name.empty()) return hint;
  std::string near = by_beginning(name, names);
  if (near.empty()) near = by_letters(name, names);
  return near.empty() ? FlagHint{} : FlagHint{near, "--" + near};
}

std::string suggest_option(const std::string& given, const std::vector<std::string>& names) {
  return suggest_flag(given, names).name;
}

}  // namespace rondo
