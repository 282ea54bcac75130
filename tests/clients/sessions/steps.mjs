// As steps.py, for Node.js.
const [host, port, database] = process.argv.slice(2);
export const options = { host, port: Number(port), database, user: "materialize" };

export async function run(steps) {
  for (const [step, work] of Object.entries(steps)) {
    let error = null;
    try {
      await work();
    } catch (failure) {
      console.error(failure);
      error = `${failure.name}: ${String(failure.message).split("\n")[0]}`;
    }
    console.log(JSON.stringify({ step, error }));
  }
}
