"""With `train.deterministic`, no step calls an operation whose bits may change on a GPU."""

from __future__ import annotations

import re

import pytest
import torch

import fake_cuda
from fake_cuda_cases import GROUPS, SMALL, CountingProcess, case

pytestmark = pytest.mark.skipif(
    fake_cuda.find_compiler() is None, reason="needs a C++ compiler for the fake CUDA device"
)

FIXED_BY_SETTING = {
    "convolution", "convolution_backward", "index_add", "index_add_", "index_copy", "index_copy_",
    "replication_pad1d_backward", "replication_pad2d_backward", "scatter", "scatter_add",
    "scatter_add_", "scatter_reduce",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention_backward",
}  # fmt: skip
"""Operations on CUDA that `torch.use_deterministic_algorithms` makes deterministic."""

REFUSED_BY_SETTING = {
    "adaptive_avg_pool2d_backward", "bincount", "ctc_loss_backward", "cumsum", "cumsum_",
    "embedding_bag_backward", "grid_sampler_2d_backward", "histc", "median", "nll_loss2d_forward",
    "put_", "reflection_pad1d_backward", "reflection_pad2d_backward",
    "upsample_bicubic2d_backward", "upsample_bilinear2d_backward", "upsample_linear1d_backward",
}  # fmt: skip
"""Operations on CUDA, of floating-point numbers, that raise RuntimeError under it."""

ATTENTION = {"_scaled_dot_product_efficient_attention_backward"}
ALONE: dict[str, set[str]] = {
    "conv": {"convolution"},
    "delta": {"convolution", "cumsum"},
    "linear": {"cumsum"},
    "linformer": ATTENTION,
    "long-conv": {"upsample_linear1d_backward"},
    "mamba2": {"convolution", "cumsum"},
    "nystrom": {"convolution", *ATTENTION},
    "sinkhorn": ATTENTION,
    "ski-tnn": {"convolution"},
    "sparse": ATTENTION,
    "transformer": ATTENTION,
}
"""Operations by which the bits of a step may change without the setting; none of other mixers."""

VARIANTS = [
    case("listops", "transformer", *SMALL, protocol="lra"),
    case("listops", "linear", *SMALL, "mixer.decay=selective"),
    case("listops", "linear", *SMALL, "mixer.decay=none", "mixer.feature=favor"),
    case(
        "listops",
        "sparse",
        *SMALL,
        "mixer.pattern=bigbird",
        "mixer.window_size=null",
        "mixer.num_global=0",
    ),
    case("listops", "mamba2", *SMALL, "mixer.selective=mamba1"),
    case("listops", "mamba2", *SMALL, "mixer.selective=b2s6"),
    case("retrieval", "s4d", *SMALL),
    case("image", "toroidal", *SMALL),
    case("image", "tnn", *SMALL, "model.axes=native"),
    case("lm", "tnn", *SMALL, "model.tied_embeddings=true"),
    case("lm", "delta", *SMALL),
    case("lm", "linear", *SMALL),
    case("lm", "mamba2", *SMALL),
    case("listops", "transformer", *SMALL, "train.precision=bf16"),
]


@pytest.mark.thorough
def test_what_each_mixer_needs_the_setting_for(counting: CountingProcess) -> None:
    for one, found in zip(GROUPS["quick"], counting.count(GROUPS["quick"]), strict=True):
        needed = {*found["step"]["on_floats"]} & (FIXED_BY_SETTING | REFUSED_BY_SETTING)
        assert needed == ALONE.get(one["mixer"], set()), one["mixer"]


@pytest.mark.thorough
def test_the_setting_is_refused_by_no_operation_of_a_step(counting: CountingProcess) -> None:
    cases = [*(case("listops", mixer, *SMALL) for mixer in ALONE), *VARIANTS]
    for one in cases:
        one["overrides"] = (*one["overrides"], "train.deterministic=true")
        one["is_first_step"] = True
    for one, found in zip(cases, counting.count(cases), strict=True):
        assert not {*found["step"]["on_floats"]} & REFUSED_BY_SETTING, one


def test_torch_says_so_of_the_operations_that_are_replaced() -> None:
    """If a later version has deterministic kernels for them, our forms can go."""
    text = torch.use_deterministic_algorithms.__doc__ or ""
    _, fixed, refused = re.split(r"The following normally-nondeterministic operations", text)
    for word in ("`torch.cumsum`", "``linear``"):
        assert word in refused
        assert word not in fixed
    for word in ("torch.index_add", "torch.index_select", "torch.nn.Conv1d"):
        assert word in fixed
