"""Mixers of a user's own that misbehave: their faults are theirs, in one line with the place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from attack import Place
from conftest import tiny_arguments
from lra.runtime.cli import INTERRUPTED

START = """
import os, sys, threading
import torch
from torch import nn
torch.manual_seed(0)
"""


def plug_in(
    forward: str = "return x * self.scale",
    *,
    before: str = "",
    after: str = "",
    options: str = "",
    methods: str = "",
    name: str = "Own",
    base: str = "nn.Module",
) -> str:
    """Write a mixer with lines of code here or there."""

    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in (text or "pass").splitlines())

    return (
        f"{START}{after}\n"
        f"class {name}({base}):\n    def __init__(self, context{options}):\n"
        f"        super().__init__()\n        self.calls = 0\n"
        f"        self.scale = nn.Parameter(torch.ones(context.dim))\n{indented(before)}\n"
        f"    def forward(self, x, mask=None):\n        self.calls += self.training\n"
        f"{indented(forward)}\n{methods}\n"
    )


LATE = "if self.calls > 12:\n    {}\nreturn x * self.scale"
"""Something that happens in training, but not yet when a plug-in is tried."""

EVALUATED = "if not self.training and self.calls > 12:\n    {}\nreturn x * self.scale"
DEATHS = {
    "exit 0": "sys.exit(0)",
    "exit text": "sys.exit('bye')",
    "exit none": "raise SystemExit",
    "generator exit": "raise GeneratorExit",
    "own": "raise type('Own', (BaseException,), {})('x')",
    "mute": "raise type('M', (Exception,), {'__str__': lambda s: 1 / 0})()",
    "assert": "assert False",
    "stop": "raise StopIteration",
    "recursion": "return self.forward(x, mask)",
    "key": "raise KeyError('broken')",
    "newlines": "raise ValueError('a\\n\\nb\\r\\x1b[2J')",
    "long": "raise ValueError('x' * 100_000)",
    "unicode": "raise ValueError('\\udc80')",
    "os": "open('/nowhere/at/all')",
    "name": "nowhere",
    "timeout": "raise TimeoutError('slow')",
}


FEW = ["exit 0", "own", "mute", "recursion", "newlines", "long", "os"]


def attack(place: Place, source: str, codes: set[int], *more: str, name: str = "Own") -> Path:
    (place.folder / "own.py").write_text(source)
    arguments = tiny_arguments(Path(), "--set", "task.train=64", *more, mixer=f"own.py:{name}")
    place.attack("run_task", arguments, codes)
    return place.folder / "results"


@pytest.mark.parametrize("death", FEW)
def test_deaths_in_the_constructor(place: Place, death: str) -> None:
    attack(place, plug_in(before=DEATHS[death].replace("return ", "self.__init__(context); ")), {2})


@pytest.mark.parametrize("death", FEW)
def test_deaths_in_the_first_forward(place: Place, death: str) -> None:
    attack(place, plug_in(DEATHS[death]), {2})


@pytest.mark.parametrize("death", DEATHS)
def test_deaths_late_in_training(place: Place, death: str) -> None:
    results = attack(place, plug_in(LATE.format(DEATHS[death])), {2})
    assert not list(results.rglob("result.json"))


@pytest.mark.parametrize("death", FEW)
def test_deaths_in_evaluation(place: Place, death: str) -> None:
    attack(place, plug_in(EVALUATED.format(DEATHS[death])), {2})


@pytest.mark.parametrize("death", FEW)
def test_deaths_at_import(place: Place, death: str) -> None:
    death = DEATHS[death].replace("return self.forward(x, mask)", "f = lambda: f()\nf()")
    attack(place, plug_in(after=death), {2})


HOOK = "x = x * self.scale\nx.register_hook(lambda g: {})\nreturn x"
HABITS: Mapping[str, str] = {
    "static constructor": f"{START}class Own(nn.Module):\n    @staticmethod\n"
    "    def __init__(): pass\n",
    "no constructor": f"{START}class Own(nn.Module):\n    __init__ = None\n",
    "signature": f"{START}class S:\n    __signature__ = 5\n"
    "class Own(nn.Module):\n    __init__ = S()\n",
    "module of none": plug_in(methods="    __module__ = None\n"),
    "module nowhere": plug_in(methods="    __module__ = 'nowhere'\n"),
    "no file": plug_in(after="__file__ = None"),
    "hint that exits": plug_in(options=", a: 'sys.exit(9)' = 1"),
    "hint that raises": plug_in(options=", a: '1 / 0' = 1"),
    "default of 5,000 digits": plug_in(options=", a=10**5000"),
    "metaclass that hides": f"{START}class M(type(nn.Module)):\n    def __getattribute__(s, n):\n"
    "        sys.exit(7)\nclass Own(nn.Module, metaclass=M):\n    pass\n",
    "message that raises": plug_in(
        "raise E()", after="class E(MemoryError):\n    def __str__(s):\n        1 / 0"
    ),
    "message of none": plug_in(
        "raise E()", after="class E(RuntimeError):\n    def __str__(s):\n        return None"
    ),
    "message that exits": plug_in(
        after="class E(BaseException):\n    def __str__(s):\n        sys.exit(77)\nraise E()"
    ),
    "no torch": plug_in(after="sys.modules['torch'] = None"),
    "warns": plug_in("import warnings\nwarnings.warn('w\\x1b[2J' * 300)\nreturn x * self.scale"),
    "asynchronous": plug_in().replace("def forward", "async def forward"),
    "no super": plug_in().replace("        super().__init__()\n", ""),
    "sparse": plug_in("return (x * self.scale).to_sparse()"),
    "lazy": plug_in("return self.l(x)", before="self.l = nn.LazyLinear(16)"),
    "growing": plug_in(
        "self.register_parameter(f'p{self.calls}', nn.Parameter(x[0, 0]))\nreturn x"
    ),
    "shrinking": plug_in("self.scale = None\nreturn x * 1"),
    "NaN": plug_in("return x * float('nan')"),
    "infinite": plug_in("return x / 0"),
    "integers": plug_in("return x.long()"),
    "complex": plug_in("return x.to(torch.complex64)"),
    "none": plug_in("return None"),
    "generator": plug_in("yield x"),
    "a list": plug_in("return [x]"),
    "other device": plug_in("return x.to('meta')"),
    "no gradient": plug_in("return x.detach()"),
    "numpy": plug_in("return x.numpy()"),
    "in place": plug_in("return x.mul_(2)"),
    "transposed": plug_in("return x.transpose(1, 2)"),
    "longer": plug_in("return torch.cat([x, x], 1)"),
    "hook raises": plug_in(HOOK.format("1 / 0")),
    "hook exits": plug_in(HOOK.format("sys.exit(0)")),
    "hook of another shape": plug_in(HOOK.format("g[0]")),
    "hook of text": plug_in(HOOK.format("'x'")),
    "leak beyond 5": plug_in("s = x.sum(1, keepdim=True) if x.shape[1] > 9 else 0\nreturn x + s"),
    "leak in training": plug_in("return x + x.sum(1, keepdim=True) * self.training"),
    "leak without a mask": plug_in("return x if mask is None else x + x.flip(1)"),
    "state of text": plug_in(
        methods="    def get_extra_state(self):\n        return {1, 2}\n"
        "    def set_extra_state(self, s):\n        pass\n"
    ),
    "no state": plug_in(methods="    def state_dict(self, *a, **k):\n        return 3\n"),
    "state raises": plug_in(methods="    def state_dict(self, *a, **k):\n        sys.exit(0)\n"),
    "parameters raise": plug_in(
        methods="    def named_parameters(self, *a, **k):\n        1 / 0\n"
    ),
    "train raises": plug_in(methods="    def train(self, mode=True):\n        sys.exit(0)\n"),
    "train returns none": plug_in(methods="    def train(self, mode=True):\n        return None\n"),
    "to raises": plug_in(methods="    def _apply(self, *a, **k):\n        sys.exit(0)\n"),
    "no forward": f"{START}class Own(nn.Module):\n    def __init__(self, context):\n"
    "        super().__init__()\n",
    "a function": f"{START}def Own(context):\n    return nn.Identity()\n",
    "an object": f"{START}Own = nn.Identity()\n",
    "not torch": "class Own:\n    pass\n",
    "empty": "",
    "NUL": "\0",
    "syntax": "def",
    "tabs": "if 1:\n\tx\n        y\n",
    "encoding": "# coding: x\n",
    "deep": "(" * 5000,
    "metaclass": f"{START}class M(type(nn.Module)):\n    def __call__(s, *a, **k):\n"
    "        sys.exit(0)\nclass Own(nn.Module, metaclass=M):\n"
    "    def __init__(self, context):\n        pass\n",
    "new": plug_in(methods="    def __new__(cls, *a):\n        return 3\n"),
    "getattr": plug_in(methods="    def __getattribute__(self, n):\n        raise KeyError(n)\n"),
    "set option": plug_in(options=", a: set = None"),
    "bytes": plug_in(options=", a: bytes = b'x'"),
    "complex option": plug_in(options=", a: complex = 1j"),
    "default set": plug_in(options=", a={1}"),
    "self": plug_in(options=", a=[]", after="a = []\na.append(a)").replace("a=[]", "a=a"),
    "NaN option": plug_in(options=", a: float = float('nan')"),
    "mutable": plug_in(options=", a=[]"),
    "long name": plug_in(name="O" * 150).replace("O" * 150 + "(", "O" * 150 + "("),
    "shape by value": plug_in("return x[:, : 1 + int(x.sum() > 1e9)].expand_as(x) * 1"),
    "random": plug_in("return x * torch.rand(1)"),
    "prints": plug_in("print('x' * 50)\nreturn x * self.scale"),
    "slow learner": plug_in(
        base="__import__('models.base').base.Mixer",
        methods="    def learning_rates(self):\n        return {'nowhere': 3}\n",
    ),
    "rates of text": plug_in(
        base="__import__('models.base').base.Mixer",
        methods="    def learning_rates(self):\n        return 'x'\n",
    ),
    "deleted": plug_in(after="import os\nos.unlink('own.py')"),
    "double": plug_in("return x.double()"),
    "default type": plug_in(before="torch.set_default_dtype(torch.float64)"),
    "no grad": plug_in(before="torch.set_grad_enabled(False)"),
    "thread": plug_in(before="threading.Thread(target=lambda: sys.exit(3)).start()"),
    "frozen": plug_in(before="self.scale.requires_grad_(False)"),
    "shared": plug_in(before="self.other = self.scale"),
    "infinite later": plug_in(LATE.format("return x * float('inf')")),
    "wider later": plug_in(LATE.format("return torch.cat([x, x], 1)")),
    "none later": plug_in(LATE.format("return None")),
    "sparse later": plug_in(LATE.format("return x.to_sparse()")),
    "grown later": plug_in(LATE.format("self.p = nn.Parameter(torch.ones(3))")),
    "fails on long ones": plug_in(
        "if x.shape[1] == 64:\n    raise ValueError('64')\nreturn x * self.scale"
    ),
}


FAULTS = {
    "no super", "sparse", "lazy", "growing", "shrinking", "NaN", "integers", "leak beyond 5",
    "leak in training", "state of text", "set option", "default set", "long name", "hook exits",
    "none later", "bytes", "self",
}  # fmt: skip
"""Habits that no run may be made with."""


@pytest.mark.parametrize("habit", HABITS)
def test_habits(place: Place, habit: str) -> None:
    name = "O" * 150 if habit == "long name" else "Own"
    attack(place, HABITS[habit], {2} if habit in FAULTS else {0, 2, 4, 5}, name=name)


@pytest.mark.parametrize("value", ["[1, 2]", "{a: 1}", "x", "1e999"])
@pytest.mark.parametrize("kind", ["set[int]", "bytes", "complex", "dict"])
def test_values_of_options(place: Place, kind: str, value: str) -> None:
    (place.folder / "own.py").write_text(plug_in(options=f", a: {kind} = None"))
    arguments = tiny_arguments(Path(), "--set", f"mixer.a={value}", mixer="own.py:Own")
    place.attack("run_task", [*arguments, "--show-config"], {0, 2})


@pytest.mark.parametrize("where", ["after", "before", "forward"])
def test_another_working_directory_moves_nothing(place: Place, where: str) -> None:
    """What a command reads and writes is where it was when the command began."""
    change = f"os.chdir({str(place.outside)!r})"
    forward = f"{change}\n" * (where == "forward") + "return x * self.scale"
    source = plug_in(forward, **({} if where == "forward" else {where: change}))
    (place.folder / "own.py").write_text(source)
    arguments = tiny_arguments(Path(), mixer="own.py:Own")
    ended = place.attack("run_task", arguments, {0}, says="saved in results/runs/listops/Own/")
    assert "examples, generated, in data/" in ended.err
    (run,) = (place.folder / "results/runs/listops/Own").glob("*")
    assert (run / "result.json").exists()
    relative = str(run.relative_to(place.folder))
    evaluated = ["--run", relative, "--lengths", "90", "--examples", "20", "--device", "cpu"]
    place.attack("lra.evaluate.__main__", evaluated, {0}, says=f"record: {relative}/evaluation-")
    assert list(run.glob("evaluation-*.json"))
    swept = ["--tasks", "listops", "--mixers", "own.py:Own", "--preset", "quick", "--dry-run"]
    place.attack("lra.sweep.__main__", swept, {0})
    assert not list(place.outside.glob("*/"))


@pytest.mark.parametrize(
    "name", [b"\xff\xfe.py", b"\x1b[2J.py", b"a b.py", b"-o.py", "é.py".encode()]
)
def test_names_of_files(place: Place, name: bytes) -> None:
    Path(os.fsdecode(bytes(place.folder) + b"/" + name)).write_text(plug_in())
    given = os.fsdecode(name) + ":Own"
    place.attack("run_task", [*tiny_arguments(Path())[:-2], "--mixer", given], {0, 2})


@pytest.mark.parametrize("death", ["exit 0", "key", "mute", "os"])
@pytest.mark.parametrize("command", ["lra.bench.__main__", "lra.sweep.__main__", "matched"])
def test_deaths_in_other_commands(place: Place, command: str, death: str) -> None:
    (place.folder / "own.py").write_text(plug_in(DEATHS[death]))
    if command == "matched":
        arguments = tiny_arguments(Path(), "--match-params", "tnn", mixer="own.py:Own")
        place.attack("run_task", arguments)
    elif command == "lra.sweep.__main__":
        arguments = ["--tasks", "listops", "--mixers", "own.py:Own", "--preset", "quick"]
        place.attack(command, [*arguments, "--dry-run", "--device", "cpu"])
    else:
        arguments = ["op", "--mixers", "own.py:Own", "--lengths", "64", "--device", "cpu"]
        place.attack(command, [*arguments, "--repeats", "1"])


@pytest.mark.parametrize("death", ["exit 0", "key", "mute", "recursion"])
def test_deaths_when_evaluated_again(place: Place, death: str) -> None:
    source = plug_in(f"if os.path.exists('later'):\n    {DEATHS[death]}\nreturn x * self.scale")
    results = attack(place, source, {0})
    (run,) = (results / "runs/listops").glob("*/*")
    (place.folder / "later").touch()
    place.attack("lra.evaluate.__main__", ["--run", str(run), "--lengths", "90"])
    place.attack("report", ["--format", "csv"], {0})


def test_interruptions_stay_the_users(place: Place) -> None:
    (place.folder / "own.py").write_text(plug_in("raise KeyboardInterrupt"))
    place.attack("run_task", tiny_arguments(Path(), mixer="own.py:Own"), {INTERRUPTED})
