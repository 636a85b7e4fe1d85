"""The cart router in Python, with the published SDK: carts over the threshold go to review, the others to valid."""

from collections.abc import Iterable

from ankka_flow import Batch, Emit, IntegerParameter, JsonInlet, JsonOutlet, Streamlet, json, serve


class CartRouter(Streamlet):
    name = "cart-router"
    inlet = JsonInlet("in", schema_name="cart-events.v1")
    valid = JsonOutlet("valid", schema_name="cart-events.v1")
    review = JsonOutlet("review", schema_name="cart-events.v1")
    threshold = IntegerParameter("review-threshold", default=100)

    def process(self, batch: Batch) -> Iterable[Emit]:
        for record in batch:
            try:
                total = json.loads(record.value)["total"]
            except (ValueError, KeyError, TypeError):
                continue  # not a cart: no emit for a record skips it
            yield (self.review if total > self.config[self.threshold] else self.valid).emit(record)


if __name__ == "__main__":
    serve(CartRouter())
