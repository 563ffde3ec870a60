"""The fleet over Flower's network: a SuperLink and SuperNodes on loopback, TLS and node authentication on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT, Built
from PIL import Image

pytest.importorskip("flwr", reason="flwr is 300 MB: `pip install 'microtrain[fleet]'`")

from microtrain.base.plan import read_plan
from microtrain.fleet.board import Host, HostBoard
from microtrain.fleet.cli import main
from microtrain.fleet.federation import Federation
from microtrain.fleet.layout import Layout
from microtrain.fleet.member import Member
from microtrain.fleet.message import Work
from microtrain.fleet.settings import named
from microtrain.samples.source import scan

pytestmark = pytest.mark.slow
ROUNDS, PATIENCE_S = 2, 240
NODES = ("a", "b")


@dataclass(frozen=True)
class Site:
    """A folder with keys, boards and images, and the SuperLink's port."""

    folder: Path
    port: int

    @property
    def environment(self) -> dict[str, str]:
        tools = str(Path(sys.executable).parent)
        own = {"FLWR_HOME": str(self.folder / "home"), "FLWR_TELEMETRY_ENABLED": "0"}
        paths = {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return {**os.environ, **own, **paths}

    def run(self, *words: str, seconds: float = 120) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def started(self, name: str, *words: str) -> Iterator[Path]:
        """A program that runs for as long as the block lasts, with all that it starts; its log."""
        log = self.folder / f"{name}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                words, cwd=self.folder, env=self.environment, stdout=file, stderr=file, start_new_session=True
            )
        try:
            yield log
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def node(self, name: str, key: str) -> tuple[str, ...]:
        return (
            *("flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--root-certificates", "ca.crt"),
            *("--auth-supernode-private-key", key, "--port", str(free_port()), "--max-retries", "3"),
            *("--node-config", f'boards="{self.folder}/{name}.json"'),
        )


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def site(tmp_path: Path, example: Built) -> Site:
    if shutil.which("openssl") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("openssl and ssh-keygen make the keys")
    site = Site(tmp_path, free_port())
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text(
        f'[superlink]\ndefault = "fleet"\n\n[superlink.fleet]\naddress = "127.0.0.1:{site.port}"\n'
        f'root-certificates = "{tmp_path}/ca.crt"\n'
    )
    new = ("openssl", "req", "-newkey", "rsa:2048", "-nodes")
    site.run(*new, "-x509", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=ca")
    site.run(*new, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    sign = ("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key")
    site.run(*sign, "-CAcreateserial", "-out", "server.crt", "-days", "2", "-extfile", "names")
    for name in (*NODES, "stranger"):
        site.run("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", name)
        gather(tmp_path, name, example)
    return site


def gather(folder: Path, name: str, example: Built) -> None:
    """A node's file, and images of half of the classes."""
    draws = np.random.default_rng(ord(name[0]))
    for label in range(10):
        (folder / name.upper() / str(label)).mkdir(parents=True)
        if (label + ord(name[0])) % 2:
            pixels = draws.integers(0, 256, (32, 32)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name.upper() / str(label) / "0.png")
    board = {"name": name, "native": str(example.program), "data": name.upper()}
    document = {"plan": str(example.folder / "plan.json"), "boards": [board]}
    (folder / f"{name}.json").write_text(json.dumps(document))


def wait_for(log: Path, text: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while text not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.5)


def test_a_fleet_over_the_network_is_the_fleet_here(site: Site, example: Built, tmp_path: Path) -> None:
    plan = example.folder / "plan.json"
    options = ["--nodes", "2", "--rounds", str(ROUNDS), "--patience", str(PATIENCE_S), "--lr-factor", "3"]
    done = CliRunner().invoke(main, ["new", str(tmp_path / "app"), "--plan", str(plan), *options])
    assert done.exit_code == 0, done.output
    tls = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key")
    link = ("flower-superlink", *tls, "--enable-supernode-auth", "--port", str(site.port))
    with site.started("link", *link, "--disable-runtime-dependency-installation") as log:
        wait_for(log, "Uvicorn running on https://")
        for name in NODES:
            site.run("flwr", "supernode", "register", f"{name}.pub", "fleet", "--name", name)
        with (
            site.started("a-node", *site.node("a", "a")),
            site.started("b-node", *site.node("b", "b")),
            site.started("stranger-node", *site.node("stranger", "stranger")) as stranger,
        ):
            said = site.run("flwr", "run", "app", "fleet", "--stream", seconds=2 * PATIENCE_S)
            wait_for(stranger, "Failed to activate SuperNode")  # its key is not registered
    events = [json.loads(line) for line in (tmp_path / "app.state/fleet.jsonl").read_text().splitlines()]
    assert [sorted(event["boards"]) for event in events] == [list(NODES)] * ROUNDS, said
    assert events[-1]["sha256"] == here(plan, tmp_path), said


def here(plan: Path, folder: Path) -> str:
    """SHA-256 of the same federation on the host library, in this process."""
    host = Host(read_plan(plan), folder / "library")
    layout, name = Layout(host.plan), named(0, "fleet")
    members = {
        node: Member(
            board, HostBoard(host, board), scan(folder / board.upper(), 10, whole=False), layout, layout
        )
        for node, board in enumerate(NODES)
    }
    fleet = Federation(layout, layout.read(members[0].board.fresh()), 0, name)
    for _ in range(ROUNDS):
        fleet.begin()
        for node, member in members.items():
            fleet.take(member.handle(fleet.task(Work(name, rate=3.0), node)), node)
        fleet.close()
    return fleet.sha256()
