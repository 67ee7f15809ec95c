"""Tilings examined in a process of their own: a kernel that faults takes the GPU away from its whole process.

One child works through a list of jobs. If it dies or hangs on one, that one is out and another child goes on behind it. What the child is
given it is given by its parent, pickled; what it answers is read as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer
from typing import IO, Any

import torch

from contractor.run.examine import Finding, Job, examine

PROGRAM = "from contractor.run.apart import serve; serve()"
PATIENCE = 180.0  # seconds that one job, with its compilation, may take
READY = "ready"


class LostError(Exception):
    """A child that has ended without its answer. began: it had come so far that it is the job's fault."""

    def __init__(self, reason: str, began: bool) -> None:
        super().__init__(reason)
        self.began = began


Child = Callable[[Sequence[Job], str], Iterator[Finding]]


def child(jobs: Sequence[Job], device: str, program: str = PROGRAM, patience: float = PATIENCE) -> Iterator[Finding]:
    """The findings of a new process, one by one. It may end early of itself, where a fault has left it without a GPU. Raises LostError if
    it ends otherwise."""
    with tempfile.TemporaryFile() as said, process(program, said) as running:
        assert running.stdin is not None and running.stdout is not None
        with suppress(BrokenPipeError):
            pickle.dump((device, tuple(jobs)), running.stdin)
            running.stdin.close()
        if answered(running, said, patience, began=False) != READY:
            raise LostError("the process that examines said something else than that it is ready", began=False)
        for _ in jobs:
            answer = answered(running, said, patience, began=True)
            if answer is None:
                return
            yield finding_in(answer)


@contextmanager
def process(program: str, said: IO[bytes]) -> Generator[subprocess.Popen[bytes]]:
    """A Python that finds what this one finds, gone at the end whatever happens. Its folder is not searched for modules."""
    paths = [str(Path(__file__).parents[2]), *(one for one in sys.path if one)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    command = [sys.executable, "-P", "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=environment) as running:
        try:
            yield running
        finally:
            running.kill()


def answered(running: subprocess.Popen[bytes], said: IO[bytes], patience: float, began: bool) -> Any:
    """The next answer. Raises LostError where there is none."""
    assert running.stdout is not None
    clock = Timer(patience, running.kill)
    clock.start()
    try:
        line = running.stdout.readline()
    finally:
        late = not clock.is_alive()
        clock.cancel()
    try:
        return json.loads(line)
    except ValueError:
        running.kill()
        raise LostError(f"took longer than {patience:.0f} s" if late else ended(running.wait(), said), began) from None


def ended(code: int, said: IO[bytes]) -> str:
    """How a process ended, with its last words."""
    said.seek(0)
    lines = said.read().decode(errors="replace").split("\n")
    words = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"its process ended with {f'signal {-code}' if code < 0 else f'status {code}'}{f': {words[:160]}' if words else ''}"


def finding_in(answer: Any) -> Finding:
    """A finding as it was sent. Raises LostError for anything else."""
    try:
        reason, milliseconds = answer
        return Finding(str(reason), None if milliseconds is None else float(milliseconds))
    except (TypeError, ValueError):
        raise LostError("the process that examines gave no finding", began=True) from None


def apart(jobs: Sequence[Job], device: str, child: Child = child) -> Iterator[Finding]:
    """The findings of all jobs, one by one, whatever becomes of those who look for them."""
    done = 0
    while done < len(jobs):
        before = done
        try:
            for finding in child(jobs[before:], device):
                done += 1
                yield finding
            lost = LostError("its process ended without a finding", began=True) if done == before else None
        except LostError as error:
            lost = error
        for _ in range(0 if lost is None else 1 if lost.began else len(jobs) - done):
            done += 1
            yield Finding(str(lost))


# ---- the child ------------------------------------------------------------------------------------------------------------------


def serve() -> None:
    """What the child does. What others print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    device, jobs = pickle.load(sys.stdin.buffer)
    if device != "cpu":
        torch.cuda.set_device(torch.device(device))
    print(json.dumps(READY), file=answers, flush=True)
    for job in jobs:
        found = examine(job, device)
        print(json.dumps([found.reason, found.milliseconds]), file=answers, flush=True)
        if found.reason and not alive(device):
            print(json.dumps(None), file=answers, flush=True)
            return


def alive(device: str) -> bool:
    """True if the GPU still answers this process."""
    try:
        return device == "cpu" or bool(torch.ones(1, device=device).item())
    except RuntimeError:
        return False
