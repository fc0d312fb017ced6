"""Names of settings: those that do not exist are refused, with what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lra.config.merge import Merged
from lra.config.registry import Section
from lra.config.request import SECTIONS, Change
from lra.config.source import Source
from lra.runtime.errors import UserError, nearest, unknown

KnownSettings = Mapping[str, Iterable[str]]
"""Names of the settings of each section."""

ALIKE = 0.8
"""Likeness from which a setting of another section is taken to be meant."""

OTHER_NAMES = {
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
"""Names that other code has for settings, by the name here."""


def check_names(
    merged: Merged,
    types: Mapping[str, type[Section]],
    sources: Mapping[str, Source],
    what: str = "a run",
) -> None:
    """Check the names of all settings. Files may hold sections that are not looked at.

    Args:
        types: the class of each section's settings.
        sources: what the sections of a mixer and a task are the options of.
        what: what the sections are of, as messages call it.
    Raises: UserError naming the setting, where it came from, and what may have been meant.
    """
    known = {name: list(cls.model_fields) for name, cls in types.items()}
    for change in merged.changes:
        _check_section(change, known, what)
    for (section, key), (_, origin) in merged.values.items():
        if section in known and key not in known[section]:
            meant = meant_by(section, key, known)
            owner = sources[section].name if section in sources else section
            raise unknown(f"option of {owner}", key, known[section], origin, meant)


def _check_section(change: Change, known: KnownSettings, what: str) -> None:
    section, key = change.section, change.key
    if not section:
        meant = meant_by(None, key, known) if key not in SECTIONS else None
        hint = f"; did you mean {meant}?" if meant else ""
        raise UserError(
            f"{change.origin}: expected section.key=value, train.lr=1e-3 for instance (sections: "
            f"{', '.join(SECTIONS)}){hint}"
        )
    if section not in SECTIONS:
        is_like = nearest(section, SECTIONS, ALIKE) is not None
        meant = None if is_like else meant_by(None, key, known)
        raise unknown("section", section, SECTIONS, change.origin, meant)
    if section not in known:
        raise UserError(f"{change.origin}: {section}.{key} does not concern {what}")


def meant_by(section: str | None, key: str, known: KnownSettings) -> str | None:
    """Return the setting that a name may have meant, None if none is like it.

    Args:
        section: where it was looked for; None if none was given.
        key: the name that is not there.
        known: all settings.
    Returns: the name alone if it is of the same section, else "section.name".
    """
    own = list(known.get(section, ())) if section is not None else []
    if (near := nearest(key, own)) is not None and _bare(near) == _bare(key):
        return near
    every = [f"{name}.{one}" for name, keys in known.items() for one in keys]
    for full in every:
        other_names = {full.partition(".")[2], *OTHER_NAMES.get(full, "").split()}
        if _bare(key) in map(_bare, other_names):
            return full
    if near is not None:
        return near
    by_key = {full.partition(".")[2]: full for full in every}
    close = nearest(key, by_key, ALIKE)
    return None if close is None else by_key[close]


def _bare(name: str) -> str:
    """Return a name without what its spellings differ in."""
    return name.casefold().replace("_", "").replace("-", "")
