from attrs import frozen
from kernel import CallNext, Exchange, PluginSpec, Rejection, Reply

@frozen
class TenantGate:
    """Reject requests that do not say which tenant they belong to."""

    header: str = "x-tenant"

    async def __call__(self, exchange: Exchange, call_next: CallNext) -> Reply:
        if self.header not in exchange.headers:
            raise Rejection(401, f"missing {self.header} header")
        return await call_next(exchange)

PLUGIN = PluginSpec("tenant_gate", TenantGate, after="template_guard")
