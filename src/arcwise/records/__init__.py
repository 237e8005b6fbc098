"""The nouns that travel between the parts: Embeddings, Prototypes, Preprocessing, a Run, a Comparison; no torch."""

from arcwise.records.comparison import Comparison as Comparison
from arcwise.records.embeddings import Embeddings as Embeddings
from arcwise.records.embeddings import refuse_other_models as refuse_other_models
from arcwise.records.encoder import Encoder as Encoder
from arcwise.records.files import FORMAT as FORMAT
from arcwise.records.files import Entry as Entry
from arcwise.records.files import Kind as Kind
from arcwise.records.files import cannot_write as cannot_write
from arcwise.records.files import errors_name as errors_name
from arcwise.records.files import meta_json as meta_json
from arcwise.records.files import read_json as read_json
from arcwise.records.files import read_tensors as read_tensors
from arcwise.records.files import write as write
from arcwise.records.files import write_json as write_json
from arcwise.records.files import write_tensors as write_tensors
from arcwise.records.files import writing as writing
from arcwise.records.folders import claim_folder as claim_folder
from arcwise.records.folders import kind_of_folder as kind_of_folder
from arcwise.records.folders import mark_report as mark_report
from arcwise.records.lock import locked as locked
from arcwise.records.portraits import MarginCurve as MarginCurve
from arcwise.records.portraits import MarginPortrait as MarginPortrait
from arcwise.records.preprocessing import Framing as Framing
from arcwise.records.preprocessing import Preprocessing as Preprocessing
from arcwise.records.prototypes import Prototypes as Prototypes
from arcwise.records.run import Run as Run
