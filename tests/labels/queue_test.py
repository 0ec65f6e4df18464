"""What is asked next: orders, bounds, pauses, and the published queue."""

from __future__ import annotations

from motif_jax.labels.queue import PublishedQueue, QuestionQueue


def names(queue, count, now=0.0):
    return [pending.items[0] for pending in queue.take(count, now)]


def test_a_question_that_failed_waits_longer_each_time_and_holds_up_no_other():
    queue = QuestionQueue(10)
    queue.enqueue(("poison",), 100)
    queue.enqueue(("other",), 1)
    now = 0.0
    for pause in (1.0, 2.0, 4.0):
        (poison,) = queue.take(1, now)
        queue.failed(poison, now)
        queue.enqueue(("poison",), 100)
        queue.give_back(*queue.take(1, now + 0.9 * pause))
        assert len(queue) == 2
        now += pause
    assert (names(queue, 2, now), poison.count) == (["poison", "other"], 400)


def test_the_published_queue_asks_entries_newest_first_in_whole_batches():
    queue = PublishedQueue(100, batch=4)
    for name, count in [("a", 2), ("b", 1), ("a", 2), ("c", 1)]:
        queue.enqueue((name,), count)
    assert [names(queue, count) for count in (3, 4, 4)] == [[], ["c", "a", "a", "b"], ["a", "a"]]
    assert (queue.dropped, len(queue)) == (0, 0)
    queue = PublishedQueue(8, batch=3)
    for number in range(10):
        queue.enqueue((f"{number}",), 1)
        queue.shrink()  # an eighth more than its size may wait
    assert (names(queue, 3), queue.dropped, len(queue)) == (["9", "8", "7"], 2, 5)
