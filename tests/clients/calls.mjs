// What the JavaScript clients of the table do: `node calls.mjs PROGRAM ... < WHERE`; a line of JSON for each.
// As calls.py. It runs in a folder with the packages of package.json.

import { readFileSync } from "node:fs";
import { InferenceClient } from "@huggingface/inference";
import { OpenAIEmbeddings } from "@langchain/openai";
import { CohereClient, CohereClientV2 } from "cohere-ai";
import OpenAI from "openai";

const at = JSON.parse(readFileSync(0, "utf8"));
const url = `http://${at.gateway}`;
const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 });
const langchain = new OpenAIEmbeddings({ configuration: { baseURL: `${url}/v1` }, apiKey: "none", model: "embedder" });
const cohere = new CohereClientV2({ environment: url, token: "none" });
const hub = new InferenceClient("none");

async function openaiVectorsOf(input) {
  const answer = await openai.embeddings.create({ model: "embedder", input });
  return answer.data.map((one) => one.embedding);
}

const pairs = (found) => found.map((one) => [one.label, one.score]);

const programs = {
  openaiVectors: () => openaiVectorsOf(at.texts),
  openaiMany: () => openaiVectorsOf(at.many),
  openaiIds: () => openaiVectorsOf([[1, 2]]),
  langchainDocuments: () => langchain.embedDocuments(at.texts),
  langchainQuery: () => langchain.embedQuery(at.texts[0]),
  async cohereRerank() {
    const answer = await cohere.rerank({ model: "pairs", query: at.query, documents: at.documents, topN: 2 });
    return answer.results.map((one) => [one.index, one.relevanceScore]);
  },
  async cohereEmbed() {
    const asked = { model: "embedder", texts: at.texts, inputType: "classification", embeddingTypes: ["float"] };
    return (await cohere.embed(asked)).embeddings.float;
  },
  async cohereTokenize() {
    const client = new CohereClient({ environment: url, token: "none" });
    return (await client.tokenize({ model: "embedder", text: at.texts[0] })).tokenStrings;
  },
  hubVectors: () => hub.featureExtraction({ endpointUrl: `${url}/embed`, inputs: at.texts }),
  hubClasses: async () => pairs(await hub.textClassification({ endpointUrl: `${url}/pipeline/text-classification`, inputs: at.texts[0] })),
  async hubMask() {
    const found = await hub.fillMask({ endpointUrl: `${url}/pipeline/fill-mask`, inputs: at.masked });
    return found.map((one) => [one.token_str, one.score]);
  },
  async hubWords() {
    const found = await hub.tokenClassification({ endpointUrl: `${url}/pipeline/token-classification`, inputs: at.texts[1] });
    return found.map((one) => [one.word, one.entity_group, one.score, one.start, one.end]);
  },
  async hubAnswer() {
    const inputs = { question: at.question, context: at.context };
    const found = await hub.questionAnswering({ endpointUrl: `${url}/pipeline/question-answering`, inputs });
    return [found.answer, found.start, found.end, found.score];
  },
  hubSimilarity() {
    const inputs = { source_sentence: at.texts[0], sentences: at.texts.slice(1) };
    return hub.sentenceSimilarity({ endpointUrl: `${url}/pipeline/sentence-similarity`, inputs });
  },
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
