"""What is asked next: orders, bounds, pauses, and the published queue."""

from __future__ import annotations

import random

import pytest

from motif_jax.oni.label_queue import Pending, PublishedQueue, QuestionQueue


def names(taken: list[Pending]) -> list[str]:
    return [pending.items[0] for pending in taken]


def test_the_most_frequent_question_comes_first_then_the_newer() -> None:
    queue = QuestionQueue(10)
    for name, count in [("a", 3), ("b", 1), ("c", 3), ("b", 1), ("d", 5)]:
        queue.enqueue((name,), count)
    assert len(queue) == 4
    assert names(queue.take(2, 0.0)) == ["d", "c"]
    queue.enqueue(("b",), 2)
    assert names(queue.take(9, 0.0)) == ["b", "a"]
    assert queue.take(1, 0.0) == []


@pytest.mark.parametrize(("order", "expected"), [("newest", "acb"), ("uncertain", "bac")])
def test_questions_come_by_their_order(order: str, expected: str) -> None:
    queue = QuestionQueue(10, order)
    for name, count, score in [("a", 9, 0.1), ("b", 1, 0.9), ("c", 2, 0.1), ("a", 1, 0.2)]:
        queue.enqueue((name,), count, score)
    assert names(queue.take(9, 0.0)) == list(expected)


@pytest.mark.parametrize("order", ["frequent", "newest", "uncertain"])
def test_a_full_queue_drops_what_would_be_asked_last(order: str) -> None:
    rng = random.Random(order)
    queue = QuestionQueue(20, order)
    unbounded = QuestionQueue(10_000, order)
    for step in range(300):
        item = (f"{step}",)
        count = rng.randint(1, 9)
        score = rng.random()
        for any_queue in (queue, unbounded):
            any_queue.enqueue(item, count, score)
    queue.shrink()
    assert (len(queue), queue.dropped) == (20, 280)
    assert names(queue.take(20, 0.0)) == names(unbounded.take(20, 0.0))


def test_a_question_that_was_taken_goes_back_to_its_place() -> None:
    queue = QuestionQueue(10)
    for name, count in [("a", 2), ("b", 5)]:
        queue.enqueue((name,), count)
    (taken,) = queue.take(1, 0.0)
    queue.give_back(taken)
    assert names(queue.take(2, 0.0)) == ["b", "a"]


def test_a_failed_question_waits_longer_each_time() -> None:
    queue = QuestionQueue(10)
    queue.enqueue(("poison",), 100)
    now = 0.0
    for pause in (1.0, 2.0, 4.0):
        (poison,) = queue.take(1, now)
        queue.failed(poison, now)
        assert queue.take(1, now + 0.9 * pause) == []
        now += pause
    assert names(queue.take(1, now)) == ["poison"]


def test_a_failed_question_holds_up_no_other() -> None:
    queue = QuestionQueue(10)
    queue.enqueue(("poison",), 100)
    queue.enqueue(("other",), 1)
    queue.failed(queue.take(1, 0.0)[0], 0.0)
    assert names(queue.take(2, 0.5)) == ["other"]


def test_the_published_queue_gives_its_newest_entries_first() -> None:
    queue = PublishedQueue(100)
    for name, count in [("a", 2), ("b", 1), ("a", 2), ("c", 1)]:
        queue.enqueue((name,), count)
    assert queue.take(0, 0.0) == []
    assert names(queue.take(4, 0.0)) == ["c", "a", "a", "b"]
    assert names(queue.take(4, 0.0)) == ["a", "a"]


def test_the_published_queue_is_bounded_and_loses_the_oldest() -> None:
    queue = PublishedQueue(8)
    for number in range(100):
        queue.enqueue((f"{number}",), 1)
        queue.shrink()
    taken = names(queue.take(100, 0.0))
    assert taken[:8] == [f"{number}" for number in range(99, 91, -1)]
    assert len(taken) <= 9
    assert queue.dropped + len(taken) == 100


def test_items_that_no_step_showed_are_no_published_entry() -> None:
    queue = PublishedQueue(10)
    queue.enqueue(("a",), 0)
    assert len(queue) == 0
