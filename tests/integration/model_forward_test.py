"""The compiler's error for a model whose forward returns no tensors."""
import json
import shlex
import subprocess

WORDS = "a model's forward returns a tensor, a vector or a tuple of tensors"
TAKES = "a model's forward takes one to six tensors"

PROGRAM = """#include "rondo/nn/model.h"
using at::Tensor;
rondo::ForwardFunction right[] = {[](const Tensor& x) { return x; }, [](const rondo::Tensors& all) { return all; },
                                  [](Tensor x, Tensor y) { return std::make_tuple(x, y); }};
"""
SILENT_MODULE = """struct Silent : torch::nn::Module {
  void forward(const Tensor&) {}
};
rondo::Model silent() { return rondo::as_model(std::make_shared<Silent>()); }
"""
WRONG = {
    "a module's void": SILENT_MODULE,
    "void": "rondo::ForwardFunction nothing = [](const Tensor&) {};\n",
    "void of all inputs": "rondo::ForwardFunction none = [](const rondo::Tensors&) {};\n",
    "a number": "rondo::ForwardFunction number = [](const Tensor&) { return 1.5; };\n",
    "a number in a tuple": "rondo::ForwardFunction mixed = [](const Tensor& x) { return std::make_tuple(x, 2); };\n",
}


def test_the_compiler_says_what_a_forward_returns(repository, rondo_bin, tmp_path):
    source = tmp_path / "forward.cpp"
    source.write_text(PROGRAM + "".join(WRONG.values()) + "rondo::ForwardFunction deaf = [](int) {};\n")
    # As a source of the build, whose precompiled header saves most of the time.
    units = json.loads((rondo_bin.parent / "compile_commands.json").read_text())
    command, = [shlex.split(unit["command"]) for unit in units if "rondo_torch_header.dir/Unity/" in unit["file"]]
    words = [word for word in command[:command.index("-o")] if word != "-Werror"]
    result = subprocess.run([*words, "-fsyntax-only", "-I", repository, source], capture_output=True, text=True, timeout=300)
    errors = [line for line in result.stderr.splitlines() if "error:" in line]
    assert [WORDS in line for line in errors].count(True) == len(WRONG), result.stderr
    assert [line for line in errors if WORDS not in line and TAKES not in line] == []
    assert [TAKES in line for line in errors].count(True) == 1
