"""Generating text by a trained model: `python -m lra.generate --help`."""

from __future__ import annotations

import argparse
import codecs
import functools
import logging
import sys
from dataclasses import replace
from pathlib import Path

from common.errors import DataError
from lra.classifier.classifier import Classifier
from lra.classifier.decoders import Decoder, FullPassDecoder, RecurrentDecoder, has_recurrence
from lra.config.schema import RunConfig
from lra.evaluate.trained import load_best_model, prepare_data, read_finished_run, recompose_config
from lra.generate.sampling import Generation, generate
from lra.runtime.cli import (
    Parser,
    absolute_path,
    add_trained_model,
    non_negative_float,
    positive_int,
    run_command,
    seed,
)
from lra.runtime.console import write_out
from lra.runtime.environment import choose_device, use_threads
from lra.runtime.errors import UserError
from lra.train.checkpoint import describe_missing
from tasks.base import Task
from tasks.vocabulary import Vocabulary

logger = logging.getLogger("lra.generate")

MOST_TOKENS = 2**20
WAYS: dict[type[Decoder], str] = {
    RecurrentDecoder: "by the recurrence",
    FullPassDecoder: "by full passes",
}


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.generate",
        description="Continue a prompt with the best model of a finished run that predicts the "
        "next token (task lm, for example). If its mixer has a recurrent form, each new token "
        "costs one recurrent step. Otherwise it costs a full pass over the text so far. The text "
        "is printed to standard output, the speed to standard error.",
        epilog="Exit codes: 0 done, 1 --compare found different tokens, 2 mistake in the command, "
        "5 out of memory, 130 interrupted.",
    )
    parser.add_argument(
        "--run", type=absolute_path, required=True,
        help="folder of a finished run, for example results/runs/lm/tnn/RUN",
    )  # fmt: skip
    parser.add_argument(
        "--prompt", required=True,
        help="text to continue; for a task without text, the numbers of its tokens",
    )  # fmt: skip
    parser.add_argument(
        "--tokens", type=positive_int, default=256, help="number of tokens to add (default: 256)"
    )
    parser.add_argument(
        "--temperature", type=non_negative_float, default=1.0,
        help="divisor of the logits (default: 1); below 1 prefers likely tokens, 0 always takes "
        "the likeliest",
    )  # fmt: skip
    parser.add_argument("--seed", type=seed, default=0, help="random seed (default: 0)")
    parser.add_argument(
        "--compare", action="store_true",
        help="also generate by full passes, and compare the tokens and the speed",
    )  # fmt: skip
    add_trained_model(parser)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    if options.tokens > MOST_TOKENS:
        raise UserError(f"--tokens {options.tokens}: expected 1 to {MOST_TOKENS:,}")
    use_threads(options.threads)
    device = choose_device(options.device)
    folder: Path = options.run
    record = read_finished_run(folder)
    config = recompose_config(folder, record, trust_code=options.trust_code)
    task = config.build_task()
    if task.info.targets != "position" or task.info.vocab_size != task.info.num_classes:
        kind = "examples" if task.info.targets == "example" else "no tokens"
        raise UserError(
            f"--run {folder}: targets of {record.task} are {kind}: nothing to generate; expected "
            f"a run that predicts the next token, of task lm for example"
        )
    prepared = functools.partial(prepare_data, folder, record, config, options.data_dir)
    with config.task_component.explain_errors("its vocabulary failed"):
        vocabulary = task.vocabulary(prepared)
        prompt = read_prompt(vocabulary, options.prompt)
    with config.mixer_component.explain_errors("its trained model cannot be built"):
        model = load_model(folder, config, task, len(prompt), options.tokens).to(device)
    if options.compare and not has_recurrence(model):
        raise UserError(f"--compare: mixer {config.mixer_name} has no recurrence to compare with")
    way = RecurrentDecoder if has_recurrence(model) else FullPassDecoder
    draw = functools.partial(
        generate, model=model, prompt=prompt, count=options.tokens,
        temperature=options.temperature, seed=options.seed,
    )  # fmt: skip
    text = TextPrinter(vocabulary)
    with (
        config.task_component.explain_errors("its vocabulary failed"),
        config.mixer_component.explain_errors("the generation failed"),
    ):
        try:
            found = draw(way, begin=lambda: text.write(*prompt), emit=text.write)
        finally:
            text.close()
        report_speed(way, found)
        if not options.compare:
            return 0
        other = draw(FullPassDecoder)
        report_speed(FullPassDecoder, other)
        return compare(vocabulary, found, other)


def read_prompt(vocabulary: Vocabulary, text: str) -> list[int]:
    """Turn the prompt of the command line into tokens.

    Raises: UserError for a text without tokens, and for one that the vocabulary does not have.
    """
    try:
        prompt = vocabulary.encode(text)
    except DataError as error:
        raise UserError(f"--prompt: {error}") from None
    if not prompt:
        raise UserError(f"--prompt {text!r}: it has no tokens, expected at least one")
    return prompt


def load_model(folder: Path, config: RunConfig, task: Task, prompt: int, count: int) -> Classifier:
    """Load the best model of a run for a prompt and so many tokens after it.

    Raises: UserError if there is no checkpoint, or the model cannot have so many positions.
    """
    trained, needed = task.info.max_length, prompt + count - 1  # nothing follows the last token
    is_bound = config.model.positions == "learned" or not config.mixer_component.takes_longer
    if needed > trained and is_bound:
        raise UserError(
            f"--tokens {count}: with the prompt that is {needed} positions, and the model has "
            f"learned {trained}; expected at most {trained + 1} tokens, prompt included"
        )
    model = load_best_model(folder, config, replace(task.info, max_length=max(trained, needed)))
    if model is None:
        raise UserError(f"--run {folder}: {describe_missing(folder / 'checkpoints')}")
    if needed > trained:
        logger.info(f"{needed} positions: beyond the {trained} of the training")
    return model


class TextPrinter:
    """Standard output, character by character as their bytes are complete."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.has_begun, self.has_reader = False, True

    def write(self, *tokens: int) -> bool:
        """Write tokens; return whether anybody still reads."""
        self.has_begun = True
        text = "".join(self.decoder.decode(self.vocabulary.decode(token)) for token in tokens)
        self.has_reader = write_out(text) and self.has_reader
        return self.has_reader

    def close(self) -> None:
        """Write what is left, and end the line if there is one."""
        if self.has_begun:
            write_out(self.decoder.decode(b"", final=True) + "\n")


def report_speed(way: type[Decoder], found: Generation) -> None:
    """Log how fast tokens were drawn."""
    further = len(found.tokens) - 1
    speed = f", then {further} at {further / found.further_seconds:.1f} tokens/s" if further else ""
    logger.info(f"{WAYS[way]}: the first token after {found.first_seconds:.3f} s{speed}")


def compare(vocabulary: Vocabulary, found: Generation, other: Generation) -> int:
    """Say whether both ways drew the same tokens; return the exit code."""
    pairs = zip(found.tokens, other.tokens, strict=False)
    place = next((place for place, (one, two) in enumerate(pairs) if one != two), None)
    if place is None:
        logger.info(f"all {len(found.tokens)} tokens are equal")
        return 0

    def shown(one: Generation) -> str:
        token = one.tokens[place]
        text = vocabulary.decode(token).decode(errors="replace")
        return f"{token} ({text!r}), of probability {one.probabilities[place]:.6g}"

    logger.warning(
        f"tokens differ from number {place + 1} on: {WAYS[RecurrentDecoder]} {shown(found)}, "
        f"{WAYS[FullPassDecoder]} {shown(other)}"
    )
    return 1


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    return run_command("lra.generate", lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
