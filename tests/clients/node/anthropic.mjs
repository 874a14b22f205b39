// Anthropic's library, of the generation that the command line names.
import { LIMIT, WEATHER, endless, leaves, serve, toolChoice } from "./lines.mjs";

const { default: Anthropic } = await import(process.argv[2]);
const TOOL = { name: "get_weather", input_schema: WEATHER };

function show(message, told) {
  told.text = message.content[0].text;
  told.finish = message.stop_reason;
  told.tokens = message.usage.output_tokens;
}

async function ask(client, asked, told) {
  const messages = [{ role: "user", content: asked.prompt }];
  const fields = { model: asked.model, messages, max_tokens: LIMIT };
  const forced = { ...fields, tools: [TOOL], ...toolChoice(asked, { type: "any" }) };
  switch (asked.case) {
    case "models":
      told.models = (await client.models.list()).data.map((model) => model.id);
      told.model = (await client.models.retrieve(asked.model)).id;
      return;
    case "count":
      told.tokens = (await client.messages.countTokens({ model: asked.model, messages })).input_tokens;
      return;
    case "beta":
      return show(await client.beta.messages.create({ ...fields, betas: ["interleaved-thinking-2025-05-14"] }), told);
    case "chat":
      return show(await client.messages.create(fields), told);
    case "bad":
      return void (await client.messages.create({ ...fields, max_tokens: -1 }));
    case "long":
      return void (await client.messages.create(fields));
    case "tool": {
      const said = await client.messages.create(forced);
      told.called = said.content[0].input;
      const result = { type: "tool_result", tool_use_id: said.content[0].id, content: "fine" };
      messages.push({ role: "assistant", content: said.content }, { role: "user", content: [result] });
      return show(await client.messages.create({ ...forced, ...toolChoice(asked, { type: "none" }) }), told);
    }
    case "streamed tool":
      told.called = (await client.messages.stream(forced).finalMessage()).content[0].input;
      return;
  }
  const events = client.messages.stream({ ...fields, ...(endless(asked) ? { max_tokens: 4000 } : {}) });
  for await (const event of events) {
    if (event.type === "content_block_delta") {
      told.text += event.delta.text;
      told.pieces += 1;
    }
    if (leaves(asked, told)) return; // leaving the loop breaks the request off
  }
  show(await events.finalMessage(), told);
}

await serve(async (asked, told) => {
  const timeout = 1000 * asked.seconds;
  await ask(new Anthropic({ baseURL: asked.url, apiKey: "none", maxRetries: 0, timeout }), asked, told);
});
