from common.errors import DataError as DataError
from common.errors import UserError as UserError
from lra.api.frame import metrics as metrics
from lra.api.frame import records as records
from lra.api.trained import TrainedRun as TrainedRun
from lra.api.trained import load as load
from lra.api.training import Built as Built
from lra.api.training import Data as Data
from lra.api.training import build as build
from lra.api.training import data as data
from lra.api.training import mixers as mixers
from lra.api.training import run as run
from lra.api.training import tasks as tasks

__all__: list[str]
