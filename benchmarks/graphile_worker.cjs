// graphile-worker, told by lines on standard input what to do: "install", or how many jobs to drain. It answers with
// the seconds that took, from the start of the worker until its table of jobs is empty.
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

async function main() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    if (line === "install") {
      await runMigrations({ pgPool, logger: quiet });
      console.log("installed");
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
