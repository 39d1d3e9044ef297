"""A case: a training, a fault, its victim and its moment; drawn from a seed and a number."""
import dataclasses
import random

STEPS = 60
SAVE_EVERY = 3


@dataclasses.dataclass(frozen=True)
class Strategy:
    """A strategy's flags, possible numbers of hosts, ranks per host, and whether its losses are the same in each
    run."""

    name: str
    flags: tuple = ()
    hosts: tuple = (1,)
    ranks: int = 2
    is_exact: bool = True
    has_servers: bool = False


STRATEGIES = [
    Strategy("default", ranks=1),
    Strategy("one_device", ranks=1),
    Strategy("data_parallel", ("--replicas", "2"), ranks=1),
    Strategy("mirrored", ("--replicas", "2"), ranks=1),
    Strategy("central_storage", ("--replicas", "2"), ranks=1),
    Strategy("ddp", hosts=(1, 2, 3)),
    Strategy("multi_worker_mirrored", ("--replicas", "2"), hosts=(1, 2)),
    Strategy("tpu", hosts=(1, 2)),
    Strategy("zero1", hosts=(1, 2, 3)),
    Strategy("zero2", hosts=(1, 2, 3)),
    Strategy("zero3", hosts=(1, 2, 3)),
    Strategy("zero3_keep", hosts=(1, 2)),
    Strategy("hsdp", ("--shard-ranks", "1"), hosts=(1, 2, 3)),
    Strategy("random", hosts=(1,)),
    Strategy("planned", ("--memory-limit", "1GiB", "--plan-time-limit", "1s"), is_exact=False),
    # Its checkpoints hold one rank's optimizer state, so only plain SGD resumes exactly.
    Strategy("local_sgd", ("--sync-period", "2", "--optimizer", "sgd", "--lr", "0.1"), hosts=(1, 2)),
    Strategy("pipeline", ("--micro-batches", "2"), hosts=(1, 2)),
    Strategy("tensor", hosts=(1, 2)),
    Strategy("context", hosts=(1,)),
    Strategy("expert", ("--experts", "4"), hosts=(1, 2)),
    Strategy("parameter_server", ("--workers", "2", "--ps", "1"), is_exact=False, has_servers=True),
    Strategy("grouped", ("--ps-groups", "1"), is_exact=False, has_servers=True),
]


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault, its kind of victim, and the expected outcome of the training: "fails", "goes on" or "saves" (and
    ends)."""

    name: str
    victim: str  # "rank", "launcher", "host", "link" or "disk"
    outcome: str

    @property
    def needs_hosts(self):
        return self.victim in ("host", "link")


FAULTS = [
    Fault("kill", "rank", "fails"),
    Fault("stop", "rank", "fails"),
    Fault("pause", "rank", "goes on"),
    Fault("late", "rank", "fails"),
    Fault("TERM of a rank", "rank", "saves"),
    Fault("kill launcher", "launcher", "fails"),
    Fault("TERM", "launcher", "saves"),
    Fault("INT", "launcher", "saves"),
    Fault("HUP", "launcher", "saves"),
    Fault("USR1", "launcher", "saves"),
    Fault("full disk", "disk", "fails"),  # at the end, since the last checkpoint cannot be written
    Fault("full disk for a while", "disk", "goes on"),
    Fault("cut link", "link", "fails"),
    Fault("blink link", "link", "goes on"),
    Fault("late link", "link", "fails"),
    Fault("kill host", "host", "fails"),
    Fault("stop host", "host", "fails"),
    Fault("pause host", "host", "goes on"),
]
MOMENTS = ["starting", "training", "saving"]


@dataclasses.dataclass(frozen=True)
class Case:
    seed: int
    number: int
    strategy: Strategy
    hosts: int
    ranks: int  # over all hosts
    fault: Fault
    victim: int  # a rank; with servers any process
    moment: str
    delay: float  # seconds after the moment
    at_step: int

    @property
    def host(self):
        """Returns the victim's host: ranks are numbered by host."""
        return self.victim // (self.ranks // self.hosts)

    def ranks_of_host(self):
        each = self.ranks // self.hosts
        return range(self.host * each, (self.host + 1) * each)

    def __str__(self):
        where = f"{self.hosts} hosts, " if self.hosts > 1 else ""
        what = f"rank {self.victim}" if self.fault.victim == "rank" else f"host {self.host}"
        return (f"{self.seed}:{self.number} {self.strategy.name}, {where}{self.ranks} ranks: {self.fault.name} "
                f"({what}) while {self.moment}, step {self.at_step} + {self.delay:.2f} s")


def draw(seed, number, only_strategy=None, only_fault=None):
    dice = random.Random(f"{seed}:{number}")
    strategies = [each for each in STRATEGIES if only_strategy in (None, each.name)]
    faults = [each for each in FAULTS if only_fault in (None, each.name)]
    if not strategies or not faults:
        raise SystemExit(f"no such strategy or fault; faults are {', '.join(each.name for each in FAULTS)}")
    while True:
        strategy = dice.choice(strategies)
        hosts = dice.choice(strategy.hosts)
        fault = dice.choice(faults)
        if fault.needs_hosts and hosts == 1:
            if not any(max(each.hosts) > 1 for each in strategies):
                raise SystemExit(f"{only_strategy} runs on one host here: no fault '{only_fault}'")
            continue
        if fault.name in ("stop", "late") and hosts * strategy.ranks == 1:
            continue  # no other process would notice it
        ranks = strategy.ranks if hosts == 1 else hosts * dice.choice([1, 2] if hosts == 2 else [1])
        moment = "training" if fault.victim == "disk" else dice.choice(MOMENTS)
        delay = dice.uniform(0, 1.5) if moment == "starting" else dice.uniform(0, 0.05)
        return Case(seed, number, strategy, hosts, ranks, fault, dice.randrange(ranks), moment, delay, dice.randrange(2, STEPS // 2))
