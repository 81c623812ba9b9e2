// The same as protocol.py, for contenders in JavaScript.
const readline = require("node:readline");

const PAUSE = 30;
const WORK = 1;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => Number(process.hrtime.bigint()) / 1e6;

class Unsupported extends Error {}

class Contender {
  constructor(where) {
    this.where = where;
    this.handled = 0;
    this.started = new Map();
  }
  async run(number, kind) {
    this.started.set(number, now());
    this.handled += 1;
    if (kind === "work") await sleep(WORK);
    return number;
  }
}

async function timed(work) {
  const began = now();
  await work();
  return (now() - began) / 1000;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

const MEASURES = {
  async bulk(c, { count }) {
    const seconds = await timed(() => c.enqueueMany(count));
    await c.empty();
    return count / seconds;
  },
  async single(c, { count }) {
    const seconds = await timed(async () => {
      for (let n = 0; n < count; n += 1) await c.enqueue(n);
    });
    await c.empty();
    return count / seconds;
  },
  async drain(c, { count, kind }) {
    if (kind === "plain") throw new Unsupported("handlers are coroutines");
    await c.enqueueMany(count);
    c.handled = 0;
    const seconds = await timed(async () => {
      await c.start(kind);
      while (c.handled < count) await sleep(2);
      while ((await c.left()) > 0) await sleep(2);
    });
    await c.stop();
    await c.empty();
    return count / seconds;
  },
  async pickup(c, { count }) {
    await c.start("coroutine");
    await sleep(1000);
    const taken = [];
    for (let n = 0; n < count; n += 1) {
      await sleep(PAUSE);
      c.started.delete(n);
      const began = now();
      await c.enqueue(n);
      while (!c.started.has(n)) await sleep(0.5);
      taken.push(c.started.get(n) - began);
    }
    await c.stop();
    await c.empty();
    return median(taken);
  },
  async call() {
    throw new Unsupported("no request and response");
  },
};

async function tooLong(c, limit) {
  await new Promise((resolve) => setTimeout(resolve, limit * 1000).unref());
  throw new Error(`not finished in ${limit} s, ${c.handled} jobs handled`);
}

async function serve(c) {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    let answer = { value: 0 };
    try {
      if (order.do === "setup") {
        await c.setup();
        answer = { value: 0, version: c.version, settings: c.settings };
      } else if (order.do === "idle") await c.start("coroutine");
      else if (order.do === "end") await c.stop();
      else answer.value = await Promise.race([MEASURES[order.do](c, order), tooLong(c, order.limit)]);
    } catch (error) {
      answer = error instanceof Unsupported ? { unsupported: error.message } : { error: String(error) };
    }
    console.log(JSON.stringify(answer));
  }
  process.exit(0);
}

module.exports = { Contender, serve };
