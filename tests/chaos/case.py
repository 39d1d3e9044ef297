"""A case: which training, which fault, where and when; drawn from a seed and a number."""
import dataclasses
import random

STEPS = 60
# Flags of each strategy, on how many hosts it may run, ranks of a host, and whether it gives the same losses each time.
@dataclasses.dataclass(frozen=True)
class Strategy:
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
    Strategy("hsdp", ("--shard-ranks", "1"), hosts=(1, 2)),
    Strategy("random", hosts=(1,)),
    Strategy("planned", ("--memory-limit", "1GiB", "--plan-time-limit", "1s"), is_exact=False),
    Strategy("local_sgd", ("--sync-period", "2"), hosts=(1, 2)),
    Strategy("pipeline", ("--micro-batches", "2"), hosts=(1, 2)),
    Strategy("tensor", hosts=(1,)),
    Strategy("context", hosts=(1,)),
    Strategy("expert", ("--experts", "4"), hosts=(1,)),
    Strategy("parameter_server", ("--workers", "2", "--ps", "1"), is_exact=False, has_servers=True),
    Strategy("grouped", ("--groups", "1"), is_exact=False, has_servers=True),
]
FAULTS = ["kill", "stop", "kill launcher", "TERM", "INT", "HUP", "disk", "cut link", "stop host"]
BETWEEN_HOSTS = {"cut link", "stop host"}
MOMENTS = ["starting", "training", "saving"]


@dataclasses.dataclass(frozen=True)
class Case:
    seed: int
    number: int
    strategy: Strategy
    hosts: int
    ranks: int  # of all hosts
    fault: str
    victim: int  # a rank; of servers' processes any of them
    moment: str
    delay: float  # seconds after the moment has come
    at_step: int

    def __str__(self):
        where = f"{self.hosts} hosts, " if self.hosts > 1 else ""
        return (f"{self.seed}:{self.number} {self.strategy.name}, {where}{self.ranks} ranks: {self.fault} "
                f"(rank {self.victim}) while {self.moment}, step {self.at_step} + {self.delay:.2f} s")


def draw(seed, number, only_strategy=None, only_fault=None):
    dice = random.Random(f"{seed}:{number}")
    strategies = [each for each in STRATEGIES if only_strategy in (None, each.name)]
    while True:
        strategy = dice.choice(strategies)
        hosts = dice.choice(strategy.hosts)
        fault = dice.choice([each for each in FAULTS if only_fault in (None, each)])
        if fault in BETWEEN_HOSTS and hosts == 1:
            if max(strategy.hosts) == 1 and only_strategy:
                raise SystemExit(f"{strategy.name} runs on one host here: no fault '{fault}'")
            continue
        ranks = strategy.ranks if hosts == 1 else hosts * dice.choice([1, 2] if hosts == 2 else [1])
        moment = "training" if fault in ("disk", *BETWEEN_HOSTS) else dice.choice(MOMENTS)
        delay = dice.uniform(0, 1.5) if moment == "starting" else dice.uniform(0, 0.05)
        return Case(seed, number, strategy, hosts, ranks, fault, dice.randrange(ranks), moment, delay, dice.randrange(2, STEPS // 2))
