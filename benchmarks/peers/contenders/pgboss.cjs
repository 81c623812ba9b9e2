// pg-boss: insert for bulk, workers that fetch batches of 500, polled twice a second, its shortest interval.
const PgBoss = require("pg-boss");
const { Contender, serve } = require("./protocol.cjs");

const Boss = PgBoss.PgBoss ?? PgBoss.default ?? PgBoss;
const BATCH = 500;

class PgBossContender extends Contender {
  version = require("pg-boss/package.json").version;
  settings = `batches of ${BATCH}, polling every 0.5 s (its shortest), insert in bulk`;
  async setup() {
    this.boss = new Boss({ ...this.where, supervise: false, schedule: false });
    this.boss.on("error", () => {});
    await this.boss.start();
    await this.boss.createQueue("bench");
  }
  async enqueue(n) {
    await this.boss.send("bench", { n });
  }
  async enqueueMany(count) {
    for (let start = 0; start < count; start += 1000) {
      const size = Math.min(1000, count - start);
      const jobs = Array.from({ length: size }, (_, k) => ({ name: "bench", data: { n: start + k } }));
      await (this.boss.insert.length > 1 ? this.boss.insert("bench", jobs) : this.boss.insert(jobs));
    }
  }
  async start(kind) {
    const options = { batchSize: BATCH, pollingIntervalSeconds: 0.5 };
    await this.boss.work("bench", options, async (jobs) => {
      await Promise.all(jobs.map((job) => this.run(job.data.n, kind)));
    });
  }
  async stop() {
    await this.boss.offWork("bench");
  }
  async left() {
    const found = await this.boss.getDb().executeSql(
      "select count(*) from pgboss.job where name = 'bench' and state < 'completed'");
    return Number(found.rows[0].count);
  }
  async empty() {
    await this.boss.getDb().executeSql("delete from pgboss.job where name = 'bench'");
  }
}

const [host, user, database] = process.argv.slice(2);
serve(new PgBossContender({ host, user, database }));
