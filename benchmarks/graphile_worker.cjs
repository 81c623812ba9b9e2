// graphile-worker, told by lines on standard input what to do: "install", "enqueue COUNT BATCH", or how many jobs to
// drain. It answers with the seconds that took: a drain from the start of the worker until its table of jobs is empty,
// an enqueue from JavaScript values until the last commit.
const readline = require("node:readline");
const { Logger, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");

const [host, user, database] = process.argv.slice(2);
const CONCURRENT_JOBS = 24;
const pgPool = new Pool({ host, user, database, max: CONCURRENT_JOBS + 1 });
pgPool.on("error", () => {});
pgPool.on("connect", (client) => client.on("error", () => {}));
const quiet = new Logger(() => () => {});

const preset = {
  worker: {
    concurrentJobs: CONCURRENT_JOBS,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

async function drain(count) {
  let handled = 0;
  let allHandled;
  const everything = new Promise((resolve) => (allHandled = resolve));
  const taskList = {
    bench: async (payload) => {
      if (payload.order === undefined) throw new Error("no payload");
      handled += 1;
      if (handled === count) allHandled();
    },
  };
  const start = process.hrtime.bigint();
  const runner = await run({ preset, taskList, pgPool, logger: quiet, noHandleSignals: true });
  await everything;
  // What is left now is one batch of completions; a look costs a few milliseconds.
  while ((await pgPool.query("select from graphile_worker._private_jobs limit 1")).rowCount > 0) {}
  const seconds = Number(process.hrtime.bigint() - start) / 1e9;
  await runner.stop();
  return seconds;
}

function payload(number) {
  const line = (n) => ({ sku: `SKU-${String(number + n).padStart(8, "0")}`, quantity: n + 1, price: 19.95 });
  return {
    order: number,
    customer: { id: (number * 7919) % 1000003, email: `customer-${number}@example.com` },
    lines: [0, 1, 2].map(line),
    currency: "EUR",
    note: "leave it with the neighbours",
  };
}

// The statement of its own bulk call.
const ENQUEUE = `select count(*) from graphile_worker.add_jobs(array(
  select spec from json_populate_recordset(null::graphile_worker.job_spec, $1::json) as spec))`;

async function enqueue(count, batch) {
  const payloads = Array.from({ length: count }, (_, number) => payload(number));
  const start = process.hrtime.bigint();
  for (let first = 0; first < count; first += batch) {
    const specs = payloads.slice(first, first + batch).map((value) => ({ identifier: "bench", payload: value }));
    await pgPool.query(ENQUEUE, [JSON.stringify(specs)]);
  }
  return Number(process.hrtime.bigint() - start) / 1e9;
}

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === "install") {
      await runMigrations({ pgPool, logger: quiet });
      console.log("installed");
    } else if (line.startsWith("enqueue ")) {
      const [, count, batch] = line.split(" ").map(Number);
      console.log(await enqueue(count, batch));
    } else {
      console.log(await drain(Number(line)));
    }
  }
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
