"""Checks of the names of settings: an unknown one is refused with the most similar name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lra.config.component import Component
from lra.config.registry import Section
from lra.config.request import SECTIONS, Change
from lra.config.settings_layers import MergedSettings
from lra.runtime.errors import UserError, nearest, unknown

KnownSettings = Mapping[str, Iterable[str]]
"""Names of the settings of each section."""

MIN_SIMILARITY = 0.8
"""Least similarity at which a setting of another section is suggested."""

ALIASES = {
    "model.dim": "d_model dim_model model_dim hidden_size hidden_dim embed_dim embedding_dim "
    "emb_dim n_embd width channels features",
    "model.depth": "num_layers n_layers layers n_layer num_hidden_layers num_blocks n_blocks",
    "model.channel_expand": "expand ffn_expand mlp_ratio ff_mult",
    "model.channel_activation": "activation",
    "model.pooling": "pool pooling_mode pool_type",
    "model.positions": "pos_emb positional_encoding position_encoding pos_encoding",
    "model.causal": "is_causal unidirectional",
    "train.lr": "learning_rate rate eta base_lr max_lr",
    "train.batch_size": "batch bs train_batch_size",
    "train.steps": "num_steps max_steps n_steps train_steps num_train_steps iterations iters",
    "train.epochs": "num_epochs max_epochs n_epochs num_train_epochs",
    "train.weight_decay": "wd l2",
    "train.warmup_steps": "warmup num_warmup_steps n_warmup",
    "train.warmup_share": "warmup_ratio warmup_fraction",
    "train.schedule": "scheduler lr_scheduler lr_schedule lr_decay",
    "train.clip_norm": "grad_clip gradient_clip max_grad_norm gradient_clip_val grad_norm_clip",
    "train.micro_batch": "micro_batch_size accumulation accumulate_grad_batches grad_accum",
    "train.epsilon": "eps adam_epsilon adam_eps",
    "train.beta1": "adam_beta1 momentum",
    "train.beta2": "adam_beta2",
    "train.precision": "dtype amp fp16",
    "train.tf32": "allow_tf32 matmul_precision float32_matmul_precision",
    "train.kernels": "fla flash_linear_attention mamba_ssm use_fast_path use_triton kernel_backend",
    "train.deterministic": "use_deterministic_algorithms cudnn_deterministic full_determinism",
    "train.cuda_graphs": "cudagraph cudagraphs cuda_graph use_cuda_graphs",
    "train.evaluate_every": "eval_every eval_interval val_check_interval",
    "train.checkpoint_activations": "gradient_checkpointing activation_checkpointing",
    "log.every_steps": "log_every log_interval log_every_n_steps",
    "mixer.num_heads": "heads n_heads nheads n_head num_attention_heads",
    "mixer.num_states": "d_state n_state state_size state_dim ssm_size n",
    "mixer.attention_dropout": "attn_dropout attention_probs_dropout_prob",
    "task.sequence_length": "max_len max_length seq_len seqlen l_max context block_size",
    "task.max_length": "max_len seq_len l_max",
    "task.data_seed": "seed random_seed",
}
"""Names of settings in other projects, by the name here."""


def check_names(
    merged: MergedSettings,
    types: Mapping[str, type[Section]],
    components: Mapping[str, Component],
    what: str = "a run",
) -> None:
    """Check the names of all settings. Files may have sections without a type here.

    Args:
        types: the class of each section's settings.
        components: the mixer and the task whose options the sections are.
        what: the thing that is configured, as messages call it.
    Raises: UserError naming the setting, where it came from, and a suggestion.
    """
    known = {name: list(cls.model_fields) for name, cls in types.items()}
    for change in merged.changes:
        _check_section(change, known, what)
    for (section, key), (_, origin) in merged.values.items():
        if section in known and key not in known[section]:
            suggestion = suggest_setting(section, key, known)
            owner = components[section].name if section in components else section
            raise unknown(f"option of {owner}", key, known[section], origin, suggestion)


def _check_section(change: Change, known: KnownSettings, what: str) -> None:
    section, key = change.section, change.key
    if not section:
        suggestion = suggest_setting(None, key, known) if key not in SECTIONS else None
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        raise UserError(
            f"{change.origin}: expected section.key=value, like train.lr=1e-3 (sections: "
            f"{', '.join(SECTIONS)}){hint}"
        )
    if section not in SECTIONS:
        is_like = nearest(section, SECTIONS, MIN_SIMILARITY) is not None
        suggestion = None if is_like else suggest_setting(None, key, known)
        raise unknown("section", section, SECTIONS, change.origin, suggestion)
    if section not in known:
        raise UserError(f"{change.origin}: {section}.{key} has no effect on {what}")


def suggest_setting(section: str | None, key: str, known: KnownSettings) -> str | None:
    """Return the setting that is most similar to an unknown name, None if none is similar.

    Args:
        section: the section that was given, None without one.
        key: the unknown name.
        known: all settings.
    Returns: the name alone if it is of the same section, else "section.name".
    """
    own = list(known.get(section, ())) if section is not None else []
    if (near := nearest(key, own)) is not None and _normalize(near) == _normalize(key):
        return near
    every = [f"{name}.{one}" for name, keys in known.items() for one in keys]
    for full in every:
        aliases = {full.partition(".")[2], *ALIASES.get(full, "").split()}
        if _normalize(key) in map(_normalize, aliases):
            return full
    if near is not None:
        return near
    by_key = {full.partition(".")[2]: full for full in every}
    close = nearest(key, by_key, MIN_SIMILARITY)
    return None if close is None else by_key[close]


def _normalize(name: str) -> str:
    """Return a name in lower case, without underscores and hyphens."""
    return name.casefold().replace("_", "").replace("-", "")
