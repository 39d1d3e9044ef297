"""Results of the checks: a line for each as it ends, a table, a JSON document and the exit code."""
import dataclasses
import json
import threading

OK, WRONG, KNOWN, SKIPPED = "ok", "WRONG", "known", "skipped"


@dataclasses.dataclass
class Check:
    part: str
    name: str
    status: str  # OK, WRONG, KNOWN (fails as it is known to), SKIPPED
    text: str  # what was found, or why it was skipped
    seconds: float = 0.0
    figures: dict = dataclasses.field(default_factory=dict)


class Report:
    """Filled by several threads."""

    def __init__(self, facts):
        self.facts = facts  # of the machine and the programs
        self.checks = []
        self.seconds = {}  # of each part
        self._lock = threading.Lock()  # of `checks`

    def add(self, check):
        with self._lock:
            self.checks.append(check)
            print(f"{check.status:7} {check.part}: {check.name}: {check.text} ({check.seconds:.1f} s)", flush=True)

    def count(self, status):
        return sum(check.status == status for check in self.checks)

    def exit_code(self):
        return 1 if self.count(WRONG) or not self.count(OK) else 0

    def print_table(self):
        parts = list(dict.fromkeys(check.part for check in self.checks))
        print(f"\n{'part':12}{'ok':>5}{'WRONG':>7}{'known':>7}{'skipped':>9}{'seconds':>9}")
        for part in parts:
            counts = [sum(check.status == status for check in self.checks if check.part == part)
                      for status in (OK, WRONG, KNOWN, SKIPPED)]
            print(f"{part:12}{counts[0]:5}{counts[1]:7}{counts[2]:7}{counts[3]:9}{self.seconds.get(part, 0.0):9.1f}")
        timed = [check for check in self.checks if "median_ms" in check.figures]
        if timed:
            print(f"\n{'step':44}{'median ms':>11}{'least ms':>10}{'tokens/s':>11}{'MFU':>7}")
        for check in timed:
            figures = check.figures
            share = f"{figures['mfu']:7.3f}" if figures.get("mfu") else f"{'':7}"
            print(f"{check.name:44}{figures['median_ms']:11.1f}{figures['least_ms']:10.1f}{figures['tokens_per_s']:11,.0f}{share}")

    def write(self, path):
        document = {"format": "rondo gpu check", "version": 1, "facts": self.facts, "seconds": self.seconds,
                    "exit_code": self.exit_code(), "checks": [dataclasses.asdict(check) for check in self.checks]}
        with open(path, "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
