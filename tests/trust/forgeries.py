"""Contents of a run folder that were changed, with every checksum recomputed; see manifests.py.

Each function changes a folder, and returns what it did and whether the change is consistent: one
that nobody could notice.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedloom.core import params
from fedloom.core.params import Params
from fedloom.runs.client_store import SqliteStore
from fedloom.runs.durable_files import seal, sha256, unseal
from fedloom.runs.memory_digest import row_seal
from fedloom.runs.tensor_bytes import pack, unpack

Facts = dict[str, Any]
LAST = 4
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**40, 10**30, -(10**30), 0.5, -0.5, 1e308, float("nan")),
    *(float("inf"), "", "x", "5", "../../x", "0" * 64, "a" * 10_000, "\ud800", "\0"),
    *([], [[]], ["x"], [None], [1, 2], {}, {"x": 1}, {"": None}, {"round": 1, "sha256": "x"}),
    *({"bytes": -1, "sha256": "0" * 64}, {"params": [], "shared": {}, "memory": {}}),
    json.loads("[" * 200 + "]" * 200),
)


# ------------------------------------------------------------------ changes of JSON


def places(facts: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in nested JSON."""
    inside = facts.items() if isinstance(facts, dict) else enumerate(facts)
    found = []
    for key, value in inside:
        found.append((*path, key))
        if isinstance(value, dict | list):
            found += places(value, (*path, key))
    return found


def mutate(facts: Facts, others: list[Facts], rng: random.Random) -> str:
    """Change one value somewhere, in place; what was done."""
    path = rng.choice(places(facts))
    at = functools.reduce(lambda inside, key: inside[key], path[:-1], facts)
    key, how = (
        path[-1],
        rng.choice(["replace", "replace", "replace", "remove", "add", "nudge", "other"]),
    )
    old = at[key]
    if how == "remove":
        del at[key]
    elif how == "add" and isinstance(at, dict):
        at[rng.choice(["", "x", "round", "__class__", "checksum2"])] = rng.choice(ODD_VALUES)
    elif how == "nudge" and isinstance(old, int | float | str | list):
        at[key] = _nudged(old, rng)
    elif how == "other" and others:
        with_path = rng.choice(others)
        try:
            at[key] = functools.reduce(lambda inside, key: inside[key], path, with_path)
        except (KeyError, IndexError, TypeError):
            at[key] = rng.choice(ODD_VALUES)
    else:
        at[key] = rng.choice(ODD_VALUES)
    return f"{how} {'.'.join(map(str, path))}"


def _nudged(old: Any, rng: random.Random) -> Any:
    if isinstance(old, str):
        return rng.choice([old + "x", old[1:], old.upper(), old[::-1]])
    if isinstance(old, list):
        return rng.choice([old[::-1], old[1:], old * 2, [*old, *old[:1]]])
    return rng.choice([old + 1, old - 1, -old, old * 1000, str(old)])


# ------------------------------------------------------------------ manifests


def forge_manifest(run: Path, rng: random.Random) -> tuple[str, bool]:
    """One to three changes in the newest manifest, or in all of them; what, and never consistent.

    Whatever they change is either not used, or contradicts another file.
    """
    manifests = sorted(run.glob("checkpoint/MANIFEST-*.json"))
    all_facts = [unseal(path.read_bytes()) or {} for path in manifests]
    everywhere, seed = rng.random() < 0.3, rng.random()
    done = []
    for path, facts in list(zip(manifests, all_facts, strict=True))[0 if everywhere else -1 :]:
        local = random.Random(seed)  # the same change in each
        done = [mutate(facts, all_facts, local) for _ in range(local.choice([1, 1, 1, 2, 3]))]
        path.write_bytes(seal(facts))
    return f"manifest: {', '.join(done)}{' in all' if everywhere else ''}", False


# ------------------------------------------------------------------ states


def forge_state(run: Path, rng: random.Random) -> tuple[str, bool]:
    """Other tensors, with every checksum recomputed; what, and whether nobody could notice."""
    manifest = run / f"checkpoint/MANIFEST-{LAST}.json"
    state = run / f"checkpoint/round-{LAST}.safetensors"
    facts = unseal(manifest.read_bytes()) or {}
    if rng.random() < 0.2:
        done, data = _malformed(state.read_bytes(), rng)
        consistent = False
    else:
        tensors = unpack(state.read_bytes())
        done, consistent = _change_tensors(tensors, facts["layout"], rng)
        data = pack(tensors)
        weights = {n.removeprefix("params/"): t for n, t in tensors.items() if "params/" in n[:7]}
        facts["weights_sha256"] = params.sha256(weights)
    state.write_bytes(data)
    manifest.write_bytes(seal({**facts, "payload_sha256": sha256(data)}))
    return f"state: {done}", consistent


def _change_tensors(tensors: Params, layout: Facts, rng: random.Random) -> tuple[str, bool]:
    """Change one tensor in place, and the layout with it; whether the result is plausible."""
    name = rng.choice(list(tensors))
    old = tensors[name]
    how = rng.choice(list(_TENSOR_CHANGES))
    if how == "rename":
        tensors[f"{name}x"] = tensors.pop(name)
        _rename(layout, name, f"{name}x")
    elif how == "remove":
        del tensors[name]
        _rename(layout, name, None)
    elif how == "remove from the layout":
        _rename(layout, name, None)
    elif how == "remove a group":
        group = name.rpartition("/")[0]
        for path in [path for path in tensors if path.startswith(f"{group}/")]:
            del tensors[path]
            _rename(layout, path, None)
        layout["shared"] = {k: names for k, names in layout["shared"].items() if names}
    else:
        tensors[name] = _TENSOR_CHANGES[how](old)
    plausible = how == "values" or (how == "remove a group" and name.startswith("shared/"))
    # a stage may keep what it likes in a group that it did not begin with
    return f"{how} {name}", plausible


_TENSOR_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "values": lambda t: t + 1,
    "nan": lambda t: torch.full_like(t, float("nan")),
    "one inf": lambda t: torch.where(torch.arange(t.numel()).view_as(t) == 0, float("inf"), t),
    "shape": lambda t: t.flatten()[:-1],
    "transpose": lambda t: t[None],
    "empty": lambda t: t.new_zeros(0),
    "huge": lambda t: t.new_zeros(100_000),
    "double": lambda t: t.double(),
    "half": lambda t: t.half(),
    "integers": lambda t: t.long(),
    "bool": lambda t: t.bool(),
    **dict.fromkeys(("rename", "remove", "remove from the layout", "remove a group"), torch.clone),
}


def _rename(layout: Facts, path: str, to: str | None) -> None:
    """Rename a tensor in a layout, or drop it."""
    kind, _, rest = path.partition("/")
    groups: list[list[str]] = [layout["params"]] if kind == "params" else []
    if kind == "shared":
        groups = [layout["shared"][rest.split("/")[0]]]
    if kind == "memory":
        stage, key, _ = rest.split("/")
        groups = [layout["memory"][stage][key]]
    name = path.split("/")[-1]
    for group in groups:
        group[:] = [to.split("/")[-1] if to and n == name else n for n in group if to or n != name]


def _malformed(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A safetensors file with another header."""
    end = 8 + int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8:end]), data[end:]
    done = mutate(header, [], rng)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        text, done = rng.choice([b"", b"{", b"[]", b"null", text + b"}"]), "another header"
    return f"header: {done}", len(text).to_bytes(8, "little") + text + body


# ------------------------------------------------------------------ memories


def forge_memories(run: Path, rng: random.Random) -> tuple[str, bool]:
    """What the clients remember, with the checksums of rows and manifests recomputed."""
    how = rng.choice(["values", "nan", "names", "double", "header", "bytes"])
    with contextlib.closing(sqlite3.connect(run / "clients.sqlite")) as database, database:
        for row, *key, value in database.execute("SELECT rowid, * FROM memory").fetchall():
            client, slot, round, _ = key
            forged = _forged_memory(value, how, rng)
            checksum = row_seal(client, slot, round, forged)
            change = "UPDATE memory SET seal = ?, value = ? WHERE rowid = ?"
            database.execute(change, (checksum, forged, row))
    store = SqliteStore(run / "clients.sqlite", read_only=True)
    for manifest in sorted(run.glob("checkpoint/MANIFEST-*.json")):
        facts = unseal(manifest.read_bytes()) or {}
        facts |= {"clients": store.digest(facts["round"]).facts, "previous": None}
        manifest.write_bytes(seal(facts))
    store.close()
    return f"memories: {how}", how == "values"


def _forged_memory(value: bytes, how: str, rng: random.Random) -> bytes:
    if how == "bytes":
        return rng.randbytes(40)
    if how == "header":
        return _malformed(value, rng)[1]
    tensors = unpack(value)
    if how == "names":
        return pack({f"{name}x": t for name, t in tensors.items()})
    return pack({name: _TENSOR_CHANGES[how](t) for name, t in tensors.items()})


# ------------------------------------------------------------------ metrics and results


def forge_metrics(run: Path, rng: random.Random) -> tuple[str, bool]:
    """A line of metrics.jsonl, with the manifests recomputed."""
    path = run / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    number = rng.randrange(len(lines))
    before = json.loads(json.dumps(lines[number]))
    done = mutate(lines[number], lines, rng)
    pieces = [json.dumps(line).encode() + b"\n" for line in lines]
    if rng.random() < 0.1:
        pieces[number] = rng.choice([b"", b"{\n", b"[]\n", b"null\n", pieces[number][:-9] + b"\n"])
        done = "another line"
    path.write_bytes(b"".join(pieces))
    for manifest in sorted(run.glob("checkpoint/MANIFEST-*.json")):
        facts = unseal(manifest.read_bytes()) or {}
        prefix = b"".join(pieces[: facts["round"]])
        facts["metrics"] = {"bytes": len(prefix), "sha256": sha256(prefix)}
        facts["previous"] = None
        manifest.write_bytes(seal(facts))
    return f"line {number + 1}: {done}", plausible(before, lines[number])


def forge_result(run: Path, rng: random.Random) -> tuple[str, bool]:
    """The summary in result.json."""
    path = run / "result.json"
    facts = unseal(path.read_bytes()) or {}
    before = json.loads(json.dumps(facts))
    part = facts["summary"] if rng.random() < 0.9 else facts
    done = mutate(part, [], rng)
    path.write_bytes(seal(facts))
    return f"result: {done}", plausible(before, facts)


def plausible(before: Any, after: Any, name: str = "") -> bool:
    """Whether a change has left types, names and, but for losses, signs as they were."""
    if isinstance(before, dict) and isinstance(after, dict):
        # fields that may be missing: nobody knows whether a round was evaluated
        known = before.keys() >= after.keys()
        return known and all(plausible(before[k], after[k], k) for k in after)
    if isinstance(before, list) and isinstance(after, list):
        return all(plausible(before[0] if before else 0, item) for item in after)
    if isinstance(before, bool) or isinstance(after, bool) or before is None or after is None:
        return isinstance(before, bool) == isinstance(after, bool) or after is None
    if isinstance(before, str) or isinstance(after, str):
        return isinstance(before, str) and isinstance(after, str)
    numbers = isinstance(before, int | float) and isinstance(after, int | float)
    return numbers and abs(after) < 2**63 and (after >= 0 or "loss" in name)
