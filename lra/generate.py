"""Generating text by a trained model: `python -m lra.generate --help`."""

import argparse
import codecs
import logging
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lra.api.trained import load_finished
from lra.classifier.classifier import Classifier
from lra.classifier.decoders import FullPassDecoder, RecurrentDecoder, has_recurrence
from lra.common.errors import DataError, UserError
from lra.models.layers.kernel_cache import cache_kernels
from lra.runtime.cli import (
    Parser,
    absolute_path,
    add_flags,
    make_main,
    non_negative_float,
    positive_int,
    whole_number,
)
from lra.runtime.console import write_out
from lra.runtime.environment import use_threads
from lra.tasks.goals import NextToken
from lra.tasks.lm.task import LanguageModelling
from lra.tasks.lm.words import Vocabulary, Words
from lra.tasks.random_words import RandomWords

logger = logging.getLogger("lra.generate")


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser(
        prog="python -m lra.generate",
        description="Continue a prompt with the best model of a finished run that predicts the "
        "next token (task lm, for example). If its mixer has a recurrent form, each new token "
        "costs one recurrent step. Otherwise it costs a full pass over the text so far. The text "
        "is printed to standard output, the speed to standard error.",
        epilog="Exit codes: 0 done, 2 mistake in the command, 5 out of memory, 130 interrupted.",
    )
    add = parser.add_argument
    add("--run", type=absolute_path, required=True,
        help="folder of a finished run, for example results/runs/lm/tnn/RUN")  # fmt: skip
    add("--prompt", required=True,
        help="text to continue; for a task without text, the numbers of its tokens")  # fmt: skip
    add("--tokens", type=positive_int, default=256,
        help="number of tokens to add (default: 256)")  # fmt: skip
    add("--temperature", type=non_negative_float, default=1.0,
        help="divisor of the logits (default: 1); below 1 prefers likely tokens, 0 always takes "
        "the likeliest")  # fmt: skip
    add("--seed", type=whole_number, default=0, help="random seed (default: 0)")
    add_flags(parser, "--trust-code", "--device", "--threads", "--data-dir")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> int:
    """Carry out a command line; return the exit code."""
    use_threads(options.threads)
    trained = load_finished(
        options.run, data_dir=options.data_dir, trust_code=options.trust_code, device=options.device
    )
    config = trained.config
    task = config.build_task()
    if not isinstance(task.info.goal, NextToken):
        raise UserError(
            f"--run {options.run}: {config.task_name} predicts {task.info.goal.what}, so there is "
            f"nothing to generate; expected a run that predicts the next token, of task lm for "
            f"example"
        )
    if isinstance(task, LanguageModelling):
        vocabulary = task.vocabulary(lambda: trained.dataset)
    else:
        vocabulary = Words([b"%d" % token for token in range(task.info.goal.outputs)])
    try:
        prompt = vocabulary.encode(options.prompt)
    except DataError as error:
        raise UserError(f"--prompt: {error}") from None
    if not prompt:
        raise UserError(f"--prompt {options.prompt!r}: it has no tokens, expected at least one")
    needed = len(prompt) + options.tokens - 1  # nothing follows the last token
    longest = max(task.info.max_length, needed)
    model = trained.load_model(replace(task.info, max_length=longest))
    chosen = {"count": options.tokens, "temperature": options.temperature, "seed": options.seed}
    with config.mixer_component.explain_errors("the generation failed"):
        write_tokens(vocabulary, prompt, generate(model, prompt, **chosen))
    return 0


def write_tokens(vocabulary: Vocabulary, prompt: Sequence[int], tokens: Iterable[int]) -> None:
    """Write a prompt and the tokens after it as they are drawn, and log the speed.

    Nothing is written before the model has read the prompt. A character is written when all of its
    bytes are there; once nobody reads, no more tokens are drawn.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    start = time.perf_counter()
    times: list[float] = []
    try:
        for token in tokens:
            times.append(time.perf_counter())
            new = [token] if len(times) > 1 else [*prompt, token]
            text = "".join(decoder.decode(vocabulary.decode(number)) for number in new)
            if not write_out(text):
                break
    finally:
        if times:
            write_out(decoder.decode(b"", final=True) + "\n")
    speed = ""
    if further := len(times) - 1:
        speed = f", then {further} at {further / (times[-1] - times[0]):.1f} tokens/s"
    logger.info(f"the first token after {times[0] - start:.3f} s{speed}")


def draw_token(logits: Tensor, temperature: float, words: RandomWords) -> int:
    """Draw a token by logits (tokens,), through the inverse of the cumulative distribution.

    In double precision, logits that differ by rounding hardly ever give another token.

    Args:
        temperature: what logits are divided by; 0 for the likeliest token.
        words: source of the random number.
    Raises: UserError for logits that are not finite.
    """
    values = logits.double().cpu().numpy()
    if not np.isfinite(values).all():
        raise UserError("the model's logits are not finite, so that nothing can be drawn")
    if temperature == 0:
        return int(values.argmax())
    with np.errstate(over="ignore"):  # minus infinity is right for a temperature next to 0
        weights = np.exp((values - values.max()) / temperature)
    cumulative = np.cumsum(weights)
    high, low = (int(word) for word in words.draw(2))
    number = ((high << 32 | low) >> 12) / 2**52  # its product with a sum stays below the sum
    return int(np.searchsorted(cumulative, cumulative[-1] * number, "right"))


@torch.inference_mode()
def generate(
    model: Classifier, prompt: Sequence[int], *, count: int, temperature: float, seed: int
) -> Iterator[int]:
    """Continue a prompt: yield one token after another, each when it is drawn.

    Args:
        model: a causal classifier of positions, in evaluation mode.
        prompt: tokens, at least one.
        count: number of tokens to draw, at least one.
        temperature: what logits are divided by; 0 for the likeliest tokens.
        seed: of the random numbers.
    """
    words, device = RandomWords(seed, stream=0), next(model.parameters()).device
    is_recurrent = has_recurrence(model)
    logger.info(f"decoding by {'the recurrence' if is_recurrent else 'full passes'}")
    way = RecurrentDecoder if is_recurrent else FullPassDecoder
    with cache_kernels():
        decoder = way(model, len(prompt) + count - 1)  # nothing follows the last token
        tokens = list(prompt)
        for _ in range(count):
            logits = decoder.take(torch.tensor(tokens, device=device))
            tokens = [draw_token(logits, temperature, words)]
            yield tokens[0]


main = make_main("lra.generate", parse_arguments, run)

if __name__ == "__main__":
    sys.exit(main())
