"""Dunn indices, silhouette, Davies-Bouldin, angles: loops, numbers by hand, scikit-learn, where digits run out."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import davies_bouldin_score, silhouette_score

from arcwise.metrics import class_angles, davies_bouldin, dunn_index, silhouette
from arcwise.metrics.clusters import BETWEEN, DISTANCES, INSIDE, all_spreads, spreads
from arcwise.packing import largest_smallest_angle
from arcwise.records import Embeddings
from metrics import definitions
from metrics.samples import blobs, embeddings, labelled

SPHERE = ("unit", "cosine", "angle")
VARIANTS = tuple(itertools.product(BETWEEN, INSIDE))


def close(value):
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# ------------------------------------------------------------------------------------------ by loops


def assert_every_dunn_index_is_its_definition(e, distance, trim):
    for between, inside in VARIANTS:
        ours = dunn_index(e, between=between, inside=inside, distance=distance, trim=trim)
        truth = definitions.dunn(e.x, e.y, between=between, inside=inside, distance=distance, trim=trim)
        assert ours == close(truth), (between, inside)


@settings(max_examples=40)
@given(labelled(), st.just("euclidean"))
def test_every_euclidean_dunn_index_is_its_definition(drawn, distance):
    e = embeddings(*drawn)
    assert_every_dunn_index_is_its_definition(e, distance, 100.0)


@settings(max_examples=50)
@given(labelled(dims=(2, 5)), st.sampled_from(SPHERE))
def test_every_dunn_index_on_the_sphere_is_its_definition(drawn, distance):
    e = embeddings(*drawn)
    assert_every_dunn_index_is_its_definition(e, distance, 100.0)


@settings(max_examples=60)
@given(
    labelled(sizes=st.one_of(st.just(1), st.integers(3, 9)), dims=(2, 5)),
    st.sampled_from(DISTANCES),
    st.sampled_from([95.0, 90.0, 75.0, 50.0, 12.5]),
)
def test_every_trimmed_dunn_index_is_its_definition(drawn, distance, trim):
    e = embeddings(*drawn)
    assert_every_dunn_index_is_its_definition(e, distance, trim)


@settings(max_examples=40)
@given(labelled(whole=True), st.sampled_from([100.0, 95.0, 50.0]))
def test_equal_distances_are_trimmed_together(drawn, trim):
    e = embeddings(*drawn)
    assert_every_dunn_index_is_its_definition(e, "euclidean", trim)


@pytest.mark.parametrize("distance", DISTANCES)
def test_trimming_leaves_a_class_of_two_whole_for_both_are_as_far_from_their_mean(distance):
    for seed in range(400):
        e = blobs([2, 2, 2], 3, seed=seed)
        assert spreads(e, distance=distance, trim=95.0).kept == 6, seed


def test_a_percentile_that_falls_on_a_member_keeps_it():
    e = blobs([101, 1], 3)
    for trim in range(1, 101):  # rank trim/100 (101 - 1) is the member number `trim`, counted from 0
        assert spreads(e, trim=float(trim)).kept == trim + 1 + 1, trim


@settings(max_examples=50)
@given(labelled(), st.just("euclidean"))
def test_silhouette_is_its_definition(drawn, distance):
    e = embeddings(*drawn)
    assert silhouette(e, distance=distance) == close(definitions.silhouette(e.x, e.y, distance))


@settings(max_examples=50)
@given(labelled(dims=(2, 5)), st.sampled_from(SPHERE))
def test_silhouette_on_the_sphere_is_its_definition(drawn, distance):
    e = embeddings(*drawn)
    assert silhouette(e, distance=distance) == close(definitions.silhouette(e.x, e.y, distance))


@pytest.mark.parametrize("rows", [1, 4, 7])
def test_distances_taken_tile_by_tile_are_all_there(monkeypatch, rows):
    monkeypatch.setattr("arcwise.metrics.clusters.TILE_ROWS", rows)
    e = blobs((5, 9, 2, 7), 3)
    for distance in ("euclidean", "unit", "angle"):
        assert silhouette(e, distance=distance) == close(definitions.silhouette(e.x, e.y, distance))
        nearest = {"between": "nearest", "inside": "mean", "distance": distance, "trim": 100.0}
        assert dunn_index(e, **nearest) == close(definitions.dunn(e.x, e.y, **nearest))


@settings(max_examples=50)
@given(labelled(), st.just("euclidean"))
def test_davies_bouldin_is_its_definition(drawn, distance):
    e = embeddings(*drawn)
    assert davies_bouldin(e, distance=distance) == close(definitions.davies_bouldin(e.x, e.y, distance))


@settings(max_examples=50)
@given(labelled(dims=(2, 5)), st.sampled_from(SPHERE))
def test_davies_bouldin_on_the_sphere_is_its_definition(drawn, distance):
    e = embeddings(*drawn)
    assert davies_bouldin(e, distance=distance) == close(definitions.davies_bouldin(e.x, e.y, distance))


@settings(max_examples=40)
@given(labelled(dims=(2, 5)))
def test_class_angles_are_their_definitions(drawn):
    e = embeddings(*drawn)
    found, members = class_angles(e), definitions.groups(e.x, e.y, "angle")
    centres = {label: definitions.centroid(rows, "angle") for label, rows in sorted(members.items())}
    own = {label: [definitions.angle(row, centres[label]) for row in members[label]] for label in centres}
    between = {(i, j): definitions.angle(centres[i], centres[j]) for i, j in itertools.combinations(centres, 2)}
    assert found.own == close(math.fsum(itertools.chain(*own.values())) / len(e.y))
    assert found.own_per_class.tolist() == close([math.fsum(v) / len(v) for v in own.values()])
    assert found.closest == close(min(between.values()))
    assert found.mean_between == pytest.approx(math.fsum(between.values()) / len(between), abs=1e-7)
    assert between[tuple(sorted(found.closest_pair))] == close(found.closest)
    assert found.packing == close(found.closest / largest_smallest_angle(len(centres), e.dim)[0])


@settings(max_examples=40)
@given(labelled(dims=(2, 5)), st.sampled_from([2, 4, 100]))
def test_angles_in_small_classes_are_to_the_others(drawn, below):
    e = embeddings(*drawn)
    found, members, angles = class_angles(e, aside_below=below), definitions.groups(e.x, e.y, "angle"), []
    for rows in members.values():
        if len(rows) >= below:
            angles += [definitions.angle(row, definitions.centroid(rows, "angle")) for row in rows]
        for i in range(len(rows) if len(rows) < below else 0):
            others = [row for j, row in enumerate(rows) if j != i]
            mean = np.sum([np.array(row) / np.linalg.norm(row) for row in others], axis=0) if others else np.zeros(1)
            if np.linalg.norm(mean) > 1e-9:
                angles.append(definitions.angle(rows[i], definitions.centroid(others, "angle")))
    assert math.isnan(found.own) if not angles else found.own == close(math.fsum(angles) / len(angles))


def test_the_angle_of_four_members_by_hand():
    # Four members at 0, 10, 20 and 30 degrees: to the mean of all, at 15, they have 15, 5, 5 and 15; to the mean of the
    # three others 20, 6.67, 6.67 and 20.
    def at(degrees):
        return np.array([[math.cos(math.radians(v)), math.sin(math.radians(v))] for v in degrees])

    e = Embeddings(np.concatenate([at([0, 10, 20, 30]), at([180])]), np.array([0, 0, 0, 0, 1]))
    assert math.degrees(class_angles(e).own) == pytest.approx(8.0, abs=0.01)  # a lone member counts as 0
    assert math.degrees(class_angles(e, aside_below=10).own) == pytest.approx(13.33, abs=0.05)
    from arcwise.metrics import all_metrics

    assert all_metrics(e)["angle-own"] == class_angles(e, aside_below=10).own


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("trim", [100.0, 80.0])
@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (9, 2, 7, 5)])  # classes may be numbered with gaps
def test_all_spreads_names_the_classes_that_are_closest(distance, trim, numbers):
    drawn = blobs([4, 1, 7, 5], 3, seed=5)
    e = embeddings(drawn.x, np.array(numbers)[drawn.y])
    found, classes = all_spreads(e, trim=trim)[distance], definitions.groups(e.x, e.y, distance)
    classes = {label: definitions.trimmed(rows, distance, trim) for label, rows in classes.items()}
    assert found.kept == sum(map(len, classes.values()))
    for between, pair in (("nearest", found.nearest_pair), ("centroid", found.centroid_pair)):
        gaps = {
            (i, j): definitions.separation(classes[i], classes[j], between, distance)
            for i, j in itertools.combinations(sorted(classes), 2)
        }
        assert tuple(sorted(pair)) == min(gaps, key=lambda two: gaps[two])
    for inside in INSIDE:
        truth = [definitions.extent(classes[label], inside, distance) for label in sorted(classes)]
        assert getattr(found, inside).tolist() == close(truth)


# ------------------------------------------------------------------------------------------ by hand


@pytest.mark.parametrize(
    ("between", "inside", "expected"),
    [("nearest", "diameter", 3 / 4), ("nearest", "radius", 3 / 2), ("nearest", "mean", 3 / 2),
     ("centroid", "diameter", 6 / 4), ("centroid", "radius", 6 / 2), ("centroid", "mean", 6 / 2)],
)  # fmt: skip
def test_dunn_of_four_points_on_a_line(between, inside, expected):
    # {0, 2} and {5, 9}: nearest 5 - 2 = 3, centroids 7 - 1 = 6; diameters 2 and 4, radii 1 and 2, means 1 and 2.
    e = embeddings([[0], [2], [5], [9]], [0, 0, 1, 1])
    assert dunn_index(e, between=between, inside=inside) == close(expected)


def test_silhouette_and_davies_bouldin_of_four_points_on_a_line():
    # {0, 2} and {5, 9}: a = 2, 2, 4, 4 and b = 7, 5, 4, 8, so s = 5/7, 3/5, 0/4, 4/8.
    # S = 1 and 2 around centroids 1 and 7: (1 + 2)/6 for both classes.
    e = embeddings([[0], [2], [5], [9]], [0, 0, 1, 1])
    assert silhouette(e) == close((5 / 7 + 3 / 5 + 0 + 1 / 2) / 4)
    assert davies_bouldin(e) == close(0.5)


@pytest.mark.parametrize(
    ("distance", "between", "inside", "expected"),
    [
        ("angle", "nearest", "diameter", 90 / 60),
        ("angle", "centroid", "radius", 150 / 30),
        ("cosine", "nearest", "diameter", 1 / (1 / 2)),  # 1 - cos 90, 1 - cos 60
        ("cosine", "centroid", "mean", (1 + math.sqrt(3) / 2) / (1 - math.sqrt(3) / 2)),  # 1 - cos 150, 1 - cos 30
        ("unit", "nearest", "diameter", math.sqrt(2) / 1),  # 2 sin 45, 2 sin 30
        # The means of unit vectors 60 apart have length cos 30; they are 150 apart, and sin 30 from their members.
        ("unit", "centroid", "radius", 2 * math.cos(math.pi / 6) * math.sin(math.radians(75)) / (1 / 2)),
    ],
)
def test_dunn_of_four_directions(distance, between, inside, expected):
    # Class 0 at 0 and 60 degrees, class 1 at 150 and 210, of various lengths.
    theta = np.radians([0, 60, 150, 210])
    x = np.stack([np.cos(theta), np.sin(theta)], axis=1) * [[1.0], [0.2], [7.0], [3.0]]
    e = embeddings(x, [0, 0, 1, 1])
    assert dunn_index(e, distance=distance, between=between, inside=inside) == close(expected)


@pytest.mark.parametrize(
    ("trim", "between", "inside", "expected"),
    [
        # {0, 1, 2, 3, 14}: mean 4, distances 4, 3, 2, 1, 10. Their 75th percentile is 4, which leaves 0..3, mean 1.5.
        (75.0, "nearest", "diameter", (100 - 3) / 3),
        (75.0, "centroid", "radius", (100 - 1.5) / 1.5),
        (75.0, "centroid", "mean", (100 - 1.5) / 1.0),
        # The 60th is 3 + 0.4 (4 - 3) = 3.4, which leaves 1, 2, 3, mean 2.
        (60.0, "nearest", "diameter", (100 - 3) / 2),
        (60.0, "centroid", "radius", (100 - 2) / 1),
        (100.0, "nearest", "diameter", (100 - 14) / 14),
    ],
)
def test_dunn_of_a_trimmed_class(trim, between, inside, expected):
    e = embeddings([[0], [1], [2], [3], [14], [100]], [0, 0, 0, 0, 0, 1])
    assert dunn_index(e, trim=trim, between=between, inside=inside) == close(expected)


def test_one_dimension_has_two_directions():
    # Class 0 points right, class 1 left: cosine -1, so 1 - cos = 2, and no class has extent.
    apart = embeddings([[1], [5], [-2]], [0, 0, 1])
    assert all(dunn_index(apart, distance=distance) == math.inf for distance in SPHERE)
    assert silhouette(apart, distance="cosine") == close(2 / 3)  # (2 - 0)/2 twice, and 0 for the class of one
    together = embeddings([[1], [5], [2]], [0, 0, 1])
    assert all(dunn_index(together, distance=distance) == 0.0 for distance in SPHERE)


@pytest.mark.parametrize("distance", DISTANCES)
def test_classes_of_one_have_no_extent(distance):
    e = embeddings([[3, 1], [1, 2], [-1, 1]], [0, 1, 2])
    assert all(dunn_index(e, between=a, inside=b, distance=distance) == math.inf for a, b in VARIANTS)
    assert silhouette(e, distance=distance) == 0.0
    assert davies_bouldin(e, distance=distance) == 0.0


def test_two_classes_with_one_centroid_have_an_infinite_davies_bouldin():
    assert davies_bouldin(embeddings([[-1, 0], [1, 0], [0, -1], [0, 1]], [0, 0, 1, 1])) == math.inf


# ------------------------------------------------------------------------------------------ where numbers run out


def one_point(sizes, point):
    """Classes of these sizes whose members are all one and the same point."""
    return embeddings(np.tile(point, (sum(sizes), 1)), np.repeat(range(len(sizes)), sizes))


POINTS = [
    ((3, 3, 3), (0.1, 0.2, 0.3)),
    ((2, 3, 5), (0.1, 0.2, 0.3)),
    ((2, 2, 2), (0.1, 0.7, -0.3)),
    ((1, 7, 5), (0.1, 0.7, -0.3)),
]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(("sizes", "point"), POINTS)
def test_classes_at_one_point_have_a_silhouette_of_0(distance, sizes, point):
    assert silhouette(one_point(sizes, point), distance=distance) == 0.0  # a = b = 0 for every sample


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(("sizes", "point"), POINTS)
def test_classes_at_one_point_touch_in_every_dunn_index(distance, sizes, point):
    e = one_point(sizes, point)
    for trim, (between, inside) in itertools.product((100.0, 95.0), VARIANTS):
        assert dunn_index(e, between=between, inside=inside, distance=distance, trim=trim) == 0.0, (between, inside)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize(("sizes", "point"), POINTS)
def test_classes_at_one_point_are_as_bad_as_can_be_for_davies_and_bouldin(distance, sizes, point):
    assert davies_bouldin(one_point(sizes, point), distance=distance) == math.inf


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dim", [2, 7, 33, 128])
def test_two_classes_at_one_point_have_no_silhouette_and_a_third_elsewhere_has_all(distance, dim):
    p, q = np.random.default_rng(dim).standard_normal((2, dim))
    e = embeddings([*[p] * 5, *[q] * 3, *[p] * 4], np.repeat([0, 1, 2], [5, 3, 4]))
    assert silhouette(e, distance=distance) == pytest.approx(3 / 12)  # a = b = 0 for 9 samples; a = 0 < b for 3
    assert davies_bouldin(e, distance=distance) == math.inf  # two share a centroid


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dim", [2, 7, 33, 128])
def test_classes_that_collapsed_to_points_apart_are_infinitely_good(distance, dim):
    points = np.random.default_rng(dim).standard_normal((4, dim))
    e = embeddings(np.repeat(points, [5, 3, 4, 1], axis=0), np.repeat(range(4), [5, 3, 4, 1]))
    for trim, (between, inside) in itertools.product((100.0, 95.0), VARIANTS):
        index = dunn_index(e, between=between, inside=inside, distance=distance, trim=trim)
        assert index == math.inf, (between, inside)
    assert silhouette(e, distance=distance) == pytest.approx(12 / 13)  # 1 for all but the class of one
    assert davies_bouldin(e, distance=distance) == 0.0


def test_a_diameter_far_smaller_than_the_distance_to_other_classes_is_still_the_diameter():
    # 0, 1e-9 and 2e-9 from the origin, the other class at distance 1.
    e = embeddings([[0, 0], [1e-9, 0], [2e-9, 0], [1, 0], [1, 1e-9]], [0, 0, 0, 1, 1])
    assert spreads(e).diameter.tolist() == pytest.approx([2e-9, 1e-9], rel=1e-6)
    assert dunn_index(e) == pytest.approx(0.5e9, rel=1e-6)


def test_a_point_far_from_the_origin_costs_no_digits():
    x = np.array([[0.0, 0.0], [0.25, 0.5], [3.0, 1.0], [3.5, 1.0], [4.25, 2.0], [4.25, 2.5], [9.0, 9.0], [9.0, 8.0]])
    y = [0, 0, 1, 1, 2, 2, 3, 3]
    near, far = embeddings(x, y), embeddings(x + 2.0**30, y)  # the shift and all differences are exact
    for between, inside in VARIANTS:
        index = dunn_index(near, between=between, inside=inside)
        assert dunn_index(far, between=between, inside=inside) == pytest.approx(index, rel=1e-6), (between, inside)
    assert spreads(far).centroid_pair == spreads(near).centroid_pair
    assert silhouette(far) == pytest.approx(silhouette(near), rel=1e-6)
    assert davies_bouldin(far) == pytest.approx(davies_bouldin(near), rel=1e-6)


@pytest.mark.parametrize("scale", [1e-38, 1e-20, 1e20, 1e37])
def test_the_longest_and_shortest_rows_of_float32_are_measured(scale):
    e = blobs([3, 4, 2], 3, apart=3.0)
    scaled = Embeddings(x=(e.x * scale).astype(np.float32), y=e.y, names=e.names)
    for distance in DISTANCES:
        assert dunn_index(scaled, distance=distance) == pytest.approx(dunn_index(e, distance=distance), rel=1e-4)
        assert silhouette(scaled, distance=distance) == pytest.approx(silhouette(e, distance=distance), rel=1e-4)
        expected = davies_bouldin(e, distance=distance)
        assert davies_bouldin(scaled, distance=distance) == pytest.approx(expected, rel=1e-4)


# ------------------------------------------------------------------------------------------ scikit-learn


@pytest.mark.parametrize("seed", range(5))
def test_silhouette_is_that_of_scikit_learn(seed):
    e = blobs([9, 30, 1, 17, 23], 6, seed=seed)
    angles = np.arccos(np.clip(unit(e.x) @ unit(e.x).T, -1, 1)) * (1 - np.eye(len(e.x)))
    theirs = {
        "euclidean": silhouette_score(e.x, e.y),
        "unit": silhouette_score(unit(e.x), e.y),
        "cosine": silhouette_score(e.x, e.y, metric="cosine"),
        "angle": silhouette_score(angles, e.y, metric="precomputed"),
    }
    assert {distance: silhouette(e, distance=distance) for distance in DISTANCES} == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_davies_bouldin_is_that_of_scikit_learn(seed):
    e = blobs([9, 30, 1, 17, 23], 6, seed=seed)
    theirs = davies_bouldin_score(e.x, e.y), davies_bouldin_score(unit(e.x), e.y)  # a class of one costs them 1e-8
    assert (davies_bouldin(e), davies_bouldin(e, distance="unit")) == pytest.approx(theirs, rel=1e-7)
