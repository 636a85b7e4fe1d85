"""Passes each record on, and takes a while for each batch, so that something is with it at any moment."""

from collections.abc import Iterable
from time import sleep

from ankka_flow import Batch, Emit, JsonInlet, JsonOutlet, Streamlet, serve


class Slow(Streamlet):
    name = "slow"
    inlet = JsonInlet("in", schema_name="slow.v1")
    out = JsonOutlet("out", schema_name="slow.v1")

    def process(self, batch: Batch) -> Iterable[Emit]:
        for record in batch:
            yield self.out.emit(record)
        sleep(0.03)


if __name__ == "__main__":
    serve(Slow())
