// Distillation: a small BERT learns from a larger one's outputs for unlabelled texts (Hinton, Vinyals and
// Dean, "Distilling the knowledge in a neural network", 2015), data-parallel.
//   rondo run -n 2 build/release/bin/examples/distillation
#include <torch/autograd.h>
#include <torch/optim/adamw.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdio>
#include <functional>

#include "rondo/collectives.h"
#include "rondo/models.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"

namespace {

constexpr std::int64_t kVocabulary = 40, kLength = 12, kBatch = 16;

// Synthetic texts. A sample's class says whether most of its tokens are from the upper or the lower half of
// the vocabulary.
struct Texts {
  at::Tensor input;   // [samples, 3, length]: tokens, token types, mask
  at::Tensor labels;  // hidden from the student
};

Texts make_texts(std::int64_t samples) {
  const at::Tensor tokens = at::randint(1, kVocabulary, {samples, kLength}, at::kLong);
  const at::Tensor labels = tokens.ge(kVocabulary / 2).sum(1).gt(kLength / 2).to(at::kLong);
  return {at::stack({tokens, at::zeros_like(tokens), at::ones_like(tokens)}, 1), labels};
}

rondo::Model make_bert(std::int64_t layers, std::int64_t width) {
  return rondo::make_model("bert", {{"vocabulary", kVocabulary},
                                    {"positions", kLength},
                                    {"layers", layers},
                                    {"heads", 2},
                                    {"width", width},
                                    {"intermediate", 2 * width},
                                    {"dropout", 0.0},
                                    {"attention_dropout", 0.0},
                                    {"classifier_dropout", 0.0}});
}

// Returns the Kullback-Leibler divergence of the student's from the teacher's probabilities, both softened by
// the temperature. The factor temperature^2 keeps gradients as large as those of hard labels.
at::Tensor soft_target_loss(const at::Tensor& student, const at::Tensor& teacher, double temperature) {
  return at::kl_div((student / temperature).log_softmax(-1), (teacher / temperature).log_softmax(-1),
                    at::Reduction::Sum, /*log_target=*/true) *
         (temperature * temperature / static_cast<double>(student.size(0)));
}

void train(const rondo::Model& model, const rondo::Context& context, int steps,
           const std::function<at::Tensor(const at::Tensor& logits, const Texts& texts)>& loss) {
  rondo::DistributedDataParallel ddp(*model.module, context.world());
  torch::optim::AdamW optimizer(model.module->parameters(), torch::optim::AdamWOptions(2e-3));
  for (int step = 0; step < steps; ++step) {
    const Texts texts = make_texts(kBatch);
    optimizer.zero_grad();
    loss(ddp.forward(model, texts.input), texts).backward();
    optimizer.step();
  }
}

// Returns the fraction of 512 texts per rank that `model` classifies correctly.
double accuracy(const rondo::Model& model, const rondo::Context& context) {
  const torch::NoGradGuard no_gradients;
  const Texts texts = make_texts(512);
  at::Tensor correct = rondo::count_correct(model.forward(texts.input), texts.labels).to(at::kDouble);
  rondo::all_reduce(correct, context.world(), rondo::ReduceOp::AVG);
  return correct.item<double>() / 512;
}

}  // namespace

int main() {
  const rondo::Context context = rondo::init();
  torch::manual_seed(context.rank());  // each rank draws its own texts; weights are rank 0's
  const auto say = [&](const char* what, double value) {
    if (context.rank() == 0) std::printf("%s %.3f\n", what, value);
  };

  const rondo::Model teacher = make_bert(/*layers=*/3, /*width=*/48);
  train(teacher, context, 100, [](const at::Tensor& logits, const Texts& texts) {
    return rondo::cross_entropy(logits, texts.labels).mean;
  });
  teacher.module->eval();
  for (at::Tensor& parameter : teacher.module->parameters()) parameter.requires_grad_(false);
  say("teacher accuracy", accuracy(teacher, context));

  const rondo::Model student = make_bert(/*layers=*/1, /*width=*/16);
  say("student before accuracy", accuracy(student, context));
  train(student, context, 200, [&](const at::Tensor& logits, const Texts& texts) {
    return soft_target_loss(logits, teacher.forward(texts.input), /*temperature=*/2.0);
  });
  student.module->eval();
  say("student accuracy", accuracy(student, context));
  return 0;
}
