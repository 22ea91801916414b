"""Job files for launchers: as much as can be said of them without a cluster."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer.main

from regard.cli.main import app

FOLDER = Path(__file__).parents[2] / "docs" / "launch"
yaml = pytest.importorskip("yaml")


def scripts() -> dict[str, str]:
    found = {path.name: path.read_text() for path in FOLDER.glob("*.sh")}
    for document in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()):
        if document["kind"] == "Job":
            found["kubernetes.yaml"] = document["spec"]["template"]["spec"]["containers"][0]["args"][0]
    return found


def test_there_is_one_for_each_launcher():
    assert set(scripts()) == {"one_machine.sh", "slurm.sh", "kubernetes.yaml"}


@pytest.mark.parametrize("name", ["one_machine.sh", "slurm.sh", "kubernetes.yaml"])
def test_the_shell_can_read_it_and_regard_knows_its_options(name, tmp_path):
    text = scripts()[name]
    path = tmp_path / "script.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", str(path)], check=True)
    known = {option for parameter in train_options() for option in parameter.opts}
    given = re.findall(r"WHAT=\((.*?)\)\n", text)
    assert len(given) == 2
    for words in given:
        options = [word for word in shlex.split(words) if word.startswith("--")]
        assert options
        assert set(options) <= known
    assert "-m regard train" in text
    assert "--max-restarts" in text


def train_options():
    return typer.main.get_command(app).commands["train"].params


def test_the_launcher_is_asked_for_things_it_has():
    from torch.distributed.run import get_args_parser

    known = {option for action in get_args_parser()._actions for option in action.option_strings}
    for name, text in scripts().items():
        launched = text[text.index("torchrun ") :].split("-m regard")[0]
        for option in re.findall(r"--[a-z-]+", launched):
            assert option in known or option.replace("-", "_").replace("__", "--", 1) in known, (name, option)


def test_kubernetes_finds_what_it_refers_to():
    service, job = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert f"{job['metadata']['name']}-0.{pod['subdomain']}" in pod["containers"][0]["args"][0]
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
