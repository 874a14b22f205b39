// OpenAI's library, of the generation that the command line names.
import { LIMIT, WEATHER, endless, leaves, serve, toolChoice } from "./lines.mjs";

const { default: OpenAI } = await import(process.argv[2]);
const CHAT_TOOL = { type: "function", function: { name: "get_weather", parameters: WEATHER, strict: true } };
const TOOL = { type: "function", name: "get_weather", parameters: WEATHER, strict: true };

function showChat(completion, told) {
  told.text = completion.choices[0].message.content;
  told.finish = completion.choices[0].finish_reason;
  told.tokens = completion.usage.completion_tokens;
}

async function chat(client, asked, told) {
  const messages = [{ role: "user", content: asked.prompt }];
  const fields = { model: asked.model, messages, max_completion_tokens: LIMIT };
  const forced = { ...fields, tools: [CHAT_TOOL], ...toolChoice(asked, "required") };
  switch (asked.case) {
    case "models":
      told.models = (await client.models.list()).data.map((model) => model.id);
      told.model = (await client.models.retrieve(asked.model)).id;
      return;
    case "chat":
      return showChat(await client.chat.completions.create(fields), told);
    case "bad":
      return void (await client.chat.completions.create({ ...fields, max_completion_tokens: -1 }));
    case "long":
      return void (await client.chat.completions.create(fields));
    case "tool": {
      const said = (await client.chat.completions.create(forced)).choices[0].message;
      told.called = JSON.parse(said.tool_calls[0].function.arguments);
      messages.push(said, { role: "tool", tool_call_id: said.tool_calls[0].id, content: "fine" });
      return showChat(await client.chat.completions.create({ ...forced, ...toolChoice(asked, "none") }), told);
    }
    case "streamed tool": {
      const said = await client.chat.completions.stream(forced).finalMessage();
      told.called = JSON.parse(said.tool_calls[0].function.arguments);
      return;
    }
  }
  const options = { stream: true, stream_options: { include_usage: true } };
  const limit = endless(asked) ? { max_completion_tokens: 4000 } : {};
  for await (const chunk of await client.chat.completions.create({ ...fields, ...limit, ...options })) {
    told.tokens = chunk.usage?.completion_tokens ?? null;
    for (const choice of chunk.choices) {
      told.text += choice.delta.content ?? "";
      told.pieces += choice.delta.content ? 1 : 0;
      told.finish = choice.finish_reason;
    }
    if (leaves(asked, told)) return; // leaving the loop breaks the request off
  }
}

function showResponse(response, told) {
  told.text = response.output_text;
  told.finish = response.status;
  told.tokens = response.usage.output_tokens;
}

async function respond(client, asked, told) {
  const input = [{ role: "user", content: asked.prompt }];
  const fields = { model: asked.model, input, max_output_tokens: LIMIT };
  const forced = { ...fields, tools: [TOOL], ...toolChoice(asked, "required") };
  switch (asked.case) {
    case "chat":
      return showResponse(await client.responses.create(fields), told);
    case "bad":
      return void (await client.responses.create({ ...fields, max_output_tokens: -1 }));
    case "long":
      return void (await client.responses.create(fields));
    case "tool": {
      const [call] = (await client.responses.create(forced)).output;
      told.called = JSON.parse(call.arguments);
      input.push(call, { type: "function_call_output", call_id: call.call_id, output: "fine" });
      return showResponse(await client.responses.create({ ...forced, ...toolChoice(asked, "none") }), told);
    }
    case "streamed tool": {
      const [call] = (await client.responses.stream(forced).finalResponse()).output;
      told.called = JSON.parse(call.arguments);
      return;
    }
  }
  const limit = endless(asked) ? { max_output_tokens: 4000 } : {};
  const events = client.responses.stream({ ...fields, ...limit });
  for await (const event of events) {
    if (event.type === "response.output_text.delta") {
      told.text += event.delta;
      told.pieces += 1;
    }
    if (event.type === "error" || event.type === "response.failed") (told.failed ??= []).push(event.type);
    if (leaves(asked, told)) return;
  }
  showResponse(await events.finalResponse(), told);
}

await serve(async (asked, told) => {
  const timeout = 1000 * asked.seconds;
  const client = new OpenAI({ baseURL: asked.url + "/v1", apiKey: "none", maxRetries: 0, timeout });
  await (asked.api === "chat" ? chat : respond)(client, asked, told);
});
