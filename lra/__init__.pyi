from common.errors import DataError as DataError
from common.errors import UserError as UserError
from lra.api.data import Built as Built
from lra.api.data import Data as Data
from lra.api.data import build as build
from lra.api.data import data as data
from lra.api.data import mixers as mixers
from lra.api.data import tasks as tasks
from lra.api.frame import metrics as metrics
from lra.api.frame import records as records
from lra.api.trained import TrainedRun as TrainedRun
from lra.api.trained import load as load
from lra.api.training import run as run

__all__: list[str]
