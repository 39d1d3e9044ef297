#include "apps/checkpoint/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Inspect, verify, compare and convert checkpoints.", "rondo checkpoint");
  app.require_subcommand(1);
  app.footer(
      "For CHECKPOINT, a directory of checkpoints or a run directory means its newest "
      "checkpoint.\n\nExamples:\n  rondo checkpoint inspect runs/gpt                           # tensors, "
      "steps and values of the newest one\n  rondo checkpoint verify runs/gpt/checkpoints/step-00001000  # "
      "read every byte and compare checksums\n  rondo checkpoint diff runs/a runs/b                         "
      "# which tensors differ, and by how much\n  rondo checkpoint convert model.pt weights.safetensors      "
      " # a torch::save archive as safetensors\n  rondo checkpoint convert runs/gpt gpt.pt                   "
      " # a checkpoint for torch::load\n  rondo checkpoint convert model.pt checkpoints/              # "
      "initial weights as a checkpoint of step 0\n  rondo checkpoint merge runs/gpt whole/                   "
      "   # a checkpoint in parts as one that others read");
  const std::vector<rondo::Command> commands{rondo::add_inspect(app), rondo::add_verify(app),
                                             rondo::add_diff(app),    rondo::add_convert(app),
                                             rondo::add_reshard(app), rondo::add_merge(app)};
  return rondo::run_commands(app, argc, argv, commands);
}
