"""Which of PyTorch's test files plugin-peers runs, and how: paths below the folder `test` of PyTorch's sources."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    files: tuple  # several paths are the places where versions of PyTorch have the file; the first that is there is taken
    env: dict = field(default_factory=dict)
    names: str = ""  # an expression as pytest's -k takes it
    together: bool = False  # all files that are there are run


SUITES = {
    # The tests themselves come with torch (torch.testing._internal.distributed.distributed_test).
    "spawn": Suite(("distributed/test_distributed_spawn.py",),
                   env={"BACKEND": "gloo", "WORLD_SIZE": "3"}, names="not cuda and not nccl and not gpu"),
    # ReducerTest has one rank and no communication; "cuda" and "gpu" need one.
    "gloo": Suite(("distributed/test_c10d_gloo.py",), names="not cuda and not gpu"),
    "common": Suite(("distributed/test_c10d_common.py",)),
    "zero": Suite(("distributed/optim/test_zero_redundancy_optimizer.py",)),
    "functional": Suite(("distributed/test_functional_api.py", ), names="not cuda"),
    "objects": Suite(("distributed/test_c10d_object_collectives.py",)),
    "tensor_parallel": Suite(("distributed/tensor/parallel/test_tp_examples.py", "distributed/tensor/parallel/test_tp_style.py",
                              "distributed/tensor/parallel/test_parallelize_api.py"), together=True),
    "dtensor": Suite(tuple(f"distributed/{folder}/test_{name}.py" for folder in ("tensor", "_tensor") for name in
                           ("dtensor", "redistribute", "api", "matrix_ops", "pointwise_ops", "tensor_ops", "math_ops")),
                     together=True),
    "pipelining": Suite(("distributed/pipelining/test_schedule.py", "distributed/pipelining/test_stage.py",
                         "distributed/pipelining/test_schedule_multiproc.py"), together=True),
    "fsdp2": Suite(tuple(f"distributed/_composable/fsdp/test_fully_shard_{name}.py" for name in
                         ("init", "training", "comm", "state_dict", "state", "clip_grad_norm_", "frozen", "mixed_precision")),
                   together=True),
    "checkpoint": Suite(tuple(f"distributed/checkpoint/test_{name}.py" for name in
                              ("checkpoint", "dtensor_checkpoint", "dtensor_resharding", "file_system_checkpoint",
                               "fsdp_model_state", "save_load_api", "state_dict_utils", "tp_checkpoint")), together=True),
}

# Tests that pass over Gloo and not over rondo, by their names, with the reason.
DIFFERENCES = {
    "test_all_to_all_single": "wants an error for a tensor that is not contiguous; rondo copies such a tensor",
    "test_allgather_checks": "wants an error for outputs of two sizes; rondo takes them, and refuses the tensor that is listed twice",
    "test_init_process_group_for_all_backends": "reads the name gloo from the type of the group in C++, which is custom for plug-ins",
    "test_ddp_logging_data_cpu": "reads the name gloo from the type of the group in C++, which is custom for plug-ins",
}
