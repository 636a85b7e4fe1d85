"""A streamlet that emits each record unchanged, by the published SDK."""

from collections.abc import Iterable

from ankka_flow import Batch, Emit, JsonInlet, JsonOutlet, Streamlet, serve


class Echo(Streamlet):
    name = "echo"
    inlet = JsonInlet("in", schema_name="in.v1")
    out = JsonOutlet("out", schema_name="out.v1")

    def process(self, batch: Batch) -> Iterable[Emit]:
        for record in batch:
            yield self.out.emit(record)


if __name__ == "__main__":
    serve(Echo())
