"""Libraries that `rondo train` loads: on the CPU none of CUDA's, whatever libtorch is in use."""
import pathlib
import re
import tempfile
import time

from report import OK, SKIPPED, WRONG, Check
from trainings import Failed

SMALL = ["--model", "gpt-tiny", "--steps", 1, "--batch-size", 1]
OF_CUDA = re.compile(r"lib(torch_cuda|c10_cuda|nccl|cudnn|cublas)\b[^/]*\.so|rondo_nccl\.so")
# Runs its arguments, and prints the processor time in seconds and the peak of memory in bytes.
MEASURE = ("import resource, subprocess, sys\n"
           "code = subprocess.run(sys.argv[1:]).returncode\n"
           "used = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
           "print(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)\n"
           "sys.exit(code)\n")


def libraries_of(context, device, deadline):
    """[names of the libraries that the processes of a training initialise], by the dynamic linker's own log."""
    with tempfile.TemporaryDirectory(dir=context.trainings.scratch) as folder:
        context.trainings.train(device, SMALL, deadline.left(60), LD_DEBUG="files", LD_DEBUG_OUTPUT=pathlib.Path(folder) / "log")
        text = "".join(path.read_text(errors="replace") for path in pathlib.Path(folder).iterdir())
    return sorted(set(re.findall(r"calling init: \S*?([^/\s]+)$", text, re.MULTILINE)))


def start_up(context, device, deadline):
    """Processor time in seconds and peak of memory in bytes of a training of one step; the least of two runs."""
    measured = []
    for _ in range(2):
        run_dir = context.trainings.new_run()
        out = context.runner.run(
            [context.python, "-c", MEASURE, context.trainings.program, "train", "--data", context.trainings.text, "--run-dir", run_dir,
             "--device", device, "--progress", "off", "--trace-steps", 0, "--eval-batches", 0, "--matmul", "libtorch", *SMALL],
            deadline.left(60), OMP_NUM_THREADS=1)
        seconds, memory = out.split()[-2:]
        measured.append((float(seconds), float(memory)))
    return min(each[0] for each in measured), min(each[1] for each in measured)


def loading(context):
    deadline = context.deadline_of("loading")

    def add(name, begin, status, text, figures=None):
        context.report.add(Check("loading", name, status, text, time.monotonic() - begin, figures or {}))

    def check(device, wanted):
        begin = time.monotonic()
        name = f"--device {device}"
        try:
            loaded = libraries_of(context, device, deadline)
            of_cuda = [name for name in loaded if OF_CUDA.search(name)]
            text, figures = f"{len(loaded)} libraries, of CUDA's {', '.join(of_cuda) or 'none'}", {"loaded": loaded}
            if not wanted:
                seconds, memory = start_up(context, device, deadline)
                text += f"; one step takes {seconds:.2f} s of processor time and {memory / 1e6:.0f} MB"
                figures |= {"processor_seconds": seconds, "peak_bytes": memory}
        except (Failed, ValueError) as failure:
            add(name, begin, WRONG, str(failure))
            return
        if "libtorch_cpu.so" not in loaded:
            add(name, begin, WRONG, f"the dynamic linker's log names no libtorch_cpu.so: {', '.join(loaded)}")
        else:
            add(name, begin, OK if bool(of_cuda) == wanted else WRONG, text, figures)

    def check_module():
        """Without a card the module with NCCL says so; it has loaded libtorch's CUDA library by then."""
        begin = time.monotonic()
        try:
            context.trainings.train("cpu", [*SMALL, "--backend", "nccl"], deadline.left(60))
        except Failed as failure:
            expected = "sees no GPU" in str(failure) or "has no NCCL" in str(failure)
            add("--backend nccl without a card", begin, OK if expected else WRONG, str(failure))
        else:
            add("--backend nccl without a card", begin, WRONG, "it trains")

    check("cpu", False)
    if context.is_card:
        check("cuda", True)
    elif pathlib.Path("/dev/nvidiactl").exists():
        context.report.add(Check("loading", "--device auto", SKIPPED, "there is a driver, and another device was requested"))
    else:
        check("auto", False)
        check_module()
