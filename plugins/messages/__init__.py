"""Anthropic's Messages API said in OpenAI's chat API, and back; for `messages_request` and `messages_reply`."""
