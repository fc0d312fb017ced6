"""Parameter groups and schedules."""

import pytest
import torch
from torch import nn

from lra.common.errors import UserError
from lra.config.schema import TrainConfig
from lra.models.base import DecayingAt, Mixer, MixerContext
from lra.train.optimizer import (
    build_optimizer,
    rate_factor,
    scheduled_beta1,
    set_rate_factor,
)
from lra.train.training_time import list_warnings


def train(**changes: object) -> TrainConfig:
    return TrainConfig.model_validate({"steps": 100, "lr": 1.0, **changes})


def test_the_factors_of_schedules() -> None:
    cosine = [rate_factor(step, 100, train(warmup_steps=10)) for step in range(101)]
    assert cosine[:10] == pytest.approx([0.1 * i for i in range(1, 11)])
    assert (cosine[10], cosine[55], cosine[100]) == pytest.approx((1.0, 0.5, 0.0))
    assert cosine[10:] == sorted(cosine[10:], reverse=True)
    ended = train(schedule_steps=50)
    assert [rate_factor(step, 100, ended) for step in (50, 75, 99)] == [0, 0, 0]
    rsqrt = train(schedule="rsqrt", warmup_steps=100)
    assert [rate_factor(s, 1000, rsqrt) for s in (49, 99, 399)] == pytest.approx([0.5, 1.0, 0.5])
    linear = train(schedule="linear", warmup_steps=100)
    factors = [rate_factor(step, 1100, linear) for step in (49, 99, 100, 600, 1100)]
    assert factors == pytest.approx([0.5, 1.0, 1.0, 0.5, 0.0])
    assert rate_factor(77, 1000, train(schedule="constant")) == 1.0


@pytest.mark.parametrize(("warmup", "steps"), [(30, 100), (2, 9)])
def test_onecycle_is_that_of_torch(warmup: int, steps: int) -> None:
    config = train(schedule="onecycle", warmup_steps=warmup, beta2=0.9)
    optimizer = build_optimizer(nn.Linear(2, 2), config)
    torchs = build_optimizer(nn.Linear(2, 2), config)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        torchs, config.lr, total_steps=steps, pct_start=warmup / steps, anneal_strategy="linear"
    )
    for step in range(steps):
        beta1 = scheduled_beta1(step, steps, config)
        set_rate_factor(optimizer, rate_factor(step, steps, config), beta1)
        group, expected = optimizer.param_groups[0], torchs.param_groups[0]
        assert group["lr"] == pytest.approx(expected["lr"], rel=1e-6)
        assert group["betas"] == pytest.approx(expected["betas"])
        torchs.step()
        schedule.step() if step + 1 < steps else None
    assert scheduled_beta1(3, 10, train(schedule="cosine")) is None


def test_onecycle_without_a_rise_or_a_fall() -> None:
    """There torch divides by 0."""
    rates = [rate_factor(step, 5, train(schedule="onecycle")) for step in range(5)]
    assert rates == pytest.approx([1, 0.75, 0.5, 0.25, 0], abs=1e-5)
    rising = train(schedule="onecycle", warmup_steps=5)
    assert [rate_factor(step, 5, rising) for step in (0, 4)] == [0.04, 1]


def test_a_schedule_that_does_not_fit_the_run_is_remarked_upon() -> None:
    published = train(schedule_steps=50000, warmup_steps=1000)
    (warning,) = list_warnings(published, 30000)
    assert "ends at step 50000, but the run has 30000" in warning
    assert "outlasts" in list_warnings(train(warmup_steps=100), 100)[0]
    assert list_warnings(train(), 100) == []


def test_biases_norms_and_embeddings_do_not_decay() -> None:
    model = nn.ModuleDict(
        {
            "e": nn.Embedding(5, 4),
            "n": nn.LayerNorm(4),
            "l": nn.Linear(4, 3),
            "b": nn.BatchNorm1d(4),
        }
    )
    optimizer = build_optimizer(model, train(weight_decay=0.1))
    decays = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    assert len(decays) == len(list(model.parameters()))
    assert {name for name, p in model.named_parameters() if decays[id(p)]} == {"l.weight"}
    everything = build_optimizer(model, train(weight_decay=0.1, weight_decay_on="all"))
    assert [g["weight_decay"] for g in everything.param_groups] == [0.1]


def test_biases_and_norms_of_blocks_alone_can_be_free_of_decay() -> None:
    block = nn.ModuleDict({"n": nn.LayerNorm(4), "l": nn.Linear(4, 3)})
    model = nn.ModuleDict(
        {"blocks": nn.ModuleList([block]), "norm": nn.BatchNorm1d(4), "head": nn.Linear(3, 2)}
    )
    config = train(weight_decay=0.1, weight_decay_on="all_but_block_biases_and_norms")
    optimizer = build_optimizer(model, config)
    decays = {id(p): g["weight_decay"] for g in optimizer.param_groups for p in g["params"]}
    decaying = {name for name, p in model.named_parameters() if decays[id(p)]}
    assert decaying == {"blocks.0.l.weight", "head.weight", "head.bias"}
    del model["norm"]
    assert len(build_optimizer(model, config).param_groups) == 2


class Apart(Mixer):
    name = "apart"

    def __init__(self, context: MixerContext, *, rates: list[float | DecayingAt | None]) -> None:
        super().__init__()
        self.own = nn.ParameterList(nn.Parameter(torch.ones(2, 2)) for _ in rates)
        self.common = nn.Parameter(torch.ones(2, 2))
        self.rates = rates

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x

    def learning_rates(self) -> dict[nn.Parameter, float | DecayingAt | None]:
        return dict(zip(self.own, self.rates, strict=True))


def apart(rates: list[float | DecayingAt | None]) -> Apart:
    return Apart(MixerContext.of(dim=2, length=4), rates=rates)


@pytest.mark.parametrize("decay_on", ["matrices", "all"])
def test_parameters_train_apart_as_their_mixer_says(decay_on: str) -> None:
    mixer = apart([0.01, None, DecayingAt(0.02)])
    config = train(weight_decay=0.1, weight_decay_on=decay_on, lr=0.5)
    optimizer = build_optimizer(nn.ModuleList([mixer]), config)

    def settings() -> dict[int, tuple[float, float]]:
        groups = optimizer.param_groups
        return {id(p): (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}

    expected = {mixer.own[0]: (0.01, 0.0), mixer.own[1]: (0.5, 0.0), mixer.common: (0.5, 0.1)}
    expected |= {mixer.own[2]: (0.02, 0.1)}
    assert settings() == {id(p): value for p, value in expected.items()}
    set_rate_factor(optimizer, 0.5)
    assert {rate for rate, _ in settings().values()} == {0.005, 0.01, 0.25}
    other = build_optimizer(nn.ModuleList([apart([0.01, None, DecayingAt(0.02)])]), config)
    other.load_state_dict(optimizer.state_dict())
    set_rate_factor(other, 1.0)
    assert {group["lr"] for group in other.param_groups} == {0.01, 0.02, 0.5}


@pytest.mark.parametrize("rate", [0.0, float("nan")])
def test_impossible_learning_rates_are_refused(rate: float) -> None:
    for given in (rate, DecayingAt(rate)):
        with pytest.raises(UserError, match="learning_rates of a mixer has"):
            build_optimizer(apart([given]), train())
    mixer = apart([0.1])
    mixer.own = nn.ParameterList([nn.Parameter(torch.ones(2, 2))])
    stranger = nn.Parameter(torch.ones(1))
    mixer.learning_rates = lambda: {stranger: 0.1}
    with pytest.raises(UserError, match="names what it does not own"):
        build_optimizer(mixer, train())
