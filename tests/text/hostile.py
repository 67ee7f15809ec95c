"""Run by test_hostile.py in a process of its own: what each hostile text comes to, its seconds, and the memory it took in MB."""

from __future__ import annotations

import json
import resource
import time

from contractor.errors import SpecError
from contractor.text.parse import parse, parser

HEAD = "layer a\nx [T] = "
TEXTS: dict[str, str | bytes] = {
    "nothing": "",
    "only a comment": "# nothing",
    "open brackets": HEAD + "(" * 100_000,
    "nested calls": HEAD + "f(" * 12_000 + ")" * 12_000,
    "nested brackets, each closed wrongly": HEAD + "(]" * 12_000,
    "closed brackets": HEAD + ")" * 24_000,
    "brackets open at every line": "layer a\n" + "x [T] = (\n" * 3_500,
    "brackets open over all lines": HEAD + "(\n" * 63 + "y [T, \n" * 10_000,
    "minus signs": HEAD + "-" * 24_000 + "1",
    "powers": HEAD + "1^" * 12_000 + "1",
    "a long sum inside a call": HEAD + "f(x, " + "1+" * 12_000 + "1)",
    "a long sum": HEAD + "1+" * 12_000 + "1",
    "a long list": HEAD + "f(" + "1," * 12_000 + "1)" + "1",
    "exponent": HEAD + "1e99999",
    "digits": HEAD + "9" * 200_000,
    "digits of a bound": "layer a\ninput X [T] in [0, " + "9" * 200_000 + "]",
    "a long name": HEAD + "x" * 200_000 + " y",
    "foreign characters": HEAD + "!" * 24_000,
    "control characters": HEAD + "\0" * 200_000,
    "lone surrogates": HEAD + "\ud800" * 200_000,
    "empty lines": "\n" * 262_000 + "!",
    "bad statements": "layer a\n" + "x\n" * 12_000,
    "a bad statement, late": "layer a\n" + "x[]=1\n" * 3_500 + "x",
    "many bad numbers": "layer a\n" + "x[]=1e999\n" * 3_500,
    "no layer": "x[]=1\n" * 3_500,
    "not UTF-8": HEAD.encode() + b"\xff" * 200_000,
    "a million statements": "layer a\n" + "x[]=1\n" * 1_000_000,
    "a long line": HEAD.encode() + b"1" * 100_000_000,
}


def main() -> None:
    parser()
    for name, text in TEXTS.items():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        try:
            parse(text)
            outcome = "a Spec"
        except SpecError as error:
            outcome = str(error)
        seconds = time.process_time() - started
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        print(json.dumps({"name": name, "outcome": outcome, "seconds": seconds, "growth": growth}))


if __name__ == "__main__":
    main()
