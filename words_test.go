package main

import "testing"

func TestTheNameThatWasProbablyMeant(t *testing.T) {
	topics := []string{"shop.cart-events.v1", "cart.valid-carts", "shop.cart-events.v1-dead-letters", "in"}
	for name, want := range map[string]string{
		"shop.cart-event.v1":  "shop.cart-events.v1", // a letter too few
		"shop.cart-evetns.v1": "shop.cart-events.v1", // two in the wrong order
		"Shop.Cart-Events.V1": "shop.cart-events.v1",
		"cart-events.v1":      "shop.cart-events.v1", // a prefix forgotten
		"inn":                 "in",
		"cart.review-carts":   "", // a sibling that is not there, and no typing error
		"v1":                  "",
		"orders":              "",
	} {
		if got := nearest(name, topics); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
