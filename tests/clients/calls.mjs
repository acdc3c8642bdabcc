// What the JavaScript clients of the table do: `node calls.mjs PROGRAM ... < WHERE`; a line of JSON for each.
// As calls.py. It runs in a folder with the packages of package.json.

import { readFileSync } from "node:fs";
import OpenAI from "openai";

const at = JSON.parse(readFileSync(0, "utf8"));
const url = `http://${at.gateway}`;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });

async function openaiVectorsOf(input) {
  const answer = await openai.embeddings.create({ model: "embedder", input });
  return answer.data.map((one) => one.embedding);
}

const programs = {
  openaiVectors: () => openaiVectorsOf(at.texts),
  openaiMany: () => openaiVectorsOf(at.many),
  openaiIds: () => openaiVectorsOf([[1, 2]]),
};

for (const program of process.argv.slice(2)) {
  try {
    console.log(JSON.stringify({ program, answer: await programs[program]() }));
  } catch (error) {
    const said = [error.status ?? error.statusCode ?? error.httpResponse?.status, error.message];
    said.push(JSON.stringify(error.body ?? error.httpResponse?.body ?? ""));
    console.log(JSON.stringify({ program, error: `${error.name}: ${said.join(" ")}`, trace: error.stack }));
  }
}
