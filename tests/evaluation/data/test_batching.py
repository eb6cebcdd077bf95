"""Batches: the same for any number of threads, in order, and no more than promised at once."""

import threading

import numpy as np
import pytest

from shiftbed.errors import InputError
from shiftbed.evaluation.data import UnreadableImage, batches, open_test_set


def prepare(image):
    return np.asarray(image.convert("RGB").resize((16, 12)))


@pytest.fixture
def many(tmp_path):
    """A hundred small images, each with its number in its pixels."""
    images = np.zeros((100, 4, 4), np.uint8) + np.arange(100, dtype=np.uint8)[:, None, None]
    np.savez(tmp_path / "many.npz", images=images, labels=np.arange(100))
    return open_test_set(tmp_path / "many.npz")


@pytest.mark.parametrize("workers", [0, 1, 4, None])
def test_any_number_of_threads(folder, workers):
    test_set = open_test_set(folder)
    rows = [5, 0, 3, 4, 2]
    found = list(batches(test_set, rows, prepare, 2, workers))
    assert [batch.rows.tolist() for batch in found] == [[5, 0], [3, 4], [2]]
    assert all(batch.unreadable == [] for batch in found)
    pixels = np.concatenate([batch.pixels for batch in found])
    assert np.array_equal(pixels, np.stack([prepare(test_set.load(row)) for row in rows]))
    assert pixels.dtype == np.uint8


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_unreadable_images_are_left_out_and_named(folder, workers):
    for name in ("china/1.jpg", "flower/0.jpg", "flower/1.jpg", "flower/2.jpg"):
        (folder / name).write_bytes(b"")
    test_set = open_test_set(folder)
    found = list(batches(test_set, None, prepare, 3, workers))
    assert [batch.rows.tolist() for batch in found] == [[0, 2], []]
    assert [batch.pixels.shape for batch in found] == [(2, 12, 16, 3), (0, 12, 16, 3)]
    assert [[one.row for one in batch.unreadable] for batch in found] == [[1], [3, 4, 5]]
    assert found[0].unreadable[0].example == "china/1.jpg"
    assert np.array_equal(found[0].pixels[1], prepare(test_set.load(2)))
    (nothing,) = batches(test_set, [3, 4], prepare, 3, workers)
    assert nothing.pixels.shape[0] == nothing.rows.size == 0


@pytest.mark.parametrize("workers", [1, 4])
def test_no_more_is_prepared_than_promised(many, workers):
    started = []
    lock = threading.Lock()

    def watched(image):
        with lock:
            started.append(image)
        return np.asarray(image)[..., None]

    for at, batch in enumerate(batches(many, None, watched, 10, workers)):
        assert len(started) <= 10 * (at + 3)
        assert batch.pixels[:, 0, 0, 0].tolist() == list(range(10 * at, 10 * at + 10))
    assert len(started) == 100


def test_leaving_early_stops_the_threads(many):
    before = threading.active_count()
    running = batches(many, None, lambda image: np.asarray(image)[..., None], 5, 4)
    next(running)
    running.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_exceptions_come_through_where_their_batch_is_due(many, workers):
    def fails(image):
        if np.asarray(image)[0, 0] == 37:
            raise ZeroDivisionError("no such number")
        return np.asarray(image)[..., None]

    running = batches(many, None, fails, 10, workers)
    assert [next(running).rows[0] for _ in range(3)] == [0, 10, 20]
    with pytest.raises(ZeroDivisionError, match="no such number") as caught:
        next(running)
    assert caught.value.__notes__ == ["while preprocessing '37'"]


@pytest.mark.parametrize("workers", [0, 4])
def test_a_transform_may_refuse_an_image(many, workers):
    def refuses(image):
        if np.asarray(image)[0, 0] % 10 == 3:
            raise UnreadableImage("an image", "ends in three")
        return np.asarray(image)[..., None]

    found = list(batches(many, range(20), refuses, 10, workers))
    assert [[one.row for one in batch.unreadable] for batch in found] == [[3], [13]]
    assert [len(batch.rows) for batch in found] == [9, 9]


def test_transforms_that_give_something_else(folder, many):
    test_set = open_test_set(folder)
    with pytest.raises(InputError, match="must give uint8"):
        list(batches(test_set, None, lambda image: np.asarray(image) / 255, 2))
    with pytest.raises(InputError, match="must give uint8"):
        list(batches(test_set, None, lambda image: image, 2))
    sizes = iter(range(10, 200))
    with pytest.raises(InputError, match="must come out alike"):
        list(batches(many, None, lambda _: np.zeros((next(sizes), 2, 1), np.uint8), 2, 0))


@pytest.mark.parametrize(
    ("rows", "size", "workers"),
    [([6], 2, 1), ([-1], 2, 1), ([0.5], 2, 1), ([0], 0, 1), ([0], 1, -1)],
)
def test_wrong_arguments_at_once(folder, rows, size, workers):
    with pytest.raises(InputError, match=r"rows|batch_size"):
        batches(open_test_set(folder), rows, prepare, size, workers)


def test_no_rows(folder):
    assert list(batches(open_test_set(folder), [], prepare, 4)) == []
