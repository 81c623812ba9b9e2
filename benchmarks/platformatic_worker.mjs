// @platformatic/job-queue in one event loop that enqueues and works. Each line on standard input is a JSON order:
// {"kind", "where", "drain": payloads} answers with jobs a second, {"kind", "where", "ask": count, "pause": ms} with the
// median of the round trips in milliseconds.
import { randomUUID } from "node:crypto";
import readline from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { FileStorage, MemoryStorage, Queue, RedisStorage } from "@platformatic/job-queue";

const BATCH = 1000;

function makeStorage({ kind, where }) {
  const name = randomUUID();
  if (kind === "Redis") return new RedisStorage({ url: where, keyPrefix: `${name}:` });
  return kind === "File" ? new FileStorage({ basePath: `${where}/${name}` }) : new MemoryStorage();
}

async function withQueue(order, work) {
  const queue = new Queue({ storage: makeStorage(order), concurrency: 100 });
  queue.execute(async (job) => ({ order: job.payload.order }));
  queue.on("error", (error) => console.error(error));
  await queue.start();
  try {
    return await work(queue);
  } finally {
    await queue.stop();
  }
}

function drain(order) {
  return withQueue(order, async (queue) => {
    let left = order.drain.length;
    const everything = new Promise((resolve) => queue.on("completed", () => --left === 0 && resolve()));
    const begun = process.hrtime.bigint();
    for (let start = 0; start < order.drain.length; start += BATCH) {
      await Promise.all(order.drain.slice(start, start + BATCH).map((value) => queue.enqueue(randomUUID(), value)));
    }
    await everything;
    return order.drain.length / (Number(process.hrtime.bigint() - begun) / 1e9);
  });
}

function ask(order) {
  return withQueue(order, async (queue) => {
    const taken = [];
    for (let n = 0; n < order.ask; n += 1) {
      await sleep(order.pause);
      const begun = process.hrtime.bigint();
      await queue.enqueueAndWait(randomUUID(), { order: n });
      taken.push(Number(process.hrtime.bigint() - begun) / 1e6);
    }
    taken.sort((a, b) => a - b);
    return taken[Math.floor(taken.length / 2)];
  });
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  console.log(await (order.drain ? drain(order) : ask(order)));
}
process.exit(0);
