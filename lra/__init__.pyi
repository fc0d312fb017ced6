from lra.api.frame import metrics as metrics
from lra.api.frame import records as records
from lra.api.mixers import list_mixers as list_mixers
from lra.api.mixers import mixer as mixer
from lra.api.trained import TrainedRun as TrainedRun
from lra.api.trained import load as load
from lra.api.training import Built as Built
from lra.api.training import Data as Data
from lra.api.training import build as build
from lra.api.training import data as data
from lra.api.training import list_tasks as list_tasks
from lra.api.training import run as run
from lra.check import check as check
from lra.common.errors import DataError as DataError
from lra.common.errors import UserError as UserError

__all__: list[str]
