// The way in which a test talks to a client in a process of its own: a line of JSON for each question and answer.
import { createInterface } from "node:readline";

export const LIMIT = 64;
export const PIECES = 4;
export const WEATHER = {
  type: "object",
  properties: { city: { type: "string", enum: ["Paris", "Rome"] } },
  required: ["city"],
  additionalProperties: false,
};

// An error is told by the names of its class and of all that it is one of.
const names = (error) => {
  const found = [];
  for (let kind = error.constructor; kind?.name; kind = Object.getPrototypeOf(kind)) found.push(kind.name);
  return found;
};

// The field that says whether a tool is to be called, where the model is not left to find that out itself.
export const toolChoice = (asked, word) => (asked.forced ? { tool_choice: word } : {});

export const leaves = (asked, told) => asked.case === "leave" && told.pieces >= PIECES;
export const endless = (asked) => asked.case === "leave" || asked.case === "killed";

export async function serve(answer) {
  for await (const line of createInterface({ input: process.stdin })) {
    const told = { text: "", pieces: 0 };
    try {
      await answer(JSON.parse(line), told);
    } catch (error) {
      const { status, code, message } = error;
      Object.assign(told, { error: names(error), status: status ?? null, code: code ?? null, message: String(message) });
    }
    process.stdout.write(JSON.stringify(told) + "\n");
  }
}
