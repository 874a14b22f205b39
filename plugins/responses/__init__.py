"""OpenAI's Responses API said in its chat API, and back; for `responses_request` and `responses_reply`."""
