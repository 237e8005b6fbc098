"""What embeddings are worth: pure functions, Embeddings in, numbers or frozen results out."""

from arcwise.metrics.calibration import calibrated as calibrated
from arcwise.metrics.calibration import threshold_for as threshold_for
from arcwise.metrics.clusters import class_angles as class_angles
from arcwise.metrics.clusters import davies_bouldin as davies_bouldin
from arcwise.metrics.clusters import dunn_index as dunn_index
from arcwise.metrics.clusters import silhouette as silhouette
from arcwise.metrics.conflicts import conflicts as conflicts
from arcwise.metrics.folds import fold_accuracy as fold_accuracy
from arcwise.metrics.identification import accuracy as accuracy
from arcwise.metrics.identification import margin_kept as margin_kept
from arcwise.metrics.identification import nearest_neighbour_accuracy as nearest_neighbour_accuracy
from arcwise.metrics.openset import auroc as auroc
from arcwise.metrics.openset import detection_rate as detection_rate
from arcwise.metrics.retrieval import retrieval as retrieval
from arcwise.metrics.summary import METRICS as METRICS
from arcwise.metrics.summary import Metric as Metric
from arcwise.metrics.summary import all_metrics as all_metrics
from arcwise.metrics.verification import all_pairs as all_pairs
from arcwise.metrics.verification import auc as auc
from arcwise.metrics.verification import eer as eer
from arcwise.metrics.verification import roc as roc
from arcwise.metrics.verification import tar_at_far as tar_at_far
