"""Flags that strategies, models, kinds of data and engines declare: help, the page about them, rejected values, and a
program that adds its own strategy and engine."""
import importlib.util
import json
import re

import pytest


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    return path


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "table.csv"
    path.write_text("a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(100)))
    return path


@pytest.fixture
def declared(rondo):
    return json.loads(rondo("train", "--help-all", "--json", "-").stdout)


SMALL = ["--model", "gpt-tiny", "--layers", 1, "--heads", 2, "--width", 32, "--seq-len", 32, "--steps", 2, "--matmul",
         "libtorch", "--progress", "off"]


def refused(result, *facts):
    assert result.returncode == 2, (result.returncode, result.stderr)
    for fact in facts:
        assert str(fact) in result.stderr, result.stderr
    assert result.stderr.count("rondo train:") == 1, result.stderr


# Help


def test_help_is_short_and_leads_on(rondo):
    said = rondo("train", "--help")
    assert said.returncode == 0 and said.stderr == ""
    flags = set(re.findall(r"^\s+--([a-z0-9-]+)", said.stdout, re.M))
    assert {"data", "model", "steps", "nproc-per-node", "strategy", "run-dir", "resume"} <= flags and len(flags) <= 20
    assert "--help-all" in said.stdout and "--help NAME" in said.stdout and "zero3" in said.stdout


def test_full_help_has_every_flag(rondo, declared):
    said = rondo("train", "--help-all").stdout
    assert len(declared["flags"]) > 80
    for flag in declared["flags"]:
        dashes = "--" if flag["has_flag"] else ""
        assert re.search(rf"^  {dashes}{flag['name']}\b", said, re.M), flag["name"]


@pytest.mark.parametrize("name, has, lacks", [
    ("zero3", ["segment-size", "offload", "reshard-after-forward", "codec"], ["torus", "plan", "shard-ranks"]),
    ("fsdp", ["offload"], ["bucket-size"]), ("multi_worker_mirrored", ["codec", "bucket-size"], ["offload"]),
    ("planned", ["plan", "profile", "plan-time-limit"], ["strategy-seed"]), ("random", ["strategy-seed"], ["plan"]),
    ("one_device", [], ["codec"]), ("bert", ["task", "from-pretrained", "vocabulary"], []), ("gpt", ["layers", "seq-len"], ["task"]),
    ("mlp", [], ["layers"]), ("csv", ["label-column"], ["extensions"]), ("text", ["extensions"], ["label-column"]),
    ("hierarchical", ["inter-host-engine", "inter-host-codec", "inter-host-window"], ["codec"]),
    ("gloo", [], ["inter-host-codec", "codec"])])
def test_help_about_one_thing_has_its_flags(rondo, name, has, lacks):
    said = rondo("train", "--help", name)
    assert said.returncode == 0, said.stderr
    flags = re.findall(r"^  (?:--)?([a-z0-9-]+)(?: |$)", said.stdout, re.M)
    assert set(has) <= set(flags) and not set(lacks) & set(flags), said.stdout


def test_help_about_nothing_lists_what_there_is(rondo):
    refused(rondo("train", "--help", "zero9"), "zero9", "zero3", "gpt-tiny", "masked_text", "gloo")


def test_the_page_says_what_the_program_says(repository, declared):
    spec = importlib.util.spec_from_file_location("cli_page", repository / "scripts" / "cli_page.py")
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    written = (repository / "docs" / "cli" / "train-flags.md").read_text()

    def with_flags(declared):
        return page.with_tables(written, {"rondo train": page.render_train(declared)})

    assert written == with_flags(declared), "run scripts/cli_page.py build/release/bin/rondo"
    longest = max(len(cell.split()) for line in page.render_train(declared).splitlines() for cell in line.split("|"))
    assert longest <= 40
    changed = json.loads(json.dumps(declared))
    changed["flags"][0]["help"] += " or not"
    assert with_flags(changed) != written


# Invalid combinations


@pytest.mark.parametrize("flags, facts", [
    (["--strategy", "zero2", "--bucket-size", "1MiB"], ["--bucket-size", "--strategy zero2", "ddp"]),
    (["--strategy", "zero2", "--codec", "power_sgd"], ["power_sgd", "zero2", "int8", "ddp"]),
    (["--strategy", "zero1", "--reshard-after-forward", "2"], ["--reshard-after-forward", "--strategy zero1", "zero3"]),
    (["--strategy", "fsdp", "--plan", "PLAN"], ["--plan", "--strategy fsdp", "planned"]),
    (["--strategy", "one_device", "--bucket-size", "1MiB"], ["--bucket-size", "one_device", "ddp"]),
    (["--offload", "/tmp"], ["--offload", "--strategy auto", "zero3"]),
    (["--model", "mlp", "--layers", 2], ["--layers", "--model mlp", "gpt"]),
    (["--model", "gpt-tiny", "--vocabulary", "PLAN"], ["--vocabulary", "--model gpt-tiny", "bert"]),
    (["--data-kind", "text", "--label-column", "1"], ["--label-column", "--data-kind text", "csv"]),
    (["--strategy", "zero3", "--prefetch", "-1"], ["--prefetch", "-1", "0 or more"]),
    (["--dropout", "1.5"], ["--dropout", "1.5", "from 0 to 1"]),
    (["--strategy", "zero3", "--set", "gradients-in-flight=many"], ["gradients-in-flight", "many", "whole number"]),
    (["--strategy", "zero3", "--set", "in-flight-bytes=some"], ["in-flight-bytes", "some"]),
    (["--strategy", "zero3", "--set", "comm-schedule=lifo"], ["comm-schedule", "lifo", "fifo", "priority"]),
    (["--strategy", "zero3", "--mixed-precision", "param=int8"], ["--mixed-precision", "int8", "bfloat16"]),
    (["--strategy", "zero9"], ["--strategy", "zero9", "zero3"]),
    (["--backend", "pigeon"], ["--backend", "pigeon", "gloo"]),
    (["--backend", "gloo", "--set", "inter-host-window=2"], ["inter-host-window", "--backend gloo", "hierarchical"]),
    (["--backend", "./some.so:engine", "--set", "inter-host-window=2"], ["inter-host-window", "hierarchical"]),
    (["--backend", "gloo(codec=int8)"], ["gloo(codec=int8)", "no options"]),
    (["--backend", "native(x)"], ["native(x)", "no options"]),
    (["--backend", "hierarchical(native, gloo, window=0)"], ["inter-host-window", "0", "above 0"]),
    (["--backend", "hierarchical(native, gloo, windw=3)"], ["windw=3", "inter-host-window"]),
    (["--backend", "hierarchical(native, gloo, codec=int9)"], ["inter-host-codec", "int9", "int8"]),
    (["--backend", "hierarchical(native, pigeon)"], ["inter-host-engine", "pigeon", "gloo"]),
    (["--backend", "hierarchical(native, gloo"], ["hierarchical(native, gloo", "bracket"]),
    (["--backend", "hierarchical(window=2)", "--set", "inter-host-window=3"], ["inter-host-window 3", "window=2"]),
    (["--backend", "hierarchical", "--set", "inter-host-chunk=1"], ["inter-host-chunk", "1", "4.0 KiB"]),
    (["--set", "inter-host-engine=pigeon"], ["inter-host-engine", "pigeon", "gloo"]),
    (["--workers", 2], ["--workers"]),
])
def test_refused_by_name(rondo, text, tmp_path, flags, facts):
    (tmp_path / "plan.json").write_text("{}")
    flags = [tmp_path / "plan.json" if flag == "PLAN" else flag for flag in flags]
    refused(rondo("train", "--data", text, "--run-dir", tmp_path / "run", *flags), *facts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content, facts", [
    ({"prefetches": 2}, ["prefetches", "no option"]),
    ({"prefetch": -1, "strategy": "zero3"}, ["--prefetch", "-1", "0 or more"]),
    ({"strategy": "zero3", "segment_size": "many"}, ["segment-size", "many"]),
    ({"strategy": "ddp", "offload": "/tmp"}, ["--offload", "ddp"]),
    ({"cased": "perhaps", "model": "bert"}, ["cased", "true or false"]),
    ({"loader_workers": 2}, ["loader_workers", "no option"]),
    ({"workers": 2, "strategy": "ddp"}, ["--workers", "ddp", "parameter_server"]),
    ({"inter_host_window": 2, "backend": "gloo"}, ["inter-host-window", "gloo", "hierarchical"]),
    ({"backend": "hierarchical(native, gloo, window=0)"}, ["inter-host-window", "0", "above 0"]),
])
def test_configuration_files_are_held_to_the_same(rondo, text, tmp_path, content, facts):
    (tmp_path / "c.json").write_text(json.dumps(content))
    refused(rondo("train", "--data", text, "--config", tmp_path / "c.json", "--run-dir", tmp_path / "run"), *facts)


def test_a_default_of_another_strategy_is_no_contradiction(rondo, text, tmp_path):
    """config.json has every option; another --strategy may precede it."""
    first = rondo("train", "--data", text, "--run-dir", tmp_path / "a", *SMALL, "--loader-threads", 2)
    assert first.returncode == 0, first.stderr
    configuration = json.loads((tmp_path / "a" / "config.json").read_text())
    assert configuration["prefetch"] == 2 and configuration["segment_size"] == "4MiB" and configuration["codec"] == "none"
    assert configuration["loader_threads"] == 2 and configuration["offload_what"] == ["parameters", "optimizer"]
    assert "strategy_seed" not in configuration
    second = rondo("train", "--config", tmp_path / "a" / "config.json", "--run-dir", tmp_path / "b", "--strategy", "zero3",
                   "--prefetch", 1)
    assert second.returncode == 0, second.stderr
    again = json.loads((tmp_path / "b" / "config.json").read_text())
    assert again == {**configuration, "strategy": "zero3", "prefetch": 1}


def test_the_last_word_counts_and_lists_add_up(rondo, text, tmp_path):
    result = rondo("train", "--data", text, "--run-dir", tmp_path / "run", *SMALL, "--heads", 4, "--extensions", "txt",
                   "--extensions", ".md")
    assert result.returncode == 0, result.stderr
    configuration = json.loads((tmp_path / "run" / "config.json").read_text())
    assert configuration["heads"] == 4 and configuration["extensions"] == ["txt", ".md"]


def test_detected_data_kind_decides_options(rondo, table, tmp_path):
    flags = ["train", "--data", table, "--model", "mlp", "--steps", 1, "--matmul", "libtorch", "--run-dir", tmp_path / "run"]
    refused(rondo(*flags, "--extensions", "txt"), "--extensions", "csv", "text")
    assert rondo(*flags, "--label-column", "label").returncode == 0


def test_unsuitable_model_lists_suitable_models(rondo, text, table, tmp_path):
    refused(rondo("train", "--data", text, "--model", "mlp", "--run-dir", tmp_path / "a"),
            "--model mlp", "text", "gpt, gpt-25m or gpt-tiny")
    refused(rondo("train", "--data", table, "--model", "gpt-tiny", "--run-dir", tmp_path / "b"),
            "--model gpt-tiny", "csv", "convnet or mlp")


@pytest.mark.parametrize("command", ["evaluate", "predict", "profile", "bench"])
def test_other_programs_look_at_engines_too(rondo, text, tmp_path, command):
    (tmp_path / "run").mkdir()
    flags = {"evaluate": [tmp_path / "run"], "predict": [tmp_path / "run", "--data", text],
             "profile": ["--json", tmp_path / "profile.json"], "bench": ["step"]}[command]
    result = rondo(command, *flags, "--backend", "hierarchical(native, gloo, windw=3)")
    assert result.returncode == 2 and "windw=3" in result.stderr and "inter-host-window" in result.stderr, result.stderr


def test_brackets_are_another_way_to_say_flags(rondo, text, tmp_path):
    job = ["train", "--data", text, *SMALL]
    first = rondo(*job, "--run-dir", tmp_path / "a", "--backend", "hierarchical(native, gloo, window=2, codec=int8)")
    assert first.returncode == 0, first.stderr
    said = json.loads((tmp_path / "a" / "config.json").read_text())
    assert (said["backend"], said["inter_host_window"], said["inter_host_codec"]) == ("hierarchical", 2, "int8")
    second = rondo("train", "--config", tmp_path / "a" / "config.json", "--run-dir", tmp_path / "b", "--set", "inter-host-window=5",
                   "--backend", "hierarchical(codec=none)")
    assert second.returncode == 0, second.stderr
    assert json.loads((tmp_path / "b" / "config.json").read_text()) == {**said, "inter_host_window": 5, "inter_host_codec": "none"}
    third = rondo("train", "--config", tmp_path / "a" / "config.json", "--run-dir", tmp_path / "c", "--backend", "native")
    assert third.returncode == 0, third.stderr
    assert json.loads((tmp_path / "c" / "config.json").read_text())["inter_host_window"] == 4


# A custom strategy and engine


def test_a_program_adds_a_strategy_with_an_option(run, rondo_bin, clean_environment, text, tmp_path):
    program = rondo_bin / "own_strategy"
    about = run(program, "--help", "checked", env=clean_environment)
    assert about.returncode == 0 and "--check-share" in about.stdout and "--prefetch" in about.stdout, about.stderr
    assert re.search(r"--check-share .*50", about.stdout) and "--codec" not in about.stdout
    everything = run(program, "--help-all", env=clean_environment).stdout
    assert "--check-share" in everything and "--codec" in everything
    job = ["--data", text, *SMALL]
    trained = run(program, *job, "--run-dir", tmp_path / "run", "--strategy", "checked", "--check-share", 25,
                  env=clean_environment)
    assert trained.returncode == 0 and "checked every 4 steps" in trained.stderr, trained.stderr
    assert json.loads((tmp_path / "run" / "config.json").read_text())["check_share"] == 25
    resumed = run(program, "--run-dir", tmp_path / "run", "--resume", "--steps", 3, env=clean_environment)
    assert resumed.returncode == 0 and "checked every 4 steps" in resumed.stderr, resumed.stderr
    for flags, facts in [(["--strategy", "ddp", "--check-share", 10], ["--check-share", "--strategy ddp", "checked"]),
                         (["--strategy", "checked", "--check-share", 101], ["--check-share", "101", "from 1 to 100"]),
                         (["--strategy", "checked", "--codec", "int8"], ["--codec", "--strategy checked", "ddp"])]:
        refused(run(program, *job, "--run-dir", tmp_path / "no", *flags, env=clean_environment), *facts)


def test_a_program_adds_an_engine_with_an_option(run, rondo_bin, clean_environment, text, tmp_path):
    program = rondo_bin / "own_strategy"
    about = run(program, "--help", "loud", env=clean_environment)
    assert about.returncode == 0 and re.search(r"--loudness .*3", about.stdout) and "--inter-host" not in about.stdout
    everything = run(program, "--help-all", env=clean_environment).stdout
    assert "--loudness" in everything and "inter-host-codec" in everything
    job = ["--data", text, *SMALL]
    for number, flags in enumerate([["--backend", "loud", "--loudness", 5], ["--backend", "loud(loudness=5)"]]):
        trained = run(program, *job, "--run-dir", tmp_path / str(number), *flags, env=clean_environment)
        assert trained.returncode == 0 and "world, loudness 5" in trained.stderr, trained.stderr
        said = json.loads((tmp_path / str(number) / "config.json").read_text())
        assert (said["backend"], said["loudness"]) == ("loud", 5)
    resumed = run(program, "--run-dir", tmp_path / "0", "--resume", "--steps", 3, env=clean_environment)
    assert resumed.returncode == 0 and "world, loudness 5" in resumed.stderr, resumed.stderr
    for flags, facts in [(["--backend", "gloo", "--loudness", 2], ["--loudness", "--backend gloo", "loud"]),
                         (["--backend", "loud", "--loudness", 10], ["--loudness", "10", "from 1 to 9"]),
                         (["--backend", "loud(loudness=10)"], ["--loudness", "10", "from 1 to 9"]),
                         (["--backend", "loud(pitch=1)"], ["pitch=1", "loudness"]),
                         (["--backend", "loud", "--set", "inter-host-window=2"], ["inter-host-window", "hierarchical"])]:
        refused(run(program, *job, "--run-dir", tmp_path / "no", *flags, env=clean_environment), *facts)
        assert not (tmp_path / "no").exists()


def test_rondo_itself_does_not_know_them(rondo, text):
    refused(rondo("train", "--data", text, "--strategy", "checked"), "checked", "ddp")
    refused(rondo("train", "--data", text, "--backend", "loud"), "loud", "gloo")
