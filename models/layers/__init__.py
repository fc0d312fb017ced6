"""Modules that several mixers are made of."""

__all__ = [
    "convolution_mixer",
    "damped_average",
    "dropout",
    "gated_unit",
    "heads",
    "kernel_cache",
    "linear_map",
    "long_convolution",
    "norms",
    "platter_fusion",
    "recurrence",
    "relative_position_encoder",
    "selective_states",
    "shared_states",
    "short_convolution",
    "state_space",
    "synthetic_scores",
    "toeplitz_mixer",
    "torus_positions",
    "two_axes",
]
