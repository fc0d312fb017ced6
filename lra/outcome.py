"""The record of a run, made from it when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lra.environment import versions
from lra.evaluate import Score
from lra.record import DataRecord, RunRecord, Status
from tasks.base import largest_class

if TYPE_CHECKING:
    from lra.run import Run


def make_record(run: Run, status: Status, message: str | None, test: Score | None) -> RunRecord:
    """Describe a run that ends, by all processes that train it together.

    Args:
        message: what ended a run that is not done.
        test: of one that is.
    """
    config, trainer, best = run.config, run.trainer, run.trainer.best
    return RunRecord(
        run_id=run.folder.path.name,
        task=config.task_name,
        mixer=config.mixer_name,
        mixer_code=config.mixer_code,
        mixer_from=config.mixer_source.given if config.mixer_code else None,
        preset=config.preset,
        protocol=config.protocol,
        overrides=list(config.overrides),
        seed=run.seed,
        status=status,
        message=message,
        test_accuracy=test.accuracy if test else None,
        test_correct=test.correct if test else None,
        test_total=test.total if test else None,
        val_accuracy=best["val_accuracy"] if best else None,
        selected_on=run.dataset.selected_on if best else None,
        best_step=best["step"] if best else None,
        steps=trainer.step,
        total_steps=trainer.total_steps,
        epochs=trainer.step / trainer.order.batches_per_epoch,
        steps_per_second=trainer.steps_per_second,
        flops_per_step=trainer.flops_per_step,
        peak_memory_mib=run.peak_memory(),
        params=trainer.num_parameters,
        length=run.info.max_length,
        batch_size=config.train.batch_size,
        micro_batch=trainer.micro_batch,
        train_seconds=trainer.seconds,
        wall_seconds=run.wall_seconds(),
        device=run.hardware(),
        precision=config.train.precision,
        versions=versions(),
        git={**run.git, "all_commits": run.commits()},
        config_hash=config.hash,
        baselines=dict(run.dataset.baselines),
        largest_class=largest_class(run.dataset.splits["test"].labels),
        data=DataRecord.of(run.dataset),
    )
