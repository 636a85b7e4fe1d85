"""Sends each record to one of two outlets, or to both, and touches none of its bytes: keys stay bytes, or none."""

from collections.abc import Iterable
from zlib import crc32

from ankka_flow import Batch, Emit, JsonInlet, JsonOutlet, Streamlet, serve


class Splitter(Streamlet):
    name = "splitter"
    inlet = JsonInlet("in", schema_name="splitter.v1")
    left = JsonOutlet("left", schema_name="splitter.v1")
    right = JsonOutlet("right", schema_name="splitter.v1")

    def process(self, batch: Batch) -> Iterable[Emit]:
        for record in batch:
            place = crc32(record.value) % 8
            if place < 5:
                yield self.left.emit(record)
            if place > 3:
                yield self.right.emit(record)


if __name__ == "__main__":
    serve(Splitter())
