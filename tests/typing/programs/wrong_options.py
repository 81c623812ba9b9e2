"""Wrong options: each marked line is an error, for pyright (its rule) and for mypy (its code)."""

from __future__ import annotations

import pgjq

storage = pgjq.MemoryStorage()
queue = pgjq.Queue("mail", storage=storage)
client = pgjq.Client(storage)

queue.enqueue(None, 1, prioritty=5)  # error: reportCallIssue, call-arg
queue.enqueue(None, 1, priority="high")  # error: reportArgumentType, arg-type
queue.enqueue(None, 1, priority=None)  # error: reportArgumentType, arg-type
queue.enqueue(None, 1, run_at="tomorrow")  # error: reportArgumentType, arg-type
queue.enqueue(None, 1, on_failed="ignore")  # error: reportArgumentType, arg-type
queue.enqueue(7, 1)  # error: reportArgumentType, arg-type
queue.enqueue(None)  # error: reportCallIssue, call-arg
queue.send(1, delay="1m")  # error: reportArgumentType, arg-type
queue.send(1, policy="short")  # error: reportCallIssue, call-arg
queue.enqueue_and_wait(None, 1, timeuot=5)  # error: reportCallIssue, call-arg
queue.enqueue_and_wait(None, 1, connection=None)  # error: reportCallIssue, call-arg
queue.enqueue_and_wait(None, 1, retry_backoff="yes")  # error: reportArgumentType, arg-type
pgjq.NewJob(None, 1, prioritty=5)  # error: reportCallIssue, call-arg
pgjq.NewJob(None, 1, retry_limit=2.5)  # error: reportArgumentType, arg-type

client.enqueue("mail", None, 1, prioritty=5)  # error: reportCallIssue, call-arg
client.enqueue("mail", None, 1, priority="high")  # error: reportArgumentType, arg-type
client.enqueue_and_wait("mail", None, 1, dead_letter=5)  # error: reportArgumentType, arg-type
client.create_queue("mail", policy="fifo")  # error: reportArgumentType, arg-type
client.create_queue("mail", retries=5)  # error: reportCallIssue, call-arg
client.create_queue("mail", priority=5)  # error: reportCallIssue, call-arg
client.create_queue("mail", partition="yes")  # error: reportArgumentType, arg-type
client.update_queue("mail", policy="short")  # error: reportCallIssue, call-arg
client.update_queue("mail", retry_limit="5")  # error: reportArgumentType, arg-type
client.find_jobs("mail", state="done")  # error: reportArgumentType, arg-type
client.retry_many("mail", created_befor=None)  # error: reportCallIssue, call-arg
client.delete_many("mail", singleton_key=5)  # error: reportArgumentType, arg-type

options: pgjq.EnqueueOptions = {"prioritty": 5}  # error: reportAssignmentType, typeddict-unknown-key
more: pgjq.QueueOptions = {"policy": "fifo"}  # error: reportAssignmentType, typeddict-item


async def produce(queue: pgjq.AsyncQueue, client: pgjq.AsyncClient) -> None:
    await queue.enqueue(None, 1, prioritty=5)  # error: reportCallIssue, call-arg
    await queue.enqueue(None, 1, priority="high")  # error: reportArgumentType, arg-type
    await queue.send(1, prioritty=5)  # error: reportCallIssue, call-arg
    await queue.enqueue_and_wait(None, 1, priority="high")  # error: reportArgumentType, arg-type
    await client.enqueue("mail", None, 1, prioritty=5)  # error: reportCallIssue, call-arg
    await client.create_queue("mail", policy="fifo")  # error: reportArgumentType, arg-type
    await client.update_queue("mail", policy="short")  # error: reportCallIssue, call-arg
    await client.cancel_many("mail", prioritty=5)  # error: reportCallIssue, call-arg
