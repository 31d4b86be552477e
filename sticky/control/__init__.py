"""The control calls that clients make on a Server's own URL (`/_modal/...`). Reaches rules through `sticky.isticky`."""
