// `rondo export`: a trained model for others.
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <span>

#include "apps/common/command_line.h"
#include "apps/export/hugging_face.h"
#include "apps/train/run_arguments.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/file.h"
#include "rondo/models/model_options.h"
#include "rondo/models/model_setup.h"
#include "rondo/models/script.h"

namespace {

namespace fs = std::filesystem;

struct ExportFlags {
  rondo::RunArguments run;
  std::string output;
  std::string format = "torchscript";
  bool overwrite = false;
  std::string json;
};

// A TorchScript model stays what it was, with the weights that it has now.
torch::jit::Module script_of_file(const std::string& path, const rondo::Model& model) {
  torch::jit::Module script = rondo::load_script(path);
  rondo::prepare_assign(rondo::named_tensors(script), rondo::named_tensors(*model.module), path)();
  script.eval();
  return script;
}

struct Written {
  bool any_batch = true;     // of TorchScript: whether it takes any number of samples
  std::int64_t samples = 2;  // else this one
};

// In a new file, on the disk. libtorch itself would follow a link of the name, and does not sync.
void save_script(const torch::jit::Module& script, const rondo::ReplacedFile& target) {
  rondo::OutputFile file(target.temporary(), rondo::OutputFile::Mode::create, target.target());
  std::exception_ptr failure;
  try {
    torch::jit::ExportModule(script, [&](const void* data, std::size_t size) -> std::size_t {
      try {
        file.write(std::span(static_cast<const std::byte*>(data), size));
        return size;
      } catch (...) {  // which libtorch would tell in its own words
        failure = std::current_exception();
        return 0;
      }
    });
  } catch (const c10::Error& error) {
    if (failure) std::rethrow_exception(failure);
    throw rondo::Error(
        rondo::str("cannot write ", target.target().string(), ": ", error.what_without_backtrace()));
  }
  file.sync();
  file.close();
}

Written write_script(const rondo::Model& model, const rondo::TrainedRun& run,
                     const rondo::ReplacedFile& target) {
  Written written;
  const auto file = rondo::model_file(run.flags.model);
  torch::jit::Module script;
  if (file && !file->is_module) {
    script = script_of_file(file->path, model);
  } else {
    const at::Tensor example = rondo::example_batch(model, written.samples).input;
    script = rondo::script_of(model, example, written.any_batch);
  }
  save_script(script, target);
  return written;
}

void check_output(const ExportFlags& flags) {
  if (flags.format == "huggingface" || flags.overwrite || !fs::exists(fs::symlink_status(flags.output)))
    return;
  throw rondo::UsageError(rondo::str("-o ", flags.output, " exists; give --overwrite to replace it"));
}

int export_run(const ExportFlags& flags) {
  check_output(flags);
  const rondo::TrainedRun run = flags.run.open(/*needs_data=*/false);
  rondo::say_average(run.is_average, run.checkpoint);
  const rondo::Model model = rondo::load_run_model(run);
  model.module->eval();
  Written written;
  if (flags.format == "huggingface") {
    rondo::write_hugging_face(flags.output, model, run);
  } else {
    rondo::ReplacedFile file(flags.output, rondo::ReplacedFile::Links::follow);
    if (flags.format == "torchscript") {
      written = write_script(model, run, file);
    } else {
      rondo::write_tensors(file.temporary(), rondo::named_tensors(*model.module));
    }
    file.commit();
  }
  if (!written.any_batch)
    std::fprintf(
        stderr,
        "rondo export: the model was traced, and reads sizes as numbers: the file is for batches of %lld "
        "samples only\n",
        static_cast<long long>(written.samples));
  if (flags.json != "-") std::printf("%s\n", flags.output.c_str());
  rondo::write_json(flags.json, {{"run_dir", flags.run.run_dir},
                                 {"checkpoint", run.checkpoint.string()},
                                 {"step", run.step},
                                 {"model", model.name},
                                 {"format", flags.format},
                                 {"output", flags.output},
                                 {"samples", written.any_batch ? nlohmann::ordered_json()
                                                               : nlohmann::ordered_json(written.samples)}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ExportFlags flags;
  CLI::App app("Writes a trained model for others.", "rondo export");
  app.footer(
      "Examples:\n"
      "  rondo export runs/digits -o model.pt                              # torch.jit.load('model.pt')(x) "
      "in "
      "Python\n"
      "  rondo export runs/digits -o weights.safetensors --format safetensors\n"
      "  rondo export runs/gpt -o folder --format huggingface              "
      "# AutoModelForCausalLM.from_pretrained('folder')");
  flags.run.add_model_flags(app);
  app.add_option("-o,--output", flags.output, "File, or for huggingface the folder, to write")->required();
  app.add_option(
         "--format", flags.format,
         "torchscript: runs without rondo; safetensors: weights; huggingface: a folder, of gpt and bert")
      ->check(CLI::IsMember({"huggingface", "safetensors", "torchscript"}))
      ->capture_default_str();
  app.add_flag("--overwrite", flags.overwrite, "Replace a file that exists");
  app.add_option("--json", flags.json, "Write what was written as JSON to this file; - is standard output");
  return rondo::run_command_line(app, argc, argv, [&] { return export_run(flags); });
}
