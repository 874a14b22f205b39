"""Answers over the chat API as other APIs are told them: read whole or from a stream; and how requests are refused."""
