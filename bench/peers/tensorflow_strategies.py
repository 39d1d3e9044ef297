"""One strategy of TensorFlow on this host's cores, SGD, batch 32 per replica; prints {"steps_per_s": ...} as JSON.

  tensorflow_strategies.py parameter_server|mirrored|multi_worker_mirrored [--model mlp|convnet|embedding] [--seconds 5]

mlp: 784-128-64-10. convnet: rondo's, two blocks of 16 and 32 channels. embedding: 40,000 x 64 (10 MB), 20 words per
sample. parameter_server: two workers and a server as processes, with the sum of both workers' steps. mirrored: two
replicas in a process. multi_worker_mirrored: two processes. Needs TensorFlow; bench/strategies.py --tensorflow creates
an environment for it."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "integration"))
from launching import reserved_ports  # noqa: E402

BATCH, RATE, WORDS, WIDTH, IN_A_SAMPLE = 32, 0.01, 40_000, 64, 20
SHAPES = {
    "mlp": [(784, 128), (128,), (128, 64), (64,), (64, 10), (10,)],
    "convnet": [(3, 3, 1, 16), (16,), (3, 3, 16, 32), (32,), (7 * 7 * 32, 64), (64,), (64, 10), (10,)],
    "embedding": [(WORDS, WIDTH), (WIDTH, 10), (10,)],
}


def make_variables(tf, model):
    return [tf.Variable(tf.random.normal(shape, stddev=0.05, seed=1), aggregation=tf.VariableAggregation.SUM) for shape in SHAPES[model]]


def logits_of(tf, model, variables, inputs):
    rest = list(variables)
    if model == "embedding":
        values = tf.reduce_mean(tf.gather(rest.pop(0), inputs), axis=1)
    elif model == "convnet":
        values = tf.reshape(inputs, (-1, 28, 28, 1))
        for _ in range(2):
            values = tf.nn.conv2d(values, rest.pop(0), 1, "SAME") + rest.pop(0)
            values = tf.nn.max_pool2d(tf.nn.relu(values), 2, 2, "VALID")
        values = tf.reshape(values, (-1, 7 * 7 * 32))
    else:
        values = inputs
    while rest:
        values = tf.matmul(values, rest.pop(0)) + rest.pop(0)
        if rest:
            values = tf.nn.relu(values)
    return values


def gradients_of(tf, model, variables, inputs, labels):
    with tf.GradientTape() as tape:
        logits = logits_of(tf, model, variables, inputs)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    return tape.gradient(loss, variables)


def descend(tf, variable, gradient, rate):
    if isinstance(gradient, tf.IndexedSlices):
        variable.scatter_sub(tf.IndexedSlices(gradient.values * rate, gradient.indices))
    else:
        variable.assign_sub(gradient * rate)


def data(tf, model, batch):
    inputs = tf.random.normal((4096, 784), seed=2)
    if model == "embedding":
        inputs = tf.random.uniform((4096, IN_A_SAMPLE), maxval=WORDS, dtype=tf.int32, seed=2)
    labels = tf.random.uniform((4096,), maxval=10, dtype=tf.int32, seed=3)
    return tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(batch, drop_remainder=True).prefetch(2)


def rate_of(step, seconds, steps_a_call=1):
    for _ in range(20):
        step()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        step()
        count += steps_a_call
    return count / (time.perf_counter() - begin)


def synchronous(tf, strategy, model, seconds):
    """Runs steps of a custom loop, as in TensorFlow's guide: all replicas together take one step."""
    with strategy.scope():
        variables = make_variables(tf, model)
    replicas = strategy.num_replicas_in_sync
    batches = iter(strategy.experimental_distribute_dataset(data(tf, model, BATCH * replicas)))

    def of_replica(inputs, labels):
        for variable, gradient in zip(variables, gradients_of(tf, model, variables, inputs, labels)):
            descend(tf, variable, gradient, RATE / replicas)

    @tf.function
    def step(batch):
        strategy.run(of_replica, args=batch)

    return rate_of(lambda: step(next(batches)), seconds)


def mirrored(model, seconds):
    import tensorflow as tf
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    return synchronous(tf, tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]), model, seconds)


def worker(model, seconds):
    import tensorflow as tf
    rate = synchronous(tf, tf.distribute.MultiWorkerMirroredStrategy(), model, seconds)
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
        print(json.dumps({"steps_per_s": rate}), flush=True)
    os._exit(0)  # the other one may be in the middle of a step


def multi_worker_mirrored(model, seconds):
    with reserved_ports(2) as ports:
        addresses, processes = [f"127.0.0.1:{port}" for port in ports], []
        for index in range(2):
            config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            processes.append(subprocess.Popen([sys.executable, __file__, "worker", "--model", model, "--seconds", str(seconds)],
                                              stdout=subprocess.PIPE, text=True, env=dict(os.environ, TF_CONFIG=json.dumps(config))))
        output = processes[0].communicate()[0]
        processes[1].kill()
        processes[1].wait()
    return json.loads(output)["steps_per_s"]


def serve(role, index, cluster):
    import tensorflow as tf
    tf.distribute.Server(tf.train.ClusterSpec(json.loads(cluster)), job_name=role, task_index=index, protocol="grpc").join()


def parameter_server(model, seconds):
    with reserved_ports(3) as ports:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports[:2]], "ps": [f"127.0.0.1:{ports[2]}"]}
        processes = [subprocess.Popen([sys.executable, __file__, "serve", "--role", role, "--index", str(index), "--cluster", json.dumps(cluster)])
                     for role, index in (("ps", 0), ("worker", 0), ("worker", 1))]
        try:
            return with_servers(cluster, model, seconds)
        finally:
            for process in processes:
                process.kill()
                process.wait()


def with_servers(cluster, model, seconds):
    import tensorflow as tf
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(cluster), rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        variables = make_variables(tf, model)

    @tf.function
    def step(batches):
        def of_replica(inputs, labels):
            for variable, gradient in zip(variables, gradients_of(tf, model, variables, inputs, labels)):
                descend(tf, variable, gradient, RATE)
        strategy.run(of_replica, args=next(batches))

    batches = iter(coordinator.create_per_worker_dataset(lambda: data(tf, model, BATCH)))

    def some():
        for _ in range(50):
            coordinator.schedule(step, args=(batches,))
        coordinator.join()

    return rate_of(some, seconds, 50)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=["parameter_server", "mirrored", "multi_worker_mirrored", "worker", "serve"])
    parser.add_argument("--model", choices=SHAPES, default="mlp")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--role")
    parser.add_argument("--index", type=int)
    parser.add_argument("--cluster")
    arguments = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if arguments.case == "serve":
        serve(arguments.role, arguments.index, arguments.cluster)
    elif arguments.case == "worker":
        worker(arguments.model, arguments.seconds)
    else:
        print(json.dumps({"steps_per_s": globals()[arguments.case](arguments.model, arguments.seconds)}), flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
